"""What this package publishes, each as a small example: how it is made, how it is changed, how it is read."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from changes import CHANGES
from small import flip, tree
from torch import nn

from realm.answering.opening import open_run
from realm.documents.change.compaction import compact_corpus
from realm.documents.change.updates import remove_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.store.blocks import BlockStore
from realm.documents.store.manifest import current_version
from realm.errors import RealmError
from realm.models.model import RealmModel, state_sha256
from realm.models.spec import BodySpec, bert_spec, one_body
from realm.progress import Progress
from realm.runs import mending
from realm.search.index.exact import ExactIndex
from realm.search.publishing import parameters
from realm.search.publishing.parameters import parameters_path, publishing
from realm.search.publishing.snapshot import Snapshot, SnapshotFacts
from realm.search.publishing.writing import append_delta, merge_shards, publish_snapshot
from realm.storage import generations
from realm.storage.arrays import load_array, publish_array
from realm.storage.files import publish_directory, remove_staging, write_atomic
from realm.storage.generations import CURRENT, advance_current, current_generation, next_generation, published_generations, read_current
from realm.storage.layout import DAMAGED, RunPaths, stage_facts
from realm.storage.manifests import Errors, check_sealed, is_sealed, read_sealed, seal, write_sealed
from realm.storage.metrics import MetricsLog
from realm.training.context import is_published, publish_stage
from realm.training.loop.checkpoint import BestWeights, CheckpointDirectory, shared_best

ERRORS = Errors(RealmError, RealmError)
OWNER = {"corpus_id": "corpus-a", "tokenizer_sha256": "tok-a", "document_embedder_sha256": "emb-a"}
IDS = np.arange(10, 22, dtype=np.int64)
QUESTION = "What is the currency of Arvad?"
GENERATION_FILES = {"manifest.json", *(f"{what}-0000{number}.npy" for what in ("vectors", "block_ids") for number in (0, 1))}
CORPUS_FILES = {"CURRENT", "LOCK", "rejected.jsonl", "segments", "tagger.json", "tokenizer"}
HALF_WRITTEN = (".staging", ".building", ".removed", ".link")


@dataclass(frozen=True)
class Example:
    """One thing that is published.

    Attributes:
        prepare: makes the old state in a directory that is there and empty.
        change: publishes the new one.
        read: what a reader finds; equal for equal states, and anything else, an error included, is a loss.
        promised: what must hold besides once the call has returned.
        follow: what is done next in such a directory; afterwards nothing half-written may be left."""

    prepare: Callable[[Path], object]
    change: Callable[[Path], object]
    read: Callable[[Path], Any]
    promised: Callable[[Path], bool] = lambda root: True
    follow: Callable[[Path], object] | None = None


def left_over(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.name.endswith(HALF_WRITTEN)}


# Files and directories.


def _files(place: str, write: Callable[[Path, str], object], read: Callable[[Path], Any]) -> dict[str, Example]:
    """The same file published first, into directories that are not there yet, and then again."""
    return {
        "first": Example(lambda root: None, lambda root: write(root / place, "new"), lambda root: _if_there(read, root / place)),
        "again": Example(lambda root: write(root / place, "old"), lambda root: write(root / place, "new"), lambda root: read(root / place)),
    }


def _if_there(read: Callable[[Path], Any], path: Path) -> Any:
    return read(path) if path.exists() else None


def _publish_directory(path: Path, text: str) -> None:
    if not path.exists():
        with publish_directory(path) as staging:
            (staging / "in" / "deep").mkdir(parents=True)
            (staging / "in" / "deep" / "a").write_text(text * 1000)
            (staging / "b").write_text(text)
            seal(staging)
    remove_staging(path.parent)


def _read_directory(path: Path) -> Any:
    check_sealed(path, DAMAGED)
    return is_sealed(path), tree(path)


# A corpus.


def content(corpus: Path) -> list[tuple[int, str, str]]:
    store = BlockStore.open(corpus)
    blocks = [store.block(row) for row in range(len(store)) if store.live[row]]
    return [(block.block_id, block.doc_id, block.text) for block in blocks]


def _read_corpus(corpus: Path) -> Any:
    return current_version(corpus), content(corpus), [(found.path.name, found.problem) for found in mending.corpus_damage(corpus)]


def _corpus_changes(made: Path) -> dict[str, Example]:
    def follow(corpus: Path) -> None:
        remove_documents(corpus, ["doc-2"])
        version = compact_corpus(corpus, purge=True).version
        assert {path.name for path in corpus.iterdir()} == {*CORPUS_FILES, f"manifest-{version:06d}.json"}
        assert len(list((corpus / "segments").iterdir())) == 2

    def prepare(corpus: Path) -> None:
        shutil.copytree(made, corpus, dirs_exist_ok=True)

    promised = {"purge": _nothing_removed_is_left}
    return {
        name: Example(prepare, partial(change, at=made.parent), _read_corpus, promised.get(name, lambda root: True), follow)
        for name, change in CHANGES.items()
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


def next_generation_of(root: Path) -> None:
    with publishing(root / "index"):
        _generation(root / "index", 1 + (current_generation(root / "index") or 0))


def _delta(root: Path) -> None:
    added = np.arange(100, 103, dtype=np.int64)
    with publishing(root / "index"):
        number = current_generation(root / "index") or 0
        append_delta(root / "index", number, lambda done: [vectors(number, added)[done:]], added, 2, ())


def _small_deltas(root: Path) -> None:
    next_generation_of(root)
    for first in range(100, 104):
        added = np.arange(first, first + 1, dtype=np.int64)
        append_delta(root / "index", 1, lambda done, added=added: [vectors(1, added)[done:]], added, 2, ())


def _merge(root: Path) -> None:
    before, generations.MAX_SMALL_FILES = generations.MAX_SMALL_FILES, 2
    try:
        with publishing(root / "index"):
            merge_shards(root / "index", 1)
    finally:
        generations.MAX_SMALL_FILES = before


def _read_index(root: Path) -> Any:
    if current_generation(root / "index") is None:
        return None
    snapshot = Snapshot.open(root / "index", **OWNER)
    shards = [shard.file for shard in snapshot.manifest.shards]
    found = snapshot.manifest.generation, snapshot.manifest.revision, snapshot.block_ids.tolist(), snapshot.vectors.tolist(), shards
    return (*found, [path.name for path in (root / "index").glob("*.quarantined")])


def _two_generations_one_damaged(root: Path) -> None:
    next_generation_of(root)
    next_generation_of(root)
    flip(root / "index" / "000002" / "vectors-00000.npy")


def _prune(root: Path) -> None:
    with publishing(root / "index"):
        parameters.prune_run(RunPaths(root), frozenset())


def network(seed: int) -> RealmModel:
    torch.manual_seed(seed)
    sizes = {"hidden": 8, "layers": 1, "heads": 1, "intermediate": 8}
    body = bert_spec(vocab_size=20, max_length=16, dropout=0.0, attention_dropout=0.0, **sizes)
    return RealmModel(one_body(BodySpec(body.config), projection=8))


def _read_parameters(root: Path) -> Any:
    directory = parameters_path(RunPaths(root), 1)
    if not directory.exists():
        return None
    facts = parameters.read_facts(directory)
    assert facts is not None and state_sha256(RealmModel.from_pretrained(directory).documents) == facts.documents
    return facts


def _read_requests(root: Path) -> Any:
    found = [number for number in (2, 1) if parameters_path(RunPaths(root), number).exists()]
    facts = [parameters.read_facts(parameters_path(RunPaths(root), number)) for number in found]
    if found:
        RealmModel.from_pretrained(parameters_path(RunPaths(root), found[0]))
    return None if not found else (found[0], facts[0])


# What a training run keeps.


def _context(root: Path) -> Any:
    tokenizer = SimpleNamespace(save=lambda directory: write_atomic(directory / "tokenizer.json", "{}"))
    return cast(Any, SimpleNamespace(paths=RunPaths(root), store=SimpleNamespace(tokenizer=tokenizer)))


def _stage(root: Path) -> None:
    publish_stage(_context(root), "warm", network(1), "mark", {"steps": 1})


def _asked_for_again(root: Path) -> None:
    assert is_published(_context(root), "warm", "mark") and not RunPaths(root).checkpoints("warm").exists()


def _read_stage(root: Path) -> Any:
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


def _checkpoint_damaged(root: Path) -> None:
    _checkpoint(root, 1)
    _checkpoint(root, 2)
    flip(RunPaths(root).checkpoints("warm") / "step-0000002" / "weights.safetensors")


def _best(root: Path, step: int, score: float) -> None:
    BestWeights(root).offer(step, score, _trained(step)[0])


def _read_best(root: Path) -> Any:
    found = shared_best(root)
    return None if found is None else (found[0], found[1], found[2].stat().st_size)


# All that trainer and refresher of one run write, one after the other.


def round_of(root: Path) -> None:
    """Parameters, an index in parts, a delta, old ones deleted, a checkpoint, a row."""
    paths = RunPaths(root)
    _read_checkpoint(root)
    with publishing(paths.index):
        parameters.withdraw_requests(paths, above=0)
        number = next_generation(paths.index)
        parameters.publish_parameters(network(0), parameters_path(paths, number), step=1)
        _generation(paths.index, number)
        append_delta(paths.index, number, lambda done: [vectors(number, IDS[-3:] + 100)[done:]], IDS[-3:] + 100, 2, ())
        parameters.prune_run(paths, frozenset())
    _checkpoint(root, number)


def read_round(root: Path) -> None:
    """The newest generation is whole and unmixed, and the log is not ahead of it; a writer may publish in between."""
    number = read_current(root / "index")
    if number is not None:
        snapshot = Snapshot.open(root / "index", **OWNER)
        opened = snapshot.manifest.generation
        assert opened >= number, "an older generation was opened than was published"
        np.testing.assert_array_equal(snapshot.vectors, vectors(opened, snapshot.block_ids))
        hits = ExactIndex(snapshot.vectors, snapshot.block_ids).search(torch.eye(4)[:2], 5)
        assert hits.valid.all() and (hits.scores[0] == opened).all() and (hits.scores[1] == hits.ids[1]).all()
    rows = [row["step"] for row in MetricsLog(RunPaths(root).metrics).rows()]
    newest = read_current(root / "index") or 0
    assert rows == sorted(rows) and all(row <= newest for row in rows)


def _round_after(root: Path) -> None:
    round_of(root)
    kept = {f"{number:06d}" for number in published_generations(root / "index")}
    directories = {path.name for part in ("index", "params") for path in (root / part).iterdir() if path.is_dir()}
    assert directories == kept and len(kept) <= 3 and len(list(RunPaths(root).checkpoints("warm").iterdir())) <= 2
    assert all({path.name for path in (root / "index" / name).iterdir()} <= GENERATION_FILES for name in kept)


# A damaged run is repaired.


def _damaged(run: Path, root: Path) -> None:
    shutil.copytree(run, root, dirs_exist_ok=True)
    number = f"{read_current(root / 'index'):06d}"
    flip(root / "index" / number / "vectors-00000.npy")
    flip(root / "params" / number / "model.safetensors")
    for path in (root / "corpus" / "segments").glob("000001.*.npy"):
        flip(path)
    (root / "corpus" / "CURRENT").unlink()


def _repaired(root: Path) -> None:
    assert mending.repair(root, Progress(quiet=True), lambda _: None)[1] == []


def _intact(root: Path) -> dict[str, bytes]:
    """Weights, segments and tombstones: what nothing rebuilds, and nothing damages here."""
    paths = (*root.glob("stages/*/model.safetensors"), *root.glob("corpus/segments/*.arrow"), *root.glob("corpus/tombstones-*.npy"))
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def answers(run: Path) -> Any:
    """Probabilities to five digits: vectors that are rebuilt are computed in other batches."""
    found = open_run(run).answerer.answer([QUESTION], k=3)[0]
    return found.answer, [(one.doc_id, one.text, round(one.p_z, 5)) for one in found.evidence]


def _repair(run: Path) -> Example:
    expected = answers(run)

    def follow(root: Path) -> None:
        _repaired(root)
        assert answers(root) == expected and mending.verify(root, Progress(quiet=True)) == []
        for path in root.rglob("*.quarantined"):
            shutil.rmtree(path)

    return Example(lambda root: _damaged(run, root), _repaired, _intact, follow=follow)


def examples(corpus: Path, run: Path) -> dict[str, Example]:
    """All of them.

    Args:
        corpus: of ``corpus_of``.
        run: a trained one, whose corpus has changed and whose index has followed."""
    found = {
        f"file {name}": one for name, one in _files("new/deep/file", lambda p, text: write_atomic(p, text * 1000), Path.read_bytes).items()
    }
    sealed = _files("new/deep/file", lambda path, text: write_sealed(path, {"a": text}), lambda path: read_sealed(path, ERRORS))
    arrays = _files("a", lambda path, text: publish_array(path, np.full(999, ord(text[0]))), lambda path: load_array(path).tolist())
    found |= {"sealed again": sealed["again"]} | {f"array {name}": one for name, one in arrays.items()}
    found["directory"] = Example(
        lambda root: None,
        lambda root: _publish_directory(root / "deep" / "new", "text"),
        lambda root: _if_there(_read_directory, root / "deep" / "new"),
        follow=lambda root: _publish_directory(root / "deep" / "new", "text"),
    )
    found |= {f"corpus {name}": example for name, example in _corpus_changes(corpus).items()}
    found["corpus build"] = _build(corpus.parent / "a.jsonl")
    found["current"] = Example(
        lambda root: [(root / f"00000{n}").mkdir() for n in (1, 2)] + [advance_current(root, 1)],
        lambda root: advance_current(root, 2),
        lambda root: (current_generation(root), (root / CURRENT).read_text()),
    )
    indexes: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
        "first": (lambda root: None, next_generation_of), "next": (next_generation_of, next_generation_of),
        "delta": (next_generation_of, _delta), "merge": (_small_deltas, _merge),
        "damaged": (_two_generations_one_damaged, lambda root: Snapshot.open(root / "index", **OWNER)),
    }  # fmt: skip
    read = {"damaged": lambda root: Snapshot.open(root / "index", **OWNER).manifest.generation}
    found |= {f"index {name}": Example(*two, read.get(name, _read_index), follow=next_generation_of) for name, two in indexes.items()}
    found["index prune"] = Example(
        lambda root: [next_generation_of(root) for _ in range(5)],
        _prune,
        _read_index,
        lambda root: len(published_generations(root / "index")) == 3,
        next_generation_of,
    )
    published = lambda root: parameters.publish_parameters(network(0), parameters_path(RunPaths(root), 1), step=3)  # noqa: E731
    forget = lambda root: parameters.forget_requests(RunPaths(root), 0)  # noqa: E731
    found["parameters"] = Example(lambda root: None, published, _read_parameters, follow=forget)
    found["request"] = Example(
        lambda root: parameters.request_index(network(0), RunPaths(root), 1),
        lambda root: parameters.request_index(network(1), RunPaths(root), 2),
        _read_requests,
        follow=forget,
    )
    steps = lambda root, *numbers: [_checkpoint(root, step) for step in numbers]  # noqa: E731
    checkpoints: dict[str, Callable[[Path], object]] = {
        "first checkpoint": lambda root: RunPaths(root).checkpoints("warm").mkdir(parents=True),
        "checkpoint": lambda root: steps(root, 1, 2, 3),
        "checkpoint of a damaged step": _checkpoint_damaged,
    }
    for name, prepare in checkpoints.items():
        step = 2 if "damaged" in name else 4
        found[name] = Example(prepare, partial(_checkpoint, step=step), _read_checkpoint, follow=partial(_checkpoint, step=5))
    found["best weights"] = Example(lambda root: _best(root, 1, 0.5), lambda root: _best(root, 2, 0.7), _read_best)
    found["stage"] = Example(lambda root: steps(root, 1, 2), _stage, _read_stage, follow=_asked_for_again)
    found["rewound log"] = Example(
        lambda root: [MetricsLog(root / "log").write("warm", step, a=step) for step in range(3)],
        lambda root: MetricsLog(root / "log").rewind("warm", 1),
        lambda root: [row["step"] for row in MetricsLog(root / "log").rows()],
    )
    found["round"] = Example(lambda root: [round_of(root) for _ in range(3)], round_of, read_round, follow=_round_after)
    found["repair"] = _repair(run)
    return found
