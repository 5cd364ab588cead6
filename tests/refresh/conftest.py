"""The fault harness: an embedder whose rows prove where they came from, a run that writes round after round, processes that die."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from realm.data.blocks import BlockInputs, open_inputs
from realm.index.base import ExactIndex
from realm.index.delta import append_delta
from realm.index.manifest import SnapshotFacts
from realm.index.snapshot import Snapshot, publish_snapshot
from realm.nn.model import RealmModel
from realm.nn.spec import BodySpec, bert_spec, one_body
from realm.paths import RunPaths
from realm.refresh.locks import publishing
from realm.refresh.parameters import prune_run, publish_parameters, withdraw_requests
from realm.storage import files
from realm.storage.generations import generation_path, next_generation, published_generations, read_current
from realm.train.checkpoint import CheckpointDirectory
from realm.train.metrics import MetricsLog

IDS = np.arange(100, 124, dtype=np.int64)
ADDED = np.arange(200, 203, dtype=np.int64)
PART = 9
FILES = {"manifest.json", *(f"{what}-0000{number}.npy" for what in ("vectors", "block_ids") for number in (0, 1))}
OWNER = {"corpus_id": "corpus-a", "tokenizer_sha256": "tok-a", "document_embedder_sha256": "emb-a"}


def vectors(generation: int, ids: np.ndarray) -> np.ndarray:
    """What the harness's embedder says: (generation, block id, 1, 0)."""
    rows = np.zeros((len(ids), 4), np.float32)
    rows[:, 0], rows[:, 1], rows[:, 2] = generation, ids, 1
    return rows


def assert_unmixed(snapshot: Snapshot) -> None:
    np.testing.assert_array_equal(snapshot.vectors, vectors(snapshot.manifest.generation, snapshot.block_ids))
    hits = ExactIndex(snapshot.vectors, snapshot.block_ids).search(torch.eye(4)[:2], 5)
    assert hits.valid.all() and (hits.scores[0] == snapshot.manifest.generation).all()
    np.testing.assert_array_equal(hits.scores[1], hits.ids[1].astype(np.float32))


def publish(index: Path) -> int:
    """The next generation, in parts, taken up where a killed process left it."""
    number = next_generation(index)
    facts = SnapshotFacts(params_generation=number, step=10 * number, corpus_version=1, **OWNER)

    def parts(start: int) -> Iterator[np.ndarray]:
        for at in range(start, len(IDS), PART):
            yield vectors(number, IDS[at : at + PART])

    publish_snapshot(index, parts, IDS, facts, generation=number)
    return number


def dies(work: Callable[[], object], at: Callable[[str], bool]) -> bool:
    """Run ``work`` in a process of its own, which kills itself (SIGKILL) at the first point for which ``at`` is true. Whether it did."""
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            files.listener = lambda point, path: os.kill(os.getpid(), signal.SIGKILL) if at(point) else None
            work()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the work itself failed"
    return os.WIFSIGNALED(status)


class Work:
    """What trainer and refresher of one run write, round after round."""

    def __init__(self, root: Path):
        self.paths = RunPaths(root)
        sizes = {"hidden": 8, "layers": 1, "heads": 1, "intermediate": 8}
        body = bert_spec(vocab_size=20, max_length=16, dropout=0.0, attention_dropout=0.0, **sizes)
        self.model = RealmModel(one_body(BodySpec(body.config), projection=8))
        self.module = nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.1)
        self.checkpoints = CheckpointDirectory(self.paths.checkpoints("pretrain"), fingerprint="f")
        self.log = MetricsLog(self.paths.metrics)
        self.told = root.with_name(root.name + ".told")
        self.told.write_text("0")

    def round(self) -> int:
        """Parameters, an index in parts, a delta, old ones deleted, a checkpoint, a row. Returns the generation."""
        index = self.paths.index
        self.checkpoints.restore(self.module, self.optimizer)
        with publishing(index):
            withdraw_requests(self.paths, above=0)
            publish_parameters(self.model, self.paths.params / f"{next_generation(index):06d}", step=1)
            number = publish(index)
            staging = self.told.with_suffix(".next")  # a death between truncating and writing would leave it empty
            staging.write_text(str(number))
            os.replace(staging, self.told)
            append_delta(index, number, vectors(number, ADDED), ADDED, corpus_version=2)
            prune_run(self.paths, frozenset())
        self.checkpoints.save(number, self.module, self.optimizer, {"task": {"generation": number}})
        self.log.write("pretrain", number, generation=number)
        return number

    def open(self) -> Snapshot:
        return Snapshot.open(self.paths.index, **OWNER)

    def check(self, deaths: int = 1) -> None:
        """What a fresh process finds: the last published state or the one being published, whole and unmixed.

        Each of the ``deaths`` since a writer last told a number may have cost one: it is not given again, or nobody was told of it.
        """
        told = int(self.told.read_text() or 0)
        if read_current(self.paths.index) is None:
            assert told == 0
            return
        snapshot = self.open()
        assert_unmixed(snapshot)
        assert told <= snapshot.manifest.generation <= told + deaths
        assert snapshot.manifest.generation == read_current(self.paths.index)
        rows = [row["generation"] for row in self.log.rows()]
        assert rows == sorted(rows) and all(row <= snapshot.manifest.generation for row in rows)

    def left_over(self) -> set[str]:
        """Everything that a healthy run would not have."""
        root, kept = self.paths.root, {f"{n:06d}" for n in published_generations(self.paths.index)}
        names = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.name.endswith((".staging", ".building", ".removed"))}
        names |= {f"params/{path.name}" for path in self.paths.params.iterdir() if path.name not in kept}
        names |= {f"index/{path.name}" for path in self.paths.index.iterdir() if path.is_dir() and path.name not in kept}
        names |= {f"{name}/{path.name}" for name in kept for path in (self.paths.index / name).iterdir() if path.name not in FILES}
        return names if len(kept) <= 3 and len(list(self.checkpoints.path.iterdir())) <= 2 else {*names, "too many kept"}

    def publish(self) -> int:
        return publish(self.paths.index)

    def open_unmixed(self) -> Snapshot:
        snapshot = self.open()
        assert_unmixed(snapshot)
        return snapshot

    def dies(self, work: Callable[[], object], at: Callable[[str], bool] = lambda point: False) -> bool:
        """See ``dies``."""
        return dies(work, at)

    def damage(self) -> None:
        """Flip a byte of the newest generation and cut its checkpoint short: the next round puts both aside."""
        number = read_current(self.paths.index)
        assert number is not None
        file = generation_path(self.paths.index, number) / "vectors-00000.npy"
        data = bytearray(file.read_bytes())
        data[-3] ^= 1
        file.write_bytes(data)


@pytest.fixture(scope="session")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three rounds."""
    work = Work(tmp_path_factory.mktemp("settled") / "run")
    for _ in range(3):
        work.round()
    return work.paths.root


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """A run in which nothing was written yet."""
    return Work(tmp_path / "run")


@pytest.fixture
def make_work() -> Callable[[Path], Work]:
    """Makes a run in which nothing was written yet, anywhere."""
    return Work


@pytest.fixture
def copied(settled: Path, tmp_path: Path) -> Callable[..., Work]:
    """Makes a run of three rounds that nobody else uses."""

    def copy(name: str = "copy") -> Work:
        shutil.copytree(settled, tmp_path / name)
        copied = Work(tmp_path / name)
        copied.told.write_text("3")
        return copied

    return copy


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> RunPaths:
    """A trained run that nobody else uses."""
    return RunPaths(Path(shutil.copytree(tiny_run, tmp_path / "run")))


@pytest.fixture
def inputs(run: RunPaths) -> BlockInputs:
    return open_inputs(run.corpus, 32)


@pytest.fixture
def model(run: RunPaths) -> RealmModel:
    return RealmModel.from_pretrained(run.stage("pretrain"))
