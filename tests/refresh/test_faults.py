"""Never wrong: killed at every named point and at random moments, a full disk, swaps under load. Every row proves where it came from."""

import contextlib
import errno
import os
import random
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from realm import write_points
from realm.cli import main
from realm.errors import RealmError, SnapshotError
from realm.index.generations import generation_path, next_generation, published_generations, read_current
from realm.index.exact import ExactIndex
from realm.index.snapshot import Snapshot, SnapshotFacts, append_delta, publish_snapshot
from realm.nn.bodies import BodySpec, bert_spec
from realm.nn.model import ModelSpec, RealmModel
from realm.paths import RunPaths, remove_staging
from realm.refresh.building import publishing
from realm.refresh.parameters import prune_run, publish_parameters, withdraw_requests
from realm.train.checkpoint import CheckpointDirectory
from realm.train.metrics import MetricsLog
from realm.write_points import POINTS

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


class Work:
    """What trainer and refresher of one run write, round after round."""

    def __init__(self, root: Path):
        self.paths = RunPaths(root)
        sizes = {"hidden": 8, "layers": 1, "heads": 1, "intermediate": 8}
        body = bert_spec(vocab_size=20, max_length=16, dropout=0.0, attention_dropout=0.0, **sizes)
        self.model = RealmModel(ModelSpec(body=BodySpec(body.config), projection=8))
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
            self.told.write_text(str(number))
            append_delta(index, number, vectors(number, ADDED), ADDED, corpus_version=2)
            prune_run(self.paths, frozenset())
        self.checkpoints.save(number, self.module, self.optimizer, {"task": {"generation": number}})
        self.log.write("pretrain", number, generation=number)
        return number

    def open(self) -> Snapshot:
        return Snapshot.open(self.paths.index, **OWNER)

    def check(self) -> None:
        """What a fresh process finds: the last published state or the one being published, whole and unmixed."""
        told = int(self.told.read_text() or 0)
        if read_current(self.paths.index) is None:
            assert told == 0
            return
        snapshot = self.open()
        assert_unmixed(snapshot)
        assert told <= snapshot.manifest.generation <= told + 1
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


def dies(work: Callable[[], object], at: Callable[[str], bool]) -> bool:
    """Run ``work`` in a process of its own, which kills itself (SIGKILL) at the first point for which ``at`` is true. Whether it did."""
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            write_points.listener = lambda point, path: os.kill(os.getpid(), signal.SIGKILL) if at(point) else None
            work()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the work itself failed"
    return os.WIFSIGNALED(status)


def damage(work: Work) -> None:
    """Flip a byte of the newest generation and cut its checkpoint short: the next round puts both aside."""
    number = read_current(work.paths.index)
    assert number is not None
    file = generation_path(work.paths.index, number) / "vectors-00000.npy"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)


def round_and_damage(work: Work) -> None:
    work.round()
    damage(work)
    with contextlib.suppress(SnapshotError):
        work.open()


def reached_in(work: Callable[[], object]) -> list[str]:
    seen: list[str] = []
    write_points.listener = lambda point, path: seen.append(point)
    try:
        work()
    finally:
        write_points.listener = None
    return seen


def test_the_harness_comes_by_every_point(tmp_path: Path) -> None:
    work = Work(tmp_path / "run")
    seen = reached_in(lambda: [work.round() for _ in range(4)])
    seen += reached_in(lambda: round_and_damage(work))
    assert set(seen) == set(POINTS)


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three rounds."""
    work = Work(tmp_path_factory.mktemp("settled") / "run")
    for _ in range(3):
        work.round()
    return work.paths.root


def copied(settled: Path, root: Path) -> Work:
    shutil.copytree(settled, root)
    work = Work(root)
    work.told.write_text("3")
    return work


def killed_and_resumed(work: Work, point: str, which: int) -> bool:
    """Die when ``point`` is reached for the ``which``-th time, from 1; a fresh process goes on and cleans up. Whether it was reached."""
    count = [0]

    def at(name: str) -> bool:
        count[0] += name == point
        return name == point and count[0] == which

    killed = dies(work.round, at)
    work.check()
    work.round()
    work.check()
    assert not work.left_over()
    assert [row["generation"] for row in work.log.rows()][-1] == read_current(work.paths.index)
    return killed


@pytest.mark.parametrize("point", sorted(set(POINTS) - {"generation: put aside"}))
def test_killed_at_every_point(point: str, settled: Path, tmp_path: Path) -> None:
    assert killed_and_resumed(copied(settled, tmp_path / "run"), point, 1)


@pytest.mark.slow
@pytest.mark.parametrize("point", sorted(POINTS))
def test_killed_at_every_point_every_time(point: str, settled: Path, tmp_path: Path) -> None:
    which = 1
    while killed_and_resumed(copied(settled, tmp_path / f"run-{which}"), point, which):
        which += 1
    assert which > 1 or point == "generation: put aside"


def test_killed_while_damage_is_put_aside(settled: Path, tmp_path: Path) -> None:
    work = copied(settled, tmp_path / "run")
    damage(work)
    assert dies(work.open, lambda name: name == "generation: put aside")
    snapshot = work.open()
    assert snapshot.manifest.generation == 2
    assert_unmixed(snapshot)
    assert work.round() == 4


def randomly_killed(root: Path, times: int) -> None:
    """A process that writes and one that reads, killed at random moments; after each kill a fresh process looks at what is there."""
    work, rng = Work(root), random.Random(7)
    work.round()

    def forever(step: Callable[[], object]) -> int:
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                while True:
                    step()
            os._exit(9)  # only an error ends it
        return pid

    for _ in range(times):
        reader, writer = forever(lambda: assert_unmixed(work.open())), forever(work.round)
        time.sleep(rng.uniform(0.0, 0.12))
        for pid in (reader, writer):
            assert os.waitpid(pid, os.WNOHANG) == (0, 0), "a reader or the writer failed"
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        work.check()
    work.round()
    work.check()
    assert not work.left_over()


def test_killed_at_random_moments(tmp_path: Path) -> None:
    randomly_killed(tmp_path / "run", 10)


@pytest.mark.slow
def test_killed_at_300_random_moments(tmp_path: Path) -> None:
    randomly_killed(tmp_path / "run", 300)


DISK = sorted(p for p in POINTS if p.split(":")[0] in ("build", "array", "file", "directory", "parameters"))
REFUSALS = [(point, errno.ENOSPC) for point in DISK] + [("build: written", errno.EIO), ("file: staged", errno.EROFS)]


@pytest.mark.parametrize(("point", "code"), REFUSALS)
def test_what_the_disk_refuses(point: str, code: int, settled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = copied(settled, tmp_path / "run")

    def refuse(name: str, path: Path) -> None:
        if name == point:
            raise OSError(code, os.strerror(code), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(write_points, "listener", refuse)
        with pytest.raises(RealmError, match=f"{os.strerror(code)}.*published before is intact"):
            work.round()
    work.check()
    work.round()
    work.check()
    assert not work.left_over()


def test_a_file_size_limit(tmp_path: Path) -> None:
    work = Work(tmp_path / "run")
    work.round()

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
        with pytest.raises(SnapshotError, match="too large"):
            publish(work.paths.index)

    assert not dies(limited, lambda point: False)
    work.check()
    assert work.round() == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory(tmp_path: Path) -> None:
    work = Work(tmp_path / "run")
    work.round()
    work.paths.index.chmod(0o500)
    with pytest.raises(SnapshotError, match="could not be written"):
        publish(work.paths.index)
    work.check()
    work.paths.index.chmod(0o700)
    assert work.round() == 2


def test_a_full_disk_ends_the_command(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from realm.corpus.living import add_documents

    run = shutil.copytree(tiny_run, tmp_path / "run")
    add_documents(run / "corpus", [tiny_run.parent / "more.jsonl"])

    def full(point: str, path: Path) -> None:
        if point == "array: staged":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(write_points, "listener", full)
    assert main(["index", "build", str(run)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "No space left on device" in error and "intact" in error
    monkeypatch.setattr(write_points, "listener", None)
    assert main(["index", "build", str(run)]) == 0 and main(["index", "verify", str(run)]) == 0


@pytest.mark.parametrize("swaps", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_swaps_under_concurrent_searches(tmp_path: Path, swaps: int) -> None:
    """Zero errors, zero mixed results: readers open the newest and search while a process publishes and deletes."""
    index, problems, seen = tmp_path / "index", [], set()
    publish(index)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                snapshot = Snapshot.open(index, **OWNER)
                assert_unmixed(snapshot)
                seen.add(snapshot.manifest.generation)
            except BaseException as error:
                problems.append(error)
                return

    def swap() -> None:
        from realm.index.generations import prune

        for _ in range(swaps):
            publish(index)
            prune(index, 3, set())

    pid = os.fork()
    if pid == 0:
        try:
            swap()
            os._exit(0)
        finally:
            os._exit(9)
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    status = os.waitpid(pid, 0)[1]
    stop.set()
    for reader in readers:
        reader.join()
    assert status == 0 and not problems, problems
    assert read_current(index) == swaps + 1 and len(seen) > 5
    remove_staging(index)
