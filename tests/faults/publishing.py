"""What this package publishes, each as a small example: how it is made, how it is changed, how it is read."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from realm.corpus.build.builder import build_corpus
from realm.corpus.change.compaction import compact_corpus, tidy_corpus
from realm.corpus.change.updates import add_documents, remove_documents, sync_documents, update_documents
from realm.corpus.store.blocks import BlockStore
from realm.corpus.store.manifest import current_version
from realm.errors import RealmError
from realm.index.delta import append_delta, merge_shards
from realm.index.manifest import SnapshotFacts
from realm.index.snapshot import Snapshot, publish_snapshot
from realm.nn.model import RealmModel, state_sha256
from realm.nn.spec import BodySpec, bert_spec, one_body
from realm.paths import RunPaths
from realm.pipeline.mending import corpus_damage
from realm.recipes.context import is_published, publish_stage
from realm.refresh.locks import publishing
from realm.refresh.parameters import forget_requests, parameters_path, prune_run, publish_parameters, read_facts, request_index
from realm.stages import DAMAGED, stage_facts
from realm.storage import tails
from realm.storage.arrays import load_array, publish_array
from realm.storage.files import publish_directory, publish_file, remove_staging, write_atomic, write_json
from realm.storage.generations import CURRENT, advance_current, current_generation, published_generations
from realm.storage.manifests import Errors, read_sealed, write_sealed
from realm.storage.sealed import check_sealed, is_sealed, seal
from realm.train.best import BestWeights, shared_best
from realm.train.checkpoint import CheckpointDirectory
from realm.train.metrics import MetricsLog

ERRORS = Errors(RealmError, RealmError)
OWNER = {"corpus_id": "corpus-a", "tokenizer_sha256": "tok-a", "document_embedder_sha256": "emb-a"}
IDS = np.arange(10, 22, dtype=np.int64)
HALF_WRITTEN = (".staging", ".building", ".removed", ".link")


@dataclass(frozen=True)
class Example:
    """One thing that is published.

    Attributes:
        prepare: makes the old state in a directory that is there and empty.
        change: publishes the new one.
        read: what a reader finds; equal for equal states, and anything else, an error included, is a loss.
        promised: what must hold besides once the call has returned.
        follow: what is done next in such a directory; afterwards nothing half-written may be left.
    """

    prepare: Callable[[Path], object]
    change: Callable[[Path], object]
    read: Callable[[Path], Any]
    promised: Callable[[Path], bool] = lambda root: True
    follow: Callable[[Path], object] | None = None


def left_over(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.name.endswith(HALF_WRITTEN)}


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.name.startswith("LOCK")
    }


# Files and directories.


def _file(write: Callable[[Path, str], object], read: Callable[[Path], Any], name: str = "new/deep/file") -> dict[str, Example]:
    """The same file published first, into directories that are not there yet, and then again."""
    return {
        "first": Example(lambda root: None, lambda root: write(root / name, "new"), lambda root: _none(read, root / name)),
        "again": Example(lambda root: write(root / name, "old"), lambda root: write(root / name, "new"), lambda root: read(root / name)),
    }


def _none(read: Callable[[Path], Any], path: Path) -> Any:
    return read(path) if path.exists() else None


def _publish_file(path: Path, text: str) -> None:
    with publish_file(path) as file:
        file.write(text.encode() * 1000)


def _publish_directory(path: Path, text: str) -> None:
    with publish_directory(path) as staging:
        (staging / "in" / "deep").mkdir(parents=True)
        (staging / "in" / "deep" / "a").write_text(text * 1000)
        (staging / "b").write_text(text)
        seal(staging)


def _read_directory(path: Path) -> Any:
    if not path.exists():
        return None
    check_sealed(path, DAMAGED)
    return is_sealed(path), tree(path)


# A corpus.


def corpus_of(directory: Path) -> Path:
    """Version 3 of a corpus of two segments and a tombstone, and the sources of changes beside it."""

    def rows(numbers: range, text: str = "The pound sterling was used in city {0}. Bread is baked in city {0} each day.") -> list[dict]:
        return [{"id": f"doc-{n}", "title": f"City {n}", "text": text.format(n) * (1 + n % 3)} for n in numbers]

    sources = {"a": rows(range(5)), "b": rows(range(5, 7)), "c": rows(range(7, 10))}
    sources["u"] = rows(range(0, 7, 6), "All is new in city {0} today.")
    for name, found in sources.items():
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    corpus = directory / "corpus"
    build_corpus([directory / "a.jsonl"], corpus, vocab_size=200, block_length=48, workers=1)
    add_documents(corpus, [directory / "b.jsonl"], workers=1)
    remove_documents(corpus, ["doc-1"])
    return corpus


def content(corpus: Path) -> list[tuple[int, str, str]]:
    store = BlockStore.open(corpus)
    blocks = [store.block(row) for row in range(len(store)) if store.live[row]]
    return [(block.block_id, block.doc_id, block.text) for block in blocks]


def _read_corpus(corpus: Path) -> Any:
    return current_version(corpus), content(corpus), [(found.path.name, found.problem) for found in corpus_damage(corpus)]


def _corpus_changes(made: Path) -> dict[str, Example]:
    sources = {name: made.parent / f"{name}.jsonl" for name in "abcu"}

    def one(change: Callable[[Path], object], promised: Callable[[Path], bool] = lambda root: True) -> Example:
        def follow(corpus: Path) -> None:
            remove_documents(corpus, ["doc-2"])
            compact_corpus(corpus, purge=True)

        return Example(lambda corpus: shutil.copytree(made, corpus, dirs_exist_ok=True), change, _read_corpus, promised, follow)

    return {
        "add": one(lambda corpus: add_documents(corpus, [sources["c"]], workers=1)),
        "update": one(lambda corpus: update_documents(corpus, [sources["u"]], workers=1)),
        "sync": one(lambda corpus: sync_documents(corpus, [sources["a"], sources["c"]], workers=1)),
        "remove": one(lambda corpus: remove_documents(corpus, ["doc-0", "doc-6"])),
        "compact": one(lambda corpus: compact_corpus(corpus)),
        "purge": one(lambda corpus: compact_corpus(corpus, purge=True), _nothing_removed_is_left),
        "tidy": one(lambda corpus: tidy_corpus(corpus)),
    }


def _nothing_removed_is_left(corpus: Path) -> bool:
    return all(b"city 1 " not in path.read_bytes() for path in corpus.rglob("*") if path.is_file())


def _build(source: Path) -> Example:
    def build(root: Path) -> None:
        if not (root / "deep" / "corpus").exists():
            build_corpus([source], root / "deep" / "corpus", vocab_size=200, block_length=48, workers=1)

    def read(root: Path) -> Any:
        corpus = root / "deep" / "corpus"
        return (*_read_corpus(corpus), tree(corpus)) if corpus.exists() else None

    return Example(lambda root: None, build, read, follow=lambda root: remove_documents(root / "deep" / "corpus", ["doc-2"]))


# An index and its parameters.


def vectors(generation: int, ids: np.ndarray) -> np.ndarray:
    """(generation, block id, 1, 0): rows that tell where they came from."""
    rows = np.zeros((len(ids), 4), np.float32)
    rows[:, 0], rows[:, 1], rows[:, 2] = generation, ids, 1
    return rows


def _generation(index: Path, number: int) -> None:
    def parts(start: int) -> Iterator[np.ndarray]:
        for at in range(start, len(IDS), 5):
            yield vectors(number, IDS[at : at + 5])

    facts = SnapshotFacts(params_generation=number, step=10 * number, corpus_version=1, **OWNER)
    publish_snapshot(index, parts, IDS, facts, generation=number)


def _next_generation(root: Path) -> None:
    with publishing(root / "index"):
        _generation(root / "index", 1 + (current_generation(root / "index") or 0))


def _delta(root: Path) -> None:
    added = np.arange(100, 103, dtype=np.int64)
    with publishing(root / "index"):
        number = current_generation(root / "index") or 0
        append_delta(root / "index", number, vectors(number, added), added, corpus_version=2)


def _small_deltas(root: Path) -> None:
    _next_generation(root)
    for first in range(100, 104):
        added = np.arange(first, first + 1, dtype=np.int64)
        append_delta(root / "index", 1, vectors(1, added), added, corpus_version=2)


def _merge(root: Path) -> None:
    before, tails.MOST_SMALL = tails.MOST_SMALL, 2
    try:
        with publishing(root / "index"):
            merge_shards(root / "index", 1)
    finally:
        tails.MOST_SMALL = before


def _read_index(root: Path) -> Any:
    if current_generation(root / "index") is None:
        return None
    snapshot = Snapshot.open(root / "index", **OWNER)
    shards = [shard.file for shard in snapshot.manifest.shards]
    found = snapshot.manifest.generation, snapshot.manifest.revision, snapshot.block_ids.tolist(), snapshot.vectors.tolist(), shards
    return (*found, [path.name for path in (root / "index").glob("*.quarantined")])


def _prune(root: Path) -> None:
    with publishing(root / "index"):
        prune_run(RunPaths(root), frozenset())


def network(seed: int) -> RealmModel:
    torch.manual_seed(seed)
    sizes = {"hidden": 8, "layers": 1, "heads": 1, "intermediate": 8}
    body = bert_spec(vocab_size=20, max_length=16, dropout=0.0, attention_dropout=0.0, **sizes)
    return RealmModel(one_body(BodySpec(body.config), projection=8))


def _read_parameters(root: Path) -> Any:
    directory = parameters_path(RunPaths(root), 1)
    if not directory.exists():
        return None
    facts = read_facts(directory)
    assert facts is not None and state_sha256(RealmModel.from_pretrained(directory)) == facts.sha256
    return facts


def _read_requests(root: Path) -> Any:
    """The newest request, whole; an older one may still be there."""
    found = [number for number in (2, 1) if parameters_path(RunPaths(root), number).exists()]
    facts = [read_facts(parameters_path(RunPaths(root), number)) for number in found]
    if found:
        RealmModel.from_pretrained(parameters_path(RunPaths(root), found[0]))
    return None if not found else (found[0], facts[0])


# What a training run keeps.


def _context(root: Path) -> Any:
    """As much of a run as publishing a stage needs."""
    tokenizer = SimpleNamespace(save=lambda directory: write_atomic(directory / "tokenizer.json", "{}"))
    return cast(Any, SimpleNamespace(paths=RunPaths(root), store=SimpleNamespace(tokenizer=tokenizer)))


def _stage(root: Path) -> None:
    publish_stage(_context(root), "warm", network(1), "mark", {"steps": 1})


def _asked_for_again(root: Path) -> None:
    """Checkpoints have served when the stage is there."""
    assert is_published(_context(root), "warm", "mark") and not RunPaths(root).checkpoints("warm").exists()


def _read_stage(root: Path) -> Any:
    """The stage, or the checkpoints that it is trained on from."""
    paths = RunPaths(root)
    if paths.stage("warm").exists():
        check_sealed(paths.stage("warm"), DAMAGED)
        return stage_facts(paths, "warm"), state_sha256(RealmModel.from_pretrained(paths.stage("warm")))
    return _read_checkpoint(root)


def _checkpoint(root: Path, step: int) -> None:
    module, optimizer = _trained(step)
    MetricsLog(RunPaths(root).metrics).write("warm", step, loss=1.0 / step)
    log = MetricsLog(RunPaths(root).metrics)
    log.sync()
    CheckpointDirectory(RunPaths(root).checkpoints("warm"), fingerprint="f").save(step, module, optimizer, {"rows": log.count("warm")})


def _trained(step: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(step)
    module = nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.ones(3)).sum().backward()
    optimizer.step()
    return module, optimizer


def _read_checkpoint(root: Path) -> Any:
    """What a run goes on with: the newest checkpoint that is whole, and the rows of the log before it."""
    module, optimizer = _trained(99)
    restored = CheckpointDirectory(RunPaths(root).checkpoints("warm"), fingerprint="f").restore(module, optimizer)
    if restored is None:
        return None
    log = MetricsLog(RunPaths(root).metrics)
    log.rewind("warm", restored.extra["rows"])
    assert log.count("warm") == restored.extra["rows"], "rows that the checkpoint knows are gone"
    return restored.step, [parameter.tolist() for parameter in module.parameters()]


def _best(root: Path, step: int, score: float) -> None:
    best = BestWeights(root)
    best.offer(step, score, _trained(step)[0])


def _read_best(root: Path) -> Any:
    found = shared_best(root)
    return None if found is None else (found[0], found[1], found[2].stat().st_size)


def examples(corpus: Path) -> dict[str, Example]:
    """All of them.

    Args:
        corpus: of ``corpus_of``.
    """
    checkpoints = lambda root, *steps: [_checkpoint(root, step) for step in steps]  # noqa: E731
    found = {f"file {name}": example for name, example in _file(_publish_file, Path.read_bytes).items()}
    found |= {f"text {name}": example for name, example in _file(write_atomic, Path.read_text, "file").items()}
    found |= {f"json {name}": example for name, example in _file(write_json, lambda path: json.loads(path.read_text())).items()}
    sealed_file = _file(lambda path, text: write_sealed(path, {"a": text}), lambda path: read_sealed(path, ERRORS))
    found |= {f"sealed {name}": example for name, example in sealed_file.items()}
    arrays = _file(
        lambda path, text: publish_array(path, np.full(999, len(text) + ord(text[0]))), lambda path: load_array(path).tolist(), "a"
    )
    found |= {f"array {name}": example for name, example in arrays.items()}
    found["directory"] = Example(
        lambda root: None,
        lambda root: _publish_directory(root / "deep" / "new", "text"),
        lambda root: _read_directory(root / "deep" / "new"),
        follow=lambda root: (
            _publish_directory(root / "deep" / "new", "x") if not (root / "deep" / "new").exists() else remove_staging(root / "deep")
        ),
    )
    found |= {f"corpus {name}": example for name, example in _corpus_changes(corpus).items()}
    found["corpus build"] = _build(corpus.parent / "a.jsonl")
    index = RunPaths(Path()).index.name
    found["current"] = Example(
        lambda root: [(root / f"00000{n}").mkdir() for n in (1, 2)] + [advance_current(root, 1)],
        lambda root: advance_current(root, 2),
        lambda root: (current_generation(root), (root / CURRENT).read_text()),
    )
    found["index first"] = Example(lambda root: None, _next_generation, _read_index, follow=_next_generation)
    found["index next"] = Example(_next_generation, _next_generation, _read_index, follow=_next_generation)
    found["index delta"] = Example(_next_generation, _delta, _read_index, follow=_next_generation)
    found["index merge"] = Example(_small_deltas, _merge, _read_index, follow=_next_generation)
    found["index prune"] = Example(
        lambda root: [_next_generation(root) for _ in range(5)],
        _prune,
        _read_index,
        promised=lambda root: len(published_generations(root / index)) == 3,
        follow=_next_generation,
    )
    found["parameters"] = Example(
        lambda root: None,
        lambda root: publish_parameters(network(0), parameters_path(RunPaths(root), 1), step=3),
        _read_parameters,
        follow=lambda root: forget_requests(RunPaths(root), 0),
    )
    found["request"] = Example(
        lambda root: request_index(network(0), RunPaths(root), 1),
        lambda root: request_index(network(1), RunPaths(root), 2),
        _read_requests,
        follow=lambda root: forget_requests(RunPaths(root), 0),
    )
    found["checkpoint"] = Example(
        lambda root: checkpoints(root, 1, 2, 3),
        lambda root: _checkpoint(root, 4),
        _read_checkpoint,
        follow=lambda root: _checkpoint(root, 5),
    )
    found["first checkpoint"] = Example(
        lambda root: RunPaths(root).checkpoints("warm").mkdir(parents=True), lambda root: _checkpoint(root, 4), _read_checkpoint
    )
    found["best weights"] = Example(lambda root: _best(root, 1, 0.5), lambda root: _best(root, 2, 0.7), _read_best)
    found["stage"] = Example(lambda root: checkpoints(root, 1, 2), _stage, _read_stage, follow=_asked_for_again)
    found["rewound log"] = Example(
        lambda root: [MetricsLog(root / "log").write("warm", step, a=step) for step in range(3)],
        lambda root: MetricsLog(root / "log").rewind("warm", 1),
        lambda root: [row["step"] for row in MetricsLog(root / "log").rows()],
    )
    return found
