"""``realm verify`` and ``realm repair``: read all of a run or a corpus, compare it with its checksums, rebuild what is derived.

Derived are the index and its parameters, look-up files and ``CURRENT``. All else is named with its place and its cure."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from realm.documents.spans.specs import corpus_tagger
from realm.documents.store import manifest as manifests
from realm.documents.store.manifest import CorpusManifest, SegmentInfo, damage, writer_lock
from realm.documents.store.segments import check_lookup, lookup_of, read_whole, write_lookup
from realm.documents.store.views import Segment
from realm.errors import CorpusError, RealmError, RunError
from realm.progress import Progress
from realm.recipe import load_recipe
from realm.runs.needed_index import NeededIndex
from realm.search.publishing.generation import read_through
from realm.search.publishing.parameters import publishing
from realm.search.sparse import SPARSE_DIRECTORY as SPARSE
from realm.storage import files, generations
from realm.storage.arrays import kept_array
from realm.storage.files import STAGING_SUFFIX, is_transient, json_value
from realm.storage.layout import CLEAR, DAMAGED, RunPaths, check_run_format, lost_files, require_run
from realm.storage.manifests import CHECKSUM, read_note, sealed_problems, unsealed
from realm.storage.metrics import MetricsLog
from realm.text.tokenizer import TextTokenizer
from realm.training.loop.checkpoint import checkpoint_problem, read_score

LOG = "Training does not use it; the report leaves out damaged parts"
ROUNDS = 3
"""Rounds of repair: ``CURRENT``, then look-up files, then the index of that corpus."""
REBUILD_CORPUS = "Build the corpus again from its sources"


@dataclass(frozen=True)
class Damage:
    """A damaged file or directory; ``cure`` is done by ``mend``, or by hand if that is None; ``documents``: affected ids, where known."""

    path: Path
    problem: str
    cure: str
    mend: Callable[[], object] | None = None
    documents: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """Facts for ``--json``."""
        said = {"path": str(self.path), "problem": self.problem, "cure": self.cure}
        return {**said, "repairable": self.mend is not None, "documents": list(self.documents)}


def verify(place: Path, progress: Progress) -> list[Damage]:
    """Read everything in a run or a corpus. Nothing is changed. Raises RunError: none is there."""
    if (place / manifests.CURRENT_FILE).exists() or any(place.glob("manifest-*.json")):
        return list(corpus_damage(place))
    if not place.is_dir() or not any((place / name).exists() for name in ("config.toml", "run.json", "stages", "corpus")):
        raise RunError("no run, corpus or datastore is here", path=place, cure="Name the directory of one.")
    return list(_run_damage(RunPaths(place), progress))


def repair(place: Path, progress: Progress, say: Callable[[str], None]) -> tuple[list[Damage], list[Damage]]:
    """Rebuild what can be; ``say`` gets a line for each. Returns what was rebuilt and what is left. Raises RealmError: none here, or in
    use."""
    mended: list[Damage] = []
    for _ in range(ROUNDS):
        found = verify(place, progress)
        if not any(one.mend for one in found):
            return mended, found
        for one in found:
            if one.mend is not None:
                say(f"{one.path}: {one.problem}; now: {one.cure}")
                one.mend()
                mended.append(one)
    return mended, verify(place, progress)


def put_aside(place: Path) -> list[str]:
    """Names of index generations that were moved aside as damaged and are no longer needed."""
    return sorted(path.name for path in (place / "index").glob(f"*{generations.QUARANTINE_SUFFIX}"))


def findings(
    check: Callable[[], object], path: Path, cure: str | None = None, mend: Callable[[], object] | None = None
) -> Iterator[Damage]:
    """The error that a check ends with, by default with its own cure."""
    try:
        check()
    except RealmError as error:
        yield Damage(error.path or path, error.problem, cure or error.cure or "", mend)
    except (OSError, ValueError) as error:
        yield Damage(path, f"damaged: {error}", cure or "", mend)


def corpus_damage(corpus: Path) -> Iterator[Damage]:
    """Read everything in a corpus directory. Nothing is changed."""
    try:
        manifest = manifests.read_manifest(corpus)
    except CorpusError as error:
        yield _without_manifest(corpus, error)
        return
    copied = f"Copy it from a stage of the same corpus. Without one: {REBUILD_CORPUS}"
    yield from findings(lambda: _check_tokenizer(corpus / manifests.TOKENIZER_DIRECTORY, manifest), corpus, copied)
    works = "Answers work without it; to add documents, build the corpus again from its sources"
    yield from findings(lambda: corpus_tagger(corpus, manifest), corpus / manifests.TAGGER_FILE, works)
    removed = f"The list of the {manifest.removed} removed blocks is stored nowhere else. {REBUILD_CORPUS}"
    yield from findings(lambda: manifests.read_tombstones(corpus, manifest), corpus, removed)
    for info in manifest.segments:
        yield from _segment(corpus, corpus / manifests.SEGMENTS_DIRECTORY / info.name, info)
    if (rejected := corpus / manifests.REJECTED_FILE).exists():
        yield from findings(lambda: _check_json(rejected), rejected, "No command reads it: remove it, or leave it")


def _without_manifest(corpus: Path, error: CorpusError) -> Damage:
    """``CURRENT`` or the manifest that it names cannot be read."""
    version = max((int(number) for path in corpus.glob("manifest-*.json") if (number := path.stem[9:]).isdigit()), default=0)
    try:
        if error.path and error.path.name > manifests.manifest_path(corpus, version).name:
            raise error  # CURRENT is whole and names a later one: what is left lacks later documents, and has those removed since
        manifest = manifests.read_manifest(corpus, version)
    except CorpusError as newest:
        return Damage(newest.path or corpus, newest.problem, f"The newest manifest is stored nowhere else. {REBUILD_CORPUS}")

    def point() -> None:
        with writer_lock(corpus):
            manifests.point_at(corpus, version)

    return Damage(error.path or corpus, error.problem, f"make version {version} with {manifest.documents} documents the current one", point)


def _check_tokenizer(directory: Path, manifest: CorpusManifest) -> None:
    for path, problem in sealed_problems(directory, damage("tokenizer")):
        raise CorpusError(problem, path=path)
    if TextTokenizer.load(directory).sha256 != manifest.tokenizer_sha256:
        raise CorpusError("it is not the one the corpus was built with", path=directory)


def _segment(corpus: Path, path: Path, info: SegmentInfo) -> Iterator[Damage]:
    """A segment that has changed, with the documents in its changed record batches where that can be told; or its look-up file."""
    try:
        problem = None if files.sha256_file(path) == info.sha256 else "changed since it was published (SHA-256 differs)"
    except OSError as error:
        problem = f"damaged segment: {error.strerror}"
    if problem is None:
        file, mend = lookup_of(path), partial(_make_lookup, corpus, path)
        yield from findings(partial(check_lookup, file, info.sums.documents), file, "rebuild it from its segment", mend)
        return
    affected: dict[str, None] = {}
    try:
        for view in Segment(path.parent, info).batches:
            if not view.is_whole():
                affected.update(dict.fromkeys(view.strings("doc_id")))
    except CorpusError:  # what says which documents they are has changed
        affected = {}
    what = "those documents" if affected else f"any of its {info.rows} blocks"
    yield Damage(path, problem, f"The text of {what} is stored nowhere else. {REBUILD_CORPUS}", documents=tuple(affected))


def _make_lookup(corpus: Path, path: Path) -> None:
    """Write the look-up file of a whole segment. Who has one open keeps it."""
    with writer_lock(corpus):
        lookup_of(path).unlink(missing_ok=True)
        reader = pa.ipc.open_file(pa.BufferReader(read_whole(path)))
        write_lookup(path, [reader.get_batch(number) for number in range(reader.num_record_batches)])
        files.fsync_tree(path.parent)


def _run_damage(paths: RunPaths, progress: Progress) -> Iterator[Damage]:
    cached = paths.wrapped.exists()
    again = CLEAR if cached else "Remove it: realm run writes it again"
    try:
        if cached and paths.config.exists():
            require_run(paths)
        if not check_run_format(paths) and paths.corpus.is_dir():
            yield Damage(paths.root / "run.json", "missing", CLEAR if cached else f"Write it again: realm run {paths.root}")
    except RunError as error:
        damaged = error.problem.startswith(("cannot be read", "damaged"))
        yield Damage(error.path or paths.root, error.problem, again if damaged else error.cure or "")
    restored = CLEAR if cached else "Restore config.toml: its missing values are stored nowhere else"
    yield from findings(lambda: load_recipe(paths.config), paths.config, restored)
    for corpus in (paths.corpus, paths.sentences):
        if corpus.is_dir():
            yield from corpus_damage(corpus)
    for stage in sorted({*(paths.root / "stages").glob("*/")} - {*(paths.root / "stages").glob(f"*{STAGING_SUFFIX}/")}):
        yield from _stage(paths, stage)
    if paths.index.is_dir():
        yield from _index(paths, progress)
    for directory in sorted((paths.root / "checkpoints").glob("*/step-*[0-9]/")):
        if (problem := checkpoint_problem(directory)) is not None:
            yield Damage(directory, problem, "Remove it: an older one, or none, is used")
    for directory in sorted((paths.root / "checkpoints").glob("*/best-*[0-9]/")):
        yield from findings(partial(read_score, directory), directory)
    for path in lost_files(paths):
        by = f"Write it again: realm {'demo --dir' if path.stem in ('claims', 'explanation') else 'run'} {paths.root}"
        yield Damage(path, "missing", f"{LOG}. Restore it, or put an empty file there" if path == paths.metrics else by)
    for path in sorted({*paths.root.glob("*.json"), *paths.results.glob("*.json")} - {paths.root / "run.json"}):
        derived = path.parent != paths.root or path.name == "seconds.json"
        yield from findings(partial(_check_json, path), path, again if derived else "Restore it; realm run rewrites it if needed")
    for path in sorted(paths.answers.glob("*.npy")):
        if kept_array(path) is None:
            problem = "damaged (it is not what the note beside it says)"
            yield Damage(path, problem, "remove it: the answers are located again", path.unlink)
    if rows := MetricsLog(paths.metrics).damaged():
        yield Damage(paths.metrics, f"{rows} damaged rows", LOG)


def _stage(paths: RunPaths, stage: Path) -> Iterator[Damage]:
    cure = f"These weights are stored nowhere else: restore them, or remove {stage} and the later stages, and run the recipe again"
    problems: list[tuple[Path, str]] = []
    yield from findings(lambda: problems.extend(sealed_problems(stage, DAMAGED)), stage, cure)
    for path, problem in problems:
        others = {"README.md": "No command reads it: restore it, or leave it"}
        if path.name.startswith("tokenizer"):
            others[path.name] = f"Copy it from {paths.corpus / manifests.TOKENIZER_DIRECTORY} or another stage"
        yield Damage(path, problem, others.get(path.name, cure))


def _index(paths: RunPaths, progress: Progress) -> Iterator[Damage]:
    try:
        needed = NeededIndex.of(paths)
    except RealmError:  # said above; the index is looked at when that is mended
        yield Damage(paths.index, "not read: it needs the recipe, the corpus and the last stage", "Mend these first")
        return
    if needed is None:
        return
    numbers, current = generations.generation_numbers(paths.index), generations.read_current(paths.index)
    begun = needed.number is None and "asked" not in (read_note(paths.wrapped) or {})  # the first one may not be published yet
    if len(numbers) > begun and current is None:
        newest = next((one for one in reversed(numbers) if not read_through(paths, needed.inputs, one)[1]), needed.number) or 0

        def point() -> None:
            with publishing(paths.index):
                generations.advance_current(paths.index, newest)

        cure = f"make generation {newest} the current one" if newest else "No generation can be read. Run: realm index build RUN"
        problem, mend = "missing or not a number: the published generation is unknown", point if newest else None
        yield Damage(paths.index / generations.CURRENT, problem, cure, mend)
        return
    published = generations.published_generations(paths.index)
    missing = [] if needed.number is None or needed.number in published else [needed.number]
    for number in (*published, *missing):
        yield from _generation(needed, number, progress)


def _generation(needed: NeededIndex, number: int, progress: Progress) -> Iterator[Damage]:
    path = generations.generation_path(needed.paths.index, number)
    for error in read_through(needed.paths, needed.inputs, number)[1]:
        if is_transient(error):
            raise error
        place, problem = error.path or path, error.problem
        if SPARSE in place.parts:
            mend = partial(shutil.rmtree, path / SPARSE, ignore_errors=True)
            yield Damage(place, problem, "remove the sparse index: the next search rebuilds it", mend)
        elif number != needed.number:
            yield Damage(place, problem, f"No stage searches this generation: remove {path}")
        else:
            if not path.is_dir():
                place, problem = path, "the generation that the last stage searches is missing"
            lost = "Its parameters are damaged too. Remove the stages from the damaged one on and run: realm run RECIPE --out"
            cached = needed.paths.wrapped.exists()
            whole = not cached and needed.can_be_rebuilt()
            cure = f"rebuild it, as generation {number}" if whole else f"{lost} {needed.paths.root}"
            cure = CLEAR if cached else cure
            yield Damage(place, problem, cure, partial(needed.rebuild, progress) if whole else None)


def _check_json(path: Path) -> None:
    """Read JSON, which may have a checksum over itself, or lines of it. Raises ValueError, OSError, RunError: it is damaged."""
    data = path.read_bytes()
    if path.suffix == ".jsonl":
        for line in data.splitlines():
            json_value(line)
    elif isinstance(value := json_value(data), dict) and CHECKSUM in value:
        unsealed(value, DAMAGED, path)
