"""Is anything lost when processes are killed? A small run is trained, asked, mended and changed by processes that are killed over and over.

    python -m benchmarks.reliability.kill_run DIRECTORY --kills 1000
    python -m benchmarks.reliability.kill_run DIRECTORY --whole --kills 400

Pre-training, fine-tuning, answers, ``realm repair`` of a damaged run, additions, removals, updates and compaction of its corpus and builds
of its index each run in a process of their own that gets SIGKILL at a random moment, or when it comes by a random write point
(``storage/points.toml``), until it comes through; then the next begins. After each kill another process's eyes look at what is there: the
corpus holds what it held before or what it is to hold, stages keep their bits, the index opens whole and nothing was put aside. After each
operation what it made is compared, bit for bit, with the same run that nobody disturbed: weights, vectors, rows of the log, blocks,
answers with their probabilities. A round ends with ``realm verify`` and a look for anything half-written.

With ``--whole``, one command trains a run from its documents to its questions. First the directory is copied at each of its write points,
which is what a kill there leaves, and each copy is gone on with, those between ict and pre-training first; then whole runs are killed up
to three times at random points. Each time all that was made is compared. Either way the whole group of processes is killed.

Killed itself, the same command goes on counting where it was. Prints one JSON object as its last line; the exit code is 1 if anything was
lost.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import result
from realm.answering.opening import open_run
from realm.cli import main as realm
from realm.documents.change.compaction import compact_corpus
from realm.documents.change.updates import add_documents, remove_documents, update_documents
from realm.documents.store.blocks import BlockStore
from realm.errors import RealmError
from realm.progress import Progress
from realm.recipe import load_recipe
from realm.runs.mending import corpus_damage, verify
from realm.runs.run import run_recipe
from realm.search.publishing.snapshot import Snapshot
from realm.storage import files
from realm.storage.files import sha256_file, write_json
from realm.storage.generations import published_generations, read_current
from realm.storage.layout import RunPaths
from realm.storage.metrics import TIMES, MetricsLog

MOST_IN_A_ROW = 20
"""Kills of one operation; then it may come through. Of one that only reads, ``MOST_READING``."""
MOST_READING = 3
PAGE = 600
"""Paragraphs of one page: more than is read without a child."""
AT_ONCE = 3
"""Kills of a whole run, at most, once each of its points had one."""
HALF_WRITTEN = (".staging", ".building", ".removed", ".link", ".quarantined")
QUESTIONS = ("What is the currency of Arvad?", "Which money do people in Faldor pay with?", "When was the Levka made?")
COUNTRIES = [("Arvad", "Tirel"), ("Belmor", "Osten"), ("Carsin", "Levka"), ("Dulwen", "Marop"), ("Estrag", "Nivel"), ("Faldor", "Quessa")]
RECIPE = """
[run]
threads = 1
device = "cpu"
checkpoint_every = 3
[corpus]
sources = ["docs.jsonl", "page.html"]
vocab_size = 300
block_length = 64
[model]
hidden = 32
layers = 1
heads = 2
intermediate = 64
projection = 16
span_hidden = 16
query_length = 32
dropout = 0.1
[warm]
steps = 5
batch = 4
check_every = 50
[ict]
steps = 5
batch = 4
[pretrain]
steps = 20
batch = 4
candidates = 4
refresh = "inline"
refresh_every = 5
force = true
[finetune]
train = "train.jsonl"
dev = "dev.jsonl"
steps = 12
batch = 4
read = 3
eval_every = 4
"""


def write_sources(root: Path) -> Path:
    """Documents, questions and the recipe. Returns the recipe."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "page.html").write_text(f"<html><body>{'<p>The Dorn is a river of Arvad.</p>' * PAGE}</body></html>", "utf-8")
    documents, questions = [], []
    for name, money in COUNTRIES:
        texts = [
            f"People in {name} pay with the {money}. The {money} has one hundred cents. Many visit {name} in 1950.",
            f"The currency of {name} is the {money}. In {name} the winters are long. The {money} was made in 1950.",
        ]
        documents += [{"id": f"{name}/{part}", "title": name, "text": text} for part, text in enumerate(texts)]
        questions.append({"id": name, "question": f"What do people in {name} pay with?", "answers": [money], "positive_ids": [f"{name}/0"]})
    more = {"id": "Novaria/0", "title": "Novaria", "text": "The currency of Novaria is the Belmor crown. Nobody lives there."}
    other = {**documents[0], "text": "People in Arvad pay with shells now. The Tirel is gone since 1990."}
    asked = [{**question, "id": f"dev/{question['id']}"} for question in questions]
    rows = {"docs": documents, "more": [more], "other": [other], "train": questions, "dev": asked}
    for name, found in rows.items():
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found), "utf-8")
    (root / "recipe.toml").write_text(RECIPE, "utf-8")
    return root / "recipe.toml"


# What is there, as plain JSON.


def blocks(run: RunPaths) -> Any:
    store = BlockStore.open(run.corpus)
    rows = [store.block(row) for row in range(len(store)) if store.live[row]]
    return [[block.block_id, block.doc_id, block.text] for block in rows]


def weights(run: RunPaths) -> dict[str, str]:
    return {name: sha256_file(run.stage(name) / "model.safetensors") for name in ("pretrain", "finetune") if run.stage(name).exists()}


def trained(run: RunPaths, stage: str) -> Any:
    """What must not depend on who was killed when; times and numbers of generations left out."""
    log = [row for row in MetricsLog(run.metrics).rows() if row["stage"] == stage]
    rows = [{key: value for key, value in row.items() if key not in (*TIMES, "refresher_restarts")} for row in log]
    newest = run.index / f"{published_generations(run.index)[-1]:06d}"
    return [weights(run), sha256_file(newest / "vectors-00000.npy"), rows]


def everything(run: RunPaths) -> Any:
    """All that a whole run makes."""
    stages = {path.parent.name: sha256_file(path) for path in run.root.glob("stages/*/model.safetensors")}
    return [
        stages,
        trained(run, "warm"),
        trained(run, "ict"),
        trained(run, "pretrain"),
        trained(run, "finetune"),
        blocks(run),
        answers(run),
    ]


def answers(run: RunPaths) -> Any:
    found = open_run(run.root).answerer.answer(list(QUESTIONS), k=3)
    return [[one.answer, one.p, one.confidence, [[e.doc_id, e.text, e.p_z] for e in one.evidence]] for one in found]


def half_written(run: RunPaths) -> list[str]:
    return [str(path.relative_to(run.root)) for path in run.root.rglob("*") if path.name.endswith(HALF_WRITTEN)]


def trouble(run: RunPaths, before: Any, after: Any, known: dict[str, str]) -> list[str]:
    """What is lost: the corpus is neither the old nor the new one, or damaged; a stage has other bits; the index does not open."""
    found = []
    try:
        if blocks(run) not in (before, after):
            found.append("the corpus holds neither the old nor the new documents")
        found += [f"{damage.path}: {damage.problem}" for damage in corpus_damage(run.corpus)]
        found += [f"stage {name} has other weights" for name, sha256 in weights(run).items() if sha256 != known[name]]
        if read_current(run.index) is not None:
            manifest = BlockStore.open(run.corpus).manifest
            opened = Snapshot.open(run.index, corpus_id=manifest.corpus_id, tokenizer_sha256=manifest.tokenizer_sha256,
                                   document_embedder_sha256=None)  # fmt: skip
            if opened.manifest.generation != read_current(run.index):
                found.append("the newest generation is not the one that opens")
    except (RealmError, OSError) as error:
        found.append(f"{type(error).__name__}: {error}")
    return found


# What is done.


@dataclass(frozen=True)
class Operation:
    """One thing that a process does.

    Attributes:
        work: in a process of its own; the exit code.
        outcome: of what it made.
        first: done once before the first attempt.
        mends: whether the run is damaged until it has come through.
    """

    name: str
    work: Callable[[RunPaths, Path], int]
    outcome: Callable[[RunPaths], Any]
    first: Callable[[RunPaths], object] = lambda run: None
    mends: bool = False


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 64
    path.write_bytes(data)


def _damage(run: RunPaths) -> None:
    """A bit of the vectors, of the parameters and of a look-up file; two files are gone. All of it can be made again."""
    number = f"{read_current(run.index):06d}"
    for path in (run.index / number / "vectors-00000.npy", run.params / number / "model.safetensors"):
        _flipped(path)
    _flipped(run.corpus / "segments" / "000001.documents.npy")
    (run.corpus / "CURRENT").unlink()


def _ask(run: RunPaths, scratch: Path) -> int:
    write_json(scratch / "answers.json", answers(run))
    return 0


def _change(change: Callable[[Path, Path], object]) -> Callable[[RunPaths, Path], int]:
    def work(run: RunPaths, scratch: Path) -> int:
        change(run.corpus, scratch)
        return 0

    return work


ASK = Operation("ask", _ask, answers)
BUILD = Operation("index build", lambda run, scratch: realm(["index", "build", str(run.root)]), answers)
OPERATIONS = (
    Operation("pretrain", lambda run, scratch: realm(["run", str(run.root), "--stages", "pretrain"]), lambda run: trained(run, "pretrain")),
    Operation("finetune", lambda run, scratch: realm(["run", str(run.root), "--stages", "finetune"]), lambda run: trained(run, "finetune")),
    ASK,
    Operation("repair", lambda run, scratch: realm(["repair", str(run.root), "--yes"]), answers, _damage, mends=True),
    Operation("add", _change(lambda corpus, scratch: add_documents(corpus, [scratch / "more.jsonl"], workers=1)), blocks),
    BUILD,
    Operation("remove", _change(lambda corpus, scratch: remove_documents(corpus, ["Belmor/0"])), blocks),
    ASK,
    Operation("update", _change(lambda corpus, scratch: update_documents(corpus, [scratch / "other.jsonl"], workers=1)), blocks),
    BUILD,
    Operation("compact", _change(lambda corpus, scratch: compact_corpus(corpus, purge=True)), blocks),
    ASK,
)
ONCE = ("add", "remove", "update")
"""What is refused when it is asked for again."""


def forked(
    work: Callable[[], int],
    says: Path,
    killed_at: int = 0,
    count: Path | None = None,
    look: Callable[[int, Path], None] = lambda n, p: None,
) -> int:
    """``work`` in a forked process with a group of its own, which kills itself at the so-manieth write point; its number. ``count`` gets
    how many there were, ``look`` each of them."""
    pid = os.fork()
    if pid == 0:
        code, seen = 99, 0
        try:
            os.setpgid(0, 0)
            with open(says, "ab", buffering=0) as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)

            def reached(point: str, path: Path) -> None:
                nonlocal seen
                seen += 1
                if seen == killed_at:
                    os.killpg(0, signal.SIGKILL)
                look(seen, path)

            files.listener = reached
            try:
                code = work()
            except BaseException:
                traceback.print_exc()
            files.listener = None
            if count is not None:
                count.write_text(str(seen))
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    with contextlib.suppress(OSError):  # it did so itself
        os.setpgid(pid, pid)
    return pid


def waited(pid: int, seconds: float | None = None) -> int | None:
    """The exit code, the negative signal of a killed process; None: it still runs after so many seconds."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while deadline is None or time.monotonic() < deadline:
        found, status = os.waitpid(pid, 0 if deadline is None else os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


class KillRun:
    """The killing, and what is known of the run that nobody disturbs: all in ``root``, where what was counted goes on; ``seed``: of moments
    and points."""

    each_anew = False
    """Whether each round begins with nothing, so that one goes on after a loss."""

    def __init__(self, root: Path, kills: int, seed: int):
        self.root, self.wanted, self.seed = root, kills, seed
        self.sources, self.base, self.says = root / "sources", RunPaths(root / "base"), root / "says.txt"
        self.noted = root / "kills.json"
        known = json.loads(self.noted.read_text()) if self.noted.exists() else {}
        self.kills, self.at_points, self.rounds = known.get("kills", 0), known.get("at_points", 0), known.get("rounds", 0)
        self.seconds, self.lost = known.get("seconds", 0.0), list(known.get("lost", []))
        self.by_operation = Counter(known.get("by_operation", {}))
        self._started = time.monotonic()

    def run(self) -> dict[str, Any]:
        self.prepare()
        while self.kills < self.wanted and (self.each_anew or not self.lost):
            self.one_round()
        return self.facts()

    def facts(self) -> dict[str, Any]:
        seconds = round(self.seconds + time.monotonic() - self._started, 1)
        counts = {"kills": self.kills, "at_points": self.at_points, "rounds": self.rounds, "by_operation": dict(self.by_operation)}
        return {**counts, "lost": self.lost, "seconds": seconds}

    def note(self) -> None:
        write_json(self.noted, self.facts())

    def prepare(self) -> None:
        """The run before pre-training, and all outcomes of one that nobody disturbs."""
        if (self.root / "expected.json").exists():
            self.expected = json.loads((self.root / "expected.json").read_text())
            return self._load_everything()
        for left in (self.base.root, self.root / "whole"):
            shutil.rmtree(left, ignore_errors=True)
        recipe = write_sources(self.sources)
        run_recipe(load_recipe(recipe), self.base.root, stages=("corpus", "warm", "ict"), progress=Progress(quiet=True))
        self._load_everything()
        whole, count = RunPaths(Path(shutil.copytree(self.base.root, self.root / "whole"))), self.root / "count"
        self.expected = []
        for operation in OPERATIONS:
            operation.first(whole)
            before = blocks(whole) if not operation.mends else self.expected[-1]["blocks"]
            started = time.monotonic()
            pid = forked(lambda operation=operation: operation.work(whole, self.sources), self.says, count=count)
            assert waited(pid) == 0, self.says.read_text()[-2000:]
            found = {"name": operation.name, "before": before, "blocks": blocks(whole), "points": int(count.read_text())}
            self.expected.append(found | {"seconds": time.monotonic() - started, "outcome": operation.outcome(whole)})
        self.expected = json.loads(json.dumps(self.expected))
        write_json(self.root / "expected.json", self.expected)

    def _load_everything(self) -> None:
        """Import what the operations need into this process, so that those it forks begin at once."""
        first = RunPaths(self.root / "first")
        shutil.rmtree(first.root, ignore_errors=True)
        shutil.copytree(self.base.root, first.root)
        with open(self.says, "a") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
            for operation in OPERATIONS:
                operation.first(first)
                assert operation.work(first, self.sources) == 0
        shutil.rmtree(first.root)

    def one_round(self) -> None:
        rng = random.Random(f"{self.seed}/{self.rounds}/{self.kills}")
        shutil.rmtree(self.root / "work", ignore_errors=True)
        run = RunPaths(Path(shutil.copytree(self.base.root, self.root / "work")))
        for operation, expected in zip(OPERATIONS, self.expected, strict=True):
            operation.first(run)
            self.through(run, operation, expected, rng)
            if self.lost or self.kills >= self.wanted:
                break
        else:
            self.ended(run)
        self.note()

    def through(self, run: RunPaths, operation: Operation, expected: dict[str, Any], rng: random.Random) -> None:
        """Start an operation until it comes through; then compare what it made."""
        known, aside = self.expected[1]["outcome"][0], set(run.index.glob("*.quarantined"))
        most = MOST_READING if operation is ASK else MOST_IN_A_ROW
        for attempt in range(most + 1):
            if operation.name in ONCE and attempt and blocks(run) == expected["blocks"]:
                break  # killed after it had published
            if not self.killed(run, operation, expected, rng, last=attempt == most):
                break
            if not operation.mends:
                self.lose(operation, trouble(run, expected["before"], expected["blocks"], known))
                self.lose(operation, [f"{path}: put aside" for path in set(run.index.glob("*.quarantined")) - aside])
            elif weights(run) != known:
                self.lose(operation, ["a stage that was whole is not"])
            self.note()
            if self.lost or self.kills >= self.wanted:
                return
        if json.loads(json.dumps(operation.outcome(run))) != expected["outcome"]:
            self.lose(operation, ["what it made is not what nobody disturbed makes"])

    def killed(self, run: RunPaths, operation: Operation, expected: dict[str, Any], rng: random.Random, *, last: bool) -> bool:
        """Start it and kill it; whether it was in time."""
        point = 1 + int(expected["points"] * rng.random() ** 3) if rng.random() < 0.5 else 0  # more often early: most of it is resumed
        pid = forked(lambda: operation.work(run, self.sources), self.says, 0 if last else point)
        code = waited(pid, None if last or point else 1.2 * expected["seconds"] * rng.random() ** 2)
        if code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            code = waited(pid)
        if code == -signal.SIGKILL:
            self.kills += 1
            self.at_points += point > 0
            self.by_operation[operation.name] += 1
            return True
        if code != 0:
            self.lose(operation, [f"ended with {code}: {self.says.read_text(errors='replace')[-600:]}"])
        return False

    def ended(self, run: RunPaths) -> None:
        self.rounds += 1
        with open(self.says, "a") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
            code = realm(["verify", str(run.root)])
        left = [name for name in half_written(run) if not name.startswith("index/") or not name.endswith(".quarantined")]
        self.lose(OPERATIONS[-1], ([f"realm verify ends with {code}"] if code else []) + [f"left over: {name}" for name in left])
        print(f"round {self.rounds}: {self.kills} kills, nothing lost" if not self.lost else f"lost: {self.lost}", file=sys.stderr)

    def lose(self, operation: Operation, found: list[str]) -> None:
        self.lost += [f"{operation.name}: {problem}" for problem in found]


class WholeRuns(KillRun):
    """The same of one command that makes a whole run: from each of its write points on, then killed at random ones."""

    each_anew = True

    def prepare(self) -> None:
        """A run that nobody disturbs, and what it was at each of its points."""
        self.recipe, self.work, self.states = write_sources(self.sources), RunPaths(self.root / "work"), self.root / "states"
        self._clear()
        with open(self.says, "a") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
            assert self.train() == 0  # loads what is needed into this process
        if not self.states.exists():
            self._clear()
            assert waited(forked(self.train, self.says, look=self._copy)) == 0, self.says.read_text()[-2000:]
        self.expected = json.loads(json.dumps(everything(self.work)))
        between = {
            path.name for path in self.states.iterdir() if (path / "stages/ict").exists() and not (path / "stages/pretrain").exists()
        }
        between -= {name for name in between if any((self.states / name / "checkpoints/pretrain").glob("step-*"))}
        names = sorted(path.name for path in self.states.iterdir())
        random.Random(self.seed).shuffle(names)
        self.points = [*sorted(between), *(name for name in names if name not in between)]

    def train(self) -> int:
        return realm(["run", str(self.recipe), "--out", str(self.work.root)])

    def _copy(self, number: int, path: Path) -> None:
        shutil.copytree(self.work.root, self.states / f"{number:06d}")

    def _clear(self) -> None:
        shutil.rmtree(self.work.root, ignore_errors=True)

    def one_round(self) -> None:
        """Go on from one state; or one run, killed several times."""
        self._clear()
        rng, name = random.Random(f"{self.seed}/{self.rounds}"), f"killed at random, {self.rounds}"
        if self.rounds < len(self.points):
            name = self.points[self.rounds]
            shutil.copytree(self.states / name, self.work.root)
            self.at_points += 1
        for _ in range(rng.randint(1, AT_ONCE) if self.rounds >= len(self.points) else 0):
            if waited(forked(self.train, self.says, rng.randint(1, len(self.points)))) == -signal.SIGKILL:
                self.kills += 1
        self.rounds += 1
        self._look(f"{name}, before")
        if (code := waited(forked(self.train, self.says))) != 0:
            self.lost.append(f"{name}: ended with {code}: {self.says.read_text(errors='replace')[-600:]}")
        elif json.loads(json.dumps(everything(self.work))) != self.expected:
            self.lost.append(f"{name}: what it made is not what nobody disturbed makes")
        self._look(f"{name}, after")
        self.lost += [f"{name}: left over: {left}" for left in half_written(self.work)]
        self.by_operation["from a state"], self.by_operation["killed run"] = self.at_points, self.kills
        self.note()

    def _look(self, when: str) -> None:
        found = verify(self.work.root, Progress(quiet=True)) if self.work.config.exists() else []
        self.lost += [f"{when}: {one.path}: {one.problem}" for one in found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--whole", action="store_true", help="kill a whole run at each of its write points")
    parser.add_argument("--nice", type=int, default=0, help="how far the other work on this machine goes first")
    arguments = parser.parse_args()
    os.nice(arguments.nice)
    torch.set_num_threads(1)
    arguments.directory.mkdir(parents=True, exist_ok=True)
    found = (WholeRuns if arguments.whole else KillRun)(arguments.directory, arguments.kills, arguments.seed).run()
    print(json.dumps(result("kill_run", 1, **found)))
    return 1 if found["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
