"""Files and folders that are asked directly: a corpus and an index in the user's cache, under a published body as it is.

Changes are found by sizes, times and inodes of files; only what is new is embedded."""

import hashlib
import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from platformdirs import user_cache_path

from realm.answering.body_models import answering_model, reading_directory
from realm.answering.opening import OpenRun, open_run, wrap_body
from realm.documents.pages.recognition import recognition_directory, recognition_state
from realm.documents.records import NO_DOCUMENTS, NO_WORDS, NOT_YET, UNKNOWN_KIND, SourceOptions
from realm.documents.store.info import files_account
from realm.documents.store.manifest import read_manifest
from realm.errors import CorpusError, DataError, RunError
from realm.models.bodies.known import known_body
from realm.progress import Progress
from realm.recipe import Recipe, build_recipe
from realm.runs.directory import build_run_corpus, claim_run, stat_digest
from realm.search.blocks import open_inputs
from realm.storage.files import bytes_below, make_directory, write_atomic
from realm.storage.generations import read_current
from realm.storage.layout import RunPaths, holds_run
from realm.storage.locks import held
from realm.storage.manifests import read_note, write_note

FORMAT = 11
NAME = 40
"""Characters of a document's or folder's name that a cached run is called by."""
_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")
AS_IN_FOLDERS = SourceOptions(whole_rows=True)
BLOCK_LENGTH = 160
"""As for published bodies: a paragraph of some 100 words."""


def cache_directory() -> Path:
    """Directory of cached runs; XDG_CACHE_HOME moves it on Linux."""
    return user_cache_path("realm") / "documents"


def open_cached(
    sources: Sequence[Path], body: str, progress: Progress, note: Callable[[str], None] = lambda _: None, *, reader: str = ""
) -> OpenRun:
    """Open files and folders under a published body, indexed or brought up to date where needed; their order does not count.

    ``note`` gets a line that says how many files were read, when they have changed; ``reader``: as for ``OpenRun.read_by``, looked for
    before anything is indexed. Raises DataError, CorpusError, ConfigError: sources or
    body cannot be used, what was made before stays; RunError: another process is at work on the same documents."""
    if reader:
        reading_directory(reader)
    places = _outermost(source.resolve() for source in sources)
    published = known_body(body)  # a later version of this package may bring another of that name
    own = Path(body).resolve() if published is None and Path(body).is_dir() else None
    body = body if own is None else str(own)
    files = () if own is None else sorted(own.glob("*.safetensors"))
    weights = [[file.name, (stat := file.stat()).st_size, stat.st_mtime_ns] for file in files]
    named = json.dumps([FORMAT, body, weights if published is None else [published.sha256], *map(str, places)])
    key = hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    paths = RunPaths(cache_directory() / f"{_UNUSUAL.sub('-', places[0].name)[:NAME]}-{key}")
    make_directory(paths.root)
    with _alone(paths.root):
        state, known = stat_digest(places) + recognition_state(), read_note(paths.wrapped) or {}
        changed = known.get("state") != state
        if "asked" not in known:
            if changed:  # a start that was killed, and the documents have changed since
                for left in paths.root.iterdir():
                    if left.is_dir():
                        shutil.rmtree(left)
            write_note(paths.wrapped, {"state": state})
            opened = _make(paths, _recipe(places, body), progress)
        else:
            if changed:
                write_note(paths.wrapped, known | {"state": ""})  # killed in the midst, it is neither the old state nor the new one
                from realm.documents.change.updates import sync_documents

                sync_documents(paths.corpus, places, progress=progress.counting("corpus"), source_options=AS_IN_FOLDERS)
            opened = open_run(paths.root)
        if changed:
            account, rejected = files_account(paths.corpus, places), opened.inputs.store.manifest.rejected
            if account["files"] > 1 or rejected:
                note(account_line(account, rejected))
        if opened.unsearchable:
            opened, _ = opened.with_added(lambda done, of: progress.count("index: blocks", done, of))
        facts = {"sources": [str(place) for place in places], "body": body, "state": state, "asked": time.time()}
        write_note(paths.wrapped, facts)
    return opened


def follow_documents(root: Path) -> bool:
    """Bring the corpus of a cached run up to date, if its documents have changed since. Returns whether they had. Raises RealmError: as for
    ``open_cached``; nothing is changed then."""
    paths = RunPaths(root)
    known = read_note(paths.wrapped) or {}
    places = [Path(source) for source in known.get("sources", ())]
    state = stat_digest(places) + recognition_state()
    if not places or known.get("state") == state:
        return False
    from realm.documents.change.updates import sync_documents

    with _alone(root):
        write_note(paths.wrapped, known | {"state": ""})  # killed in the midst, it is neither the old state nor the new one
        sync_documents(paths.corpus, places, workers=1, source_options=AS_IN_FOLDERS)
        write_note(paths.wrapped, known | {"state": state})
    return True


def _outermost(places: Iterable[Path]) -> list[Path]:
    """Places in order, none twice, and none that lies in another: its files are read with that one."""
    distinct = set(places)
    return sorted(place for place in distinct if distinct.isdisjoint(place.parents))


def account_line(account: dict[str, Any], rejected: Mapping[str, int]) -> str:
    """The line about an account (``files_account``): files read, those not read by ending or reason, and records left out of the others,
    which ``rejected`` counts by reason with whole files."""
    of_files = Counter(file["reason"] for file in account["not_read"])
    kinds = ((Path(file["path"]).suffix.lower() or "without an ending", file["reason"]) for file in account["not_read"])
    named = Counter(ending if reason in (UNKNOWN_KIND, NO_WORDS) else reason for ending, reason in kinds)
    records = Counter(rejected) - of_files
    line = f"read {account['read']} of {account['files']} files"
    if named:
        line += f"; not read: {', '.join(f'{count} {what}' for what, count in named.most_common())}"
    if records:
        line += f"; left out of those read: {', '.join(f'{count} {reason}' for reason, count in records.items())}"
    return f"{line} (list: realm cache info FOLDER)" if named or records else line


def _make(paths: RunPaths, recipe: Recipe, progress: Progress) -> OpenRun:
    """Build the corpus, embed its blocks under the recipe's body and publish the index; what a killed call has done is kept."""
    claim_run(paths, recipe)
    build_run_corpus(paths, recipe, progress, whole_rows=True)
    inputs = open_inputs(paths.corpus, recipe.model.query_length)
    model = answering_model(recipe, inputs)
    if read_current(paths.index) is None:
        from realm.search.publishing.refresher import index_documents

        embedded = partial(progress.count_long, "index: blocks embedded")
        index_documents(model, inputs, paths, bf16=recipe.run.bf16, progress=embedded)
    return wrap_body(paths, recipe, inputs, model)


def rows_directory() -> Path:
    """Directory of the rows that were given instead of files."""
    return user_cache_path("realm") / "rows"


def _alone(root: Path) -> AbstractContextManager[None]:
    """Keep other processes off a cached run. Raises RunError: one is at work on it."""
    return held(
        root, lambda by: RunError(f"another process{by} reads these documents", path=root, cure="Wait for it to end."), "LOCK.asked"
    )


def _recipe(places: list[Path], body: str) -> Recipe:
    """A body as it is over documents; nothing is tagged, since nothing is to learn from them."""
    return build_recipe(
        {
            "model": {"body": body, "projection": 0},
            "corpus": {"sources": [str(place) for place in places], "tagger": "none", "block_length": BLOCK_LENGTH},
            "run": {"bf16": True},
            "retrieval": {"kind": "hybrid"},
            "pretrain": {"steps": 0, "from_ict": False, "from_warm": False},
        }
    )


def cached_runs(sources: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """Contents of the cache, the one asked last first: {"directory", "sources", "body", "documents", "blocks", "bytes", "asked"}; of
    ``sources`` alone, where they are given, with "files", "read", "not_read" and "left_out" as ``files_account`` has them."""
    found, wanted = [], {str(source.resolve()) for source in sources}
    for root in cache_directory().glob("*"):
        facts = read_note(RunPaths(root).wrapped) or {}
        if "asked" not in facts or (wanted and not wanted & set(facts["sources"])):
            continue
        try:
            manifest = read_manifest(root / "corpus")
            account = _account(root / "corpus", facts) if wanted else {}
        except CorpusError:
            continue
        counts = {"documents": manifest.documents, "blocks": manifest.blocks, "bytes": bytes_below(root)}
        found.append({"directory": str(root), **{name: facts.get(name) for name in ("sources", "body", "asked")}, **counts, **account})
    return sorted(found, key=lambda run: -(run["asked"] or 0))


def _account(corpus: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """The account of cached files; those that came since are not read yet."""
    places = list(map(Path, facts["sources"]))
    as_asked = all(place.exists() for place in places) and facts["state"] == stat_digest(places) + recognition_state()
    return files_account(corpus, places, NO_DOCUMENTS if as_asked else NOT_YET)


def clear_cache(sources: Sequence[Path] = ()) -> dict[str, int]:
    """Remove cached runs of any of these sources, or all, with recognised words of pictures. Returns {"removed", "bytes"}.

    Raises RunError: another process is at work on one of them; those before it are gone."""
    wanted = {str(source.resolve()) for source in sources}
    removed = freed = 0
    for root in sorted(path for path in cache_directory().glob("*") if path.is_dir()):
        if wanted and not wanted & set((read_note(RunPaths(root).wrapped) or {}).get("sources", ())):
            continue
        with _alone(root):
            freed += bytes_below(root)
            shutil.rmtree(root)
            removed += 1
    for directory in () if wanted else (recognition_directory(), rows_directory()):
        freed += bytes_below(directory)
        shutil.rmtree(directory, ignore_errors=True)
    return {"removed": removed, "bytes": freed}


def is_run(place: Path) -> bool:
    """Tell a run's directory, even one whose config.toml is lost, from one of documents, which may have a config.toml, too."""
    begun = RunPaths(place).config.is_file() and any((place / part).exists() for part in ("run.json", "corpus", "stages"))
    return begun or holds_run(place)


class Frame(Protocol):
    """A table that speaks Arrow: of pandas (2.2 or newer), Polars, PyArrow, DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


Given = str | Path | Iterable[Mapping[str, Any]] | Frame
"""A file or folder, or rows of it."""


def files_of_given(given: Iterable[Given], directory: Path) -> list[Path]:
    """Return the paths that are given, and for rows a file of JSON lines in ``directory``, named after its contents.

    Raises DataError: no such file or folder, or something that is neither path nor rows."""
    paths = [Path(one) if isinstance(one, str | Path) else _written(one, directory) for one in given]
    for path in paths:
        if not path.exists():
            raise DataError("no such file or folder", path=path, cure="Check the path.")
    return paths


def _written(rows: Iterable[Mapping[str, Any]] | Frame, directory: Path) -> Path:
    lines = "".join(f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for row in _rows(rows)).encode("utf-8", "replace")
    path = directory / f"rows-{hashlib.sha256(lines).hexdigest()[:16]}.jsonl"
    if not path.exists():
        make_directory(directory)
        write_atomic(path, lines)
    return path


def _rows(given: Any) -> Iterator[dict[str, Any]]:
    """The rows of a frame or an iterable; empty cells are left out."""
    if hasattr(given, "__arrow_c_stream__"):
        import pyarrow

        try:
            given = pyarrow.table(given).to_pylist()
        except pyarrow.ArrowException as error:
            raise DataError(f"the data frame cannot be read: {error}", cure="Give each column one type, such as text.") from error
    for number, row in enumerate(given if isinstance(given, Iterable) else [given], 1):
        if not isinstance(row, Mapping):
            raise DataError(f"row {number} is no dictionary", cure='Give rows such as {"id": "1", "text": "..."}, a data frame, or a path.')
        yield {name: value for name, value in row.items() if value is not None and value == value}
