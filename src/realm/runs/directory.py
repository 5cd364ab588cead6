"""The run directory: its recipe, its format, its corpus, the seconds spent. What was trained is never mixed with another recipe."""

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from realm.documents.sources.reading import files_of, what_changes
from realm.documents.store.manifest import given_corpus
from realm.errors import ConfigError, CorpusError, RunError
from realm.models.bodies.known import body_directory
from realm.progress import Progress
from realm.recipe import Recipe, dump_recipe, load_recipe
from realm.storage.files import file_sum, make_directory, read_json, remove_staging, sha256_file, write_atomic, write_json
from realm.storage.layout import CONFIG_SUM, STAGE_SECTIONS, RunPaths, check_run_format, list_files, write_run_format
from realm.storage.locks import held
from realm.storage.processes import place
from realm.text.tokenizer import TextTokenizer, read_tokenizer

FREE_RUN_KEYS = ("device", "threads", "accumulate", "checkpoint_every")
"""Keys of [run] that may change at any time: where and how fast it runs and who sees it, not what is learnt (but for last bits)."""
FILE_KEYS = (
    ("corpus", "sources"),
    ("corpus", "gazetteer"),
    ("corpus", "templates"),
    ("pretrain", "sentences"),
    ("finetune", "train"),
    ("finetune", "dev"),
)
OTHER_DIRECTORY = "Give another directory with --out, or the same recipe."


def claim_run(paths: RunPaths, recipe: Recipe) -> None:
    """Make the run directory this recipe's, or check that it is. A section may change as long as nothing was built from it.

    Raises RunError: it belongs to another recipe or version, or is no directory; nothing is touched."""
    if paths.root.exists() and not paths.root.is_dir():
        raise RunError("a file is here, not a run directory", path=paths.root, cure="Give another directory with --out.")
    known = check_run_format(paths)
    if paths.config.exists():
        _check_same(paths, recipe)
    text = dump_recipe(recipe)
    if not paths.config.exists() or paths.config.read_text("utf-8") != text:
        write_atomic(paths.config, text)
    if known.get(CONFIG_SUM) != file_sum(paths.config):
        from realm import __version__

        write_run_format(paths, __version__)
    list_files(paths)


@contextmanager
def alone(root: Path, cure: str) -> Iterator[None]:
    """Hold a directory on the first rank. Raises RunError: another process trains there, or a file is in its place."""

    def hold() -> None:
        if root.exists() and not root.is_dir():
            raise RunError("a file is here, not a directory", path=root, cure="Give another directory with --out.")
        make_directory(root)
        stack.enter_context(held(root, lambda named: RunError(f"another process{named} trains here", path=root, cure=cure)))
        remove_staging(root)

    from realm.training.loop.distributed import on_first

    with ExitStack() as stack:
        on_first(hold)
        yield


def _check_same(paths: RunPaths, recipe: Recipe) -> None:
    try:
        old = load_recipe(paths.config)
    except ConfigError as error:
        raise RunError(f"not this version's recipe: {error.problem}", path=paths.config, cure=OTHER_DIRECTORY) from error
    for section in sorted(_used_sections(paths)):
        before, now = (dataclasses.asdict(getattr(r, section)) for r in (old, recipe))
        for key, value in before.items():
            if now[key] != value and not (section == "run" and key in FREE_RUN_KEYS) and not _moved(section, key, value, now[key]):
                problem = f"this run was made with {section}.{key} = {value!r}, the recipe says {now[key]!r}"
                raise RunError(problem, path=paths.config, cure=_cure(paths, section))


def _cure(paths: RunPaths, section: str) -> str:
    """Cure for a differing section; if only fine-tuning used it, only that is repeated."""
    if section != "finetune":
        return OTHER_DIRECTORY
    made = [kind(stage) for stage, used in STAGE_SECTIONS.items() if section in used for kind in (paths.stage, paths.checkpoints)]
    shown = ", ".join(str(path.relative_to(paths.root)) for path in made if path.exists())
    return f"{OTHER_DIRECTORY.rstrip('.')}; or remove {shown} here to train only that again."


def _moved(section: str, key: str, before: Any, now: Any) -> bool:
    """Tell whether files of the same names lie elsewhere: a run may move. Contents are compared on their own."""
    if (section, key) not in FILE_KEYS or not before or not now:
        return False
    names = [[Path(value).name for value in ((one,) if isinstance(one, str) else one)] for one in (before, now)]
    return names[0] == names[1]


def _used_sections(paths: RunPaths) -> set[str]:
    """Sections that something in the run was made from."""
    used = {"corpus"} if paths.corpus.exists() else set()
    for stage, sections in STAGE_SECTIONS.items():
        if paths.stage(stage).exists() or paths.checkpoints(stage).exists():
            used |= {"corpus", "run", "model", *sections}
    return used


def build_run_corpus(paths: RunPaths, recipe: Recipe, progress: Progress, whole_rows: bool = False) -> bool:
    """Build the run's corpora, those of masked sentences included, or check their sources. Returns whether one was built.

    ``whole_rows`` as in ``SourceOptions``. Raises ConfigError: no sources; CorpusError: they changed after the corpus was built, or nothing
    in them is usable."""
    sources = [Path(source) for source in recipe.corpus.sources]
    built = _build(paths.corpus, paths.root / "sources.json", sources, recipe, _tokenizer(recipe), progress, whole_rows)
    named = recipe.pretrain.sentences
    if named and given_corpus(named) is None:
        mark = paths.root / "sentences.json"
        built |= _build(paths.sentences, mark, [Path(name) for name in named], recipe, paths.corpus, progress)
    return built


def _tokenizer(recipe: Recipe) -> TextTokenizer | str | None:
    """The recipe's tokenizer: its own, or that of its body; None where one is trained on the documents."""
    if recipe.corpus.tokenizer or not recipe.model.body:
        return recipe.corpus.tokenizer or None
    return read_tokenizer(body_directory(recipe.model.body))


def _build(
    corpus: Path, mark: Path, sources: list[Path], recipe: Recipe, tokenizer: Any, progress: Progress, whole_rows: bool = False
) -> bool:
    """One corpus from its sources, with what the recipe says of documents; ``mark`` remembers what was in them."""
    from realm.documents.ingest.builder import BuildOptions, build_corpus
    from realm.documents.ingest.staging import remove_finished
    from realm.documents.sources import SourceOptions

    if corpus.exists():
        remove_finished(corpus)
        _check_sources(mark, sources, corpus)
        return False
    if not sources:
        config = mark.with_name("config.toml")
        raise ConfigError("no documents: [corpus] sources is empty", path=config, cure="Name files or folders of documents.")
    section = recipe.corpus
    options = BuildOptions(
        tokenizer=tokenizer,
        vocab_size=section.vocab_size,
        lowercase=section.lowercase,
        block_length=section.block_length,
        tagger=section.tagger,
        gazetteer=Path(section.gazetteer) if section.gazetteer else None,
        source_options=SourceOptions.of(
            section.format,
            section.id_column,
            section.title_column,
            section.text_column,
            section.templates,
            document_seconds=section.document_seconds,
            whole_rows=whole_rows,
        ),
    )
    # Before the corpus: a process that is killed leaves none without its mark.
    write_json(mark, _marks([source for source in sources if source.exists()]))
    build_corpus(sources, corpus, options, progress=progress.counting(corpus.name))
    return True


def _check_sources(mark: Path, sources: list[Path], corpus: Path) -> None:
    """Compare sizes and times, and contents where those changed. Missing sources are no reason to stop: the corpus exists."""
    known = read_json(mark)
    if known is None:
        return  # built by hand: what is there is taken
    here = [source for source in sources if source.exists()]
    if len(here) < len(sources) or known["stat"] == stat_digest(here):
        return
    now = _marks(here)
    if now["content"] != known["content"]:
        cure = "Give another directory with --out, or add documents with: realm corpus add"
        raise CorpusError("the sources have changed since this corpus was built", path=corpus, cure=cure)
    write_json(mark, now)


def stat_digest(sources: list[Path]) -> str:
    """SHA-256 over names, sizes, times and inodes of all files of the sources: what changes when one of them does, without reading any."""
    rows = [[os.fspath(path), *what_changes(path)] for source in sources for path in files_of(source)]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _marks(sources: list[Path]) -> dict[str, str]:
    content = hashlib.sha256("".join(sha256_file(path) for source in sources for path in files_of(source)).encode()).hexdigest()
    return {"stat": stat_digest(sources), "content": content}


def read_seconds(paths: RunPaths) -> dict[str, float]:
    """Seconds spent in each stage, over all starts that were not killed outright."""
    return read_json(paths.root / "seconds.json") or {}


@contextmanager
def timed(paths: RunPaths, stage: str) -> Iterator[None]:
    """Add the block's time on the first rank to a stage's seconds."""
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds = read_seconds(paths)
        seconds[stage] = round(seconds.get(stage, 0.0) + time.perf_counter() - started, 2)
        if place().first:
            write_json(paths.root / "seconds.json", seconds)
