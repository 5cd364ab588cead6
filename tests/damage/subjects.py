"""What is damaged, and what is asked of it: a run, a corpus, a kNN datastore, checkpoints, a cached run of indexed folders."""

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from small import jsonl

from realm.answering.index_facts import index_facts
from realm.answering.opening import open_run
from realm.documents.change.updates import add_documents, remove_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.spans.specs import corpus_tagger
from realm.documents.store.blocks import BlockStore
from realm.errors import RealmError, RunError
from realm.knn.datastore import Datastore, find_neighbours
from realm.progress import Progress
from realm.report.page import write_report
from realm.report.read import read_run
from realm.runs.cached import open_cached
from realm.storage.layout import RunPaths
from realm.training.loop.checkpoint import CheckpointDirectory

QUESTIONS = (
    "What is the currency of Arvad?",
    "What do people in Belmor pay with?",
    "Which money has one hundred cents?",
    "winters in Carsin",
)
SENTENCE = "The currency of [MASK] is the Tirel."
QUIET = Progress(quiet=True)
STEPS = (2, 4)
"""Of the checkpoints."""


def about_run(run: Path) -> Any:
    """Answers, candidates of hybrid search, an explanation, facts of the index, results and facts of the stages."""
    opened = open_run(run)
    answered = opened.answerer.answer(list(QUESTIONS), k=3)
    answers = [(found.answer, found.p, found.confidence) for found in answered]
    evidence = [(one.doc_id, one.block_id, one.text, one.p_z) for found in answered for one in found.evidence]
    hits = [opened.search(question, 4) for question in ("winters in Dulwen", *QUESTIONS)]
    explained = opened.explain(SENTENCE, k=3).to_dict()
    record = read_run(RunPaths(run))
    write_report(RunPaths(run))
    facts = index_facts(opened)
    facts.pop("bytes")
    stages = [(stage.name, stage.facts) for stage in record.stages]
    results = [{key: value for key, value in row.items() if key != "seconds"} for row in record.results]
    return [answers, evidence, hits, explained, facts, stages, results, record.answers]


def write_corpus(root: Path) -> Path:
    """A corpus of two segments with two documents removed, and its sources beside it."""
    text = "The currency of {0} is the yen. In 1950 the winters of {0} were long."
    first, more = (
        jsonl(root / f"{name}.jsonl", [{"id": place, "title": place, "text": text.format(place)} for place in places])
        for name, places in (("first", [f"Arvad{n}" for n in range(12)]), ("more", ["Belmor", "Carsin"]))
    )
    build_corpus([first], root / "corpus", vocab_size=200, block_length=64, workers=1)
    add_documents(root / "corpus", [more])
    remove_documents(root / "corpus", ["Arvad3", "Arvad7"])
    return root / "corpus"


def about_corpus(corpus: Path) -> Any:
    """Everything that a corpus answers."""
    store = BlockStore.open(corpus)
    rows = range(len(store))
    tables = [(asdict(table) for table in (store.sentences(row), store.spans(row))) for row in rows]
    lists = [[values.tolist() for table in pair for values in table.values()] for pair in tables]
    tokens = [(store.token_ids(row).tolist(), store.title_ids(row).tolist(), store.span_hashes(row).tolist()) for row in rows]
    found = {name: store.rows_of_document(name).tolist() for name in [*store.documents(), "Arvad3"]}
    facts = [store.block_ids.tolist(), store.live.tolist(), store.documents(), store.version, asdict(store.manifest)]
    tagger = corpus_tagger(corpus, store.manifest).state()
    return [[asdict(store.block(row)) for row in rows], lists, tokens, found, facts, tagger]


def about_datastore(path: Path) -> Any:
    """What is nearest to a few keys."""
    datastore = Datastore.open(path)
    keys = torch.from_numpy(np.asarray(datastore.snapshot.vectors[:5], np.float32))
    near = find_neighbours(datastore.index("exact"), keys, 4)
    return [near.scores.tolist(), near.tokens.tolist(), datastore.tokens.tolist(), asdict(datastore.facts)]


def trained(step: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A network after so many steps."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(16, 40), torch.nn.Linear(40, 8))
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    for _ in range(step):
        module(torch.ones(2, 16)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return module, optimizer


def write_checkpoints(path: Path) -> None:
    """Checkpoints of one stage after each of STEPS."""
    for step in STEPS:
        CheckpointDirectory(path, fingerprint="one").save(step, *trained(step), {"task": {"seen": step}})


def about_checkpoints(path: Path) -> Any:
    """Whether what is restored is bit for bit what was saved; the older of two where the newer one is damaged, which a warning says."""
    module, optimizer = trained(0)
    found = CheckpointDirectory(path, fingerprint="one").restore(module, optimizer)
    if found is None:
        raise RunError("no checkpoint is whole")  # the stage starts again, and a warning has said why
    same = _state(module, optimizer) == _state(*trained(found.step))
    return [same, found.extra == {"task": {"seen": found.step}}]


def _state(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    moments = optimizer.state_dict()["state"]
    return [
        [value.tolist() for value in module.state_dict().values()],
        {n: {key: torch.as_tensor(v).tolist() for key, v in entry.items()} for n, entry in moments.items()},
    ]


def about_cache(cache: Path, notes: Path, body: Path) -> Any:
    """What a question to a folder finds; the cache is brought up to date, or made anew, where it has to be."""
    os.environ["XDG_CACHE_HOME"] = str(cache)
    opened = open_cached([notes], str(body), QUIET)
    return [opened.search("money of Arvad", 2), opened.documents]


class Warned(logging.Handler):
    """Keeps what this package warns of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Subject:
    """One thing that is damaged, as it was published and as a copy.

    Args:
        pristine: as it was published; never changed.
        work: where the copy is kept.
        ask: what a copy answers.
        rebuilt: the same with what can be derived made again: BM25 weighs words by all documents, and by those that were there first
            where others were added since."""

    def __init__(self, pristine: Path, work: Path, ask: Callable[[Path], Any], rebuilt: Path | None = None):
        self.pristine = pristine
        self.work = work
        self._ask = ask
        self.mended = set() if rebuilt is None else {self._asked_of(rebuilt)}
        self.expected = self._asked_of(pristine)
        self.mended.add(self.expected)
        self._whole = self._stats()
        self.restore()

    def asked(self) -> str:
        """Its answers, as JSON, so that two are compared to the last bit. Raises what was raised."""
        torch.set_num_threads(1)  # a cached run that was made anew has set its own, on which last bits depend
        return json.dumps(self._ask(self.work), sort_keys=True, default=str)

    def _asked_of(self, source: Path) -> str:
        """The answers of a fresh copy."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(source, self.work)
        return self.asked()

    def restore(self) -> None:
        """Make the copy what was published again, without touching what still is."""
        now = self._stats()
        for name in [name for name, stat in now.items() if self._whole.get(name) != stat or not (self.pristine / name).exists()]:
            (self.work / name).unlink()
        for path in sorted((path for path in self.work.rglob("*") if path.is_dir()), reverse=True):
            if not (self.pristine / path.relative_to(self.work)).is_dir():
                path.rmdir()
        for source in self.pristine.rglob("*"):
            target = self.work / source.relative_to(self.pristine)
            if source.is_dir():
                target.mkdir(exist_ok=True)
        for source in self.pristine.rglob("*"):
            target = self.work / source.relative_to(self.pristine)
            if source.is_file() and not target.exists():
                shutil.copy2(source, target)
        self._whole = self._stats()

    def _stats(self) -> dict[str, tuple[int, int, int]]:
        """What tells that a file was written to."""
        return {str(path.relative_to(self.work)): _stat(path) for path in self.work.rglob("*") if path.is_file()}


def _stat(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def subjects_of(world: Path, work: Path) -> dict[str, Subject]:
    """All that lies in a world (``test_fuzz.py: world``)."""
    asks: dict[str, Callable[[Path], Any]] = {
        "run": about_run,
        "corpus": about_corpus,
        "datastore": about_datastore,
        "checkpoints": about_checkpoints,
        "cache": lambda cache: about_cache(cache, world / "notes", world / "body"),
    }
    rebuilt = {"run": world / "rebuilt"}
    return {name: Subject(world / name, work / name, ask, rebuilt.get(name)) for name, ask in asks.items()}


def one_line(error: RealmError | Iterable[str]) -> bool:
    """Whether something is said in one line that says something."""
    return all(line.strip() and "\n" not in line for line in ([str(error)] if isinstance(error, RealmError) else error))
