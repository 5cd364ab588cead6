"""The class ``Realm``: all that the command ``realm`` does with a run or with documents, from Python."""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self, overload

from realm import DEFAULT_BODY
from realm.answering.opening import OpenRun, open_run
from realm.answering.records import Answer, Explanation, Hit
from realm.answering.writing import endpoint_of, written
from realm.documents.change import updates
from realm.errors import ConfigError, RunError
from realm.models import hub
from realm.progress import Progress
from realm.recipe import WriteConfig, build_recipe
from realm.runs.cached import Given, files_of_given, is_run, open_cached, rows_directory
from realm.runs.directory import claim_run
from realm.storage.files import publish_directory
from realm.storage.layout import RunPaths

BATCH = 16
"""Questions that are read together."""
NOT_SAVED = ("checkpoints", "scratch", "LOCK*")
"""Parts of a run that only the process at work on it needs."""
READ_BY = ("sources", "format", "id_column", "title_column", "text_column", "templates", "gazetteer", "document_seconds")
"""Keys of [corpus] that a new run over the same documents takes over."""


class Realm:
    """A run, or documents, that answers questions with evidence, learns, and changes with its documents.

    Wherever a file is taken, rows are, too: dictionaries with the keys of ``docs/data-formats.md``, or a data frame. Records that come back
    make a data frame as they are: ``pandas.DataFrame(realm.search("..."))``.

    Examples:
        >>> from realm import Realm
        >>> realm = Realm.open("runs/demo")
        >>> answer = realm.ask("What is the currency of Arvad?", k=3)
        >>> best = answer.evidence[0]
        >>> best.text[best.start : best.end] == best.answer
        True
        >>> round(sum(evidence.p_z for evidence in answer.evidence), 3)
        1.0
    """

    def __init__(self, run: OpenRun, reader: str = ""):
        self._reader = reader
        self._run = run.read_by(reader)
        self._writes = run.recipe.writes
        self._opening = threading.Lock()
        self._changed = False

    @classmethod
    def open(cls, run: str | Path, *, reader: str = "") -> Self:
        """Open a run directory; ``reader`` names another model that reads what is found. Raises RealmError: no run, pre-training has not
        ended, or its parts do not match.

        >>> Realm.open("runs/demo").unsearchable
        0
        """
        return cls(open_run(run), reader)

    load = open
    """The same, for what ``save`` has written."""

    @classmethod
    def from_documents(cls, *documents: Given, body: str = DEFAULT_BODY, reader: str = "", progress: bool = False) -> Self:
        """Open files, folders or rows of documents, as ``realm ask`` does: indexed at the first call, brought up to date at later ones.

        >>> rows = [{"id": "b", "title": "Bridge", "text": "The Harrow bridge was built by Ellen Marsh."}]
        >>> Realm.from_documents(rows, body="runs/demo/stages/pretrain").search("Who built the bridge?")[0].doc_id
        'b'

        ``body``: a name as in ``model.body``, or the directory of a model of your own; ``reader``: as for ``open``. Raises RealmError:
        documents or body cannot be used, or another process is indexing these documents."""
        if not documents:
            raise ConfigError("no documents are named", cure="Name files or folders: Realm.from_documents('notes/').")
        places = files_of_given(documents, rows_directory())
        if runs := [place for place in places if is_run(place)]:
            raise ConfigError("this is a run, not documents", path=runs[0], cure="Open it: Realm.open(RUN).")
        with Progress(quiet=not progress, says=False) as bars:
            return cls(open_cached(places, body, bars, reader=reader), reader)

    @classmethod
    def from_pretrained(cls, source: str | Path, *, revision: str | None = None, token: str | bool | None = None) -> Self:
        """Open a saved run from a directory or the hub, with its documents. Raises RealmError: as for ``open``, or no such repository.

        >>> Realm.from_pretrained("runs/demo").ask("What is the currency of Arvad?").question[-6:]
        'Arvad?'
        """
        directory = Path(source)
        if directory.is_dir():
            return cls.open(directory)
        found = cls.open(hub.download(str(source), revision=revision, token=token, files=hub.RUN_FILES))
        found._writes = ""  # a stranger's recipe does not say where questions and documents go
        return found

    @overload
    def ask(  # type: ignore[overload-overlap]
        self, questions: str, k: int = 5, *, abstain_below: float | None = None, write: str = "", progress: bool = False
    ) -> Answer: ...

    @overload
    def ask(
        self, questions: Iterable[str], k: int = 5, *, abstain_below: float | None = None, write: str = "", progress: bool = False
    ) -> list[Answer]: ...

    def ask(
        self, questions: str | Iterable[str], k: int = 5, *, abstain_below: float | None = None, write: str = "", progress: bool = False
    ) -> Answer | list[Answer]:
        """Answer one question or many, each from its k most relevant blocks.

        >>> answers = realm.ask(["What is the currency of Arvad?", "What is the currency of Belmor?"], k=3)
        >>> [answer.question[-7:] for answer in answers]
        [' Arvad?', 'Belmor?']

        ``abstain_below``: the confidence below which answers are marked as abstained; None: the run's own. ``write``: URL#MODEL of a
        language model that writes ``prose`` from the blocks read; if not given, that of the recipe; "none" leaves it out. Raises RunError:
        no reader; ConfigError: k is below 1; EndpointError: no prose comes."""
        asked = [questions] if isinstance(questions, str) else list(questions)
        answers: list[Answer] = []
        with Progress(quiet=not progress) as bars:
            for answer in self.stream(asked, k, abstain_below=abstain_below, write=write):
                answers.append(answer)
                bars.count("questions", len(answers), len(asked))
        return answers[0] if isinstance(questions, str) else answers

    def stream(self, questions: Iterable[str], k: int = 5, *, abstain_below: float | None = None, write: str = "") -> Iterator[Answer]:
        """Answer questions as they come, each as soon as its batch is read: ``ask`` where there is no end of them.

        >>> answers = realm.stream(f"What is the currency of {land}?" for land in ("Arvad", "Belmor"))
        >>> next(answers).question
        'What is the currency of Arvad?'
        """
        endpoint, waiting = endpoint_of(write or self._writes), iter(questions)
        while batch := list(islice(waiting, BATCH)):
            for answer in self._current().answers(batch, k, abstain_below):
                yield written(answer, endpoint) if endpoint else answer

    @overload
    def search(self, texts: str, k: int = 5) -> tuple[Hit, ...]: ...  # type: ignore[overload-overlap]

    @overload
    def search(self, texts: Iterable[str], k: int = 5) -> list[tuple[Hit, ...]]: ...

    def search(self, texts: str | Iterable[str], k: int = 5) -> tuple[Hit, ...] | list[tuple[Hit, ...]]:
        """Find the k nearest blocks of one text or many, best first, before fine-tuning, too. Raises ConfigError: k is below 1.

        >>> [hit.doc_id for hit in realm.search("the currency of Arvad", k=2)]  # doctest: +ELLIPSIS
        ['...', '...']
        """
        asked = [texts] if isinstance(texts, str) else list(texts)
        found = self._current().search_all(asked, k) if asked else []
        return found[0] if isinstance(texts, str) else found

    async def aask(self, question: str, k: int = 5, *, abstain_below: float | None = None, write: str = "") -> Answer:
        """``ask`` in a thread, for servers of your own that answer others meanwhile.

        >>> import asyncio
        >>> asyncio.run(realm.aask("What is the currency of Arvad?")).question
        'What is the currency of Arvad?'
        """
        return await asyncio.to_thread(self.ask, question, k, abstain_below=abstain_below, write=write)

    async def asearch(self, text: str, k: int = 5) -> tuple[Hit, ...]:
        """``search`` in a thread.

        >>> len(asyncio.run(realm.asearch("the currency of Arvad", k=2)))
        2
        """
        return await asyncio.to_thread(self.search, text, k)

    def explain(self, text: str, targets: Sequence[str] = (), *, k: int = 8, exclude_documents: Sequence[str] = ()) -> Explanation:
        """Show which documents help to fill each ``[MASK]`` of a sentence, a whole span each; see :func:`realm.answering.explain.explain`.

        >>> found = realm.explain("The currency of Arvad is the [MASK].", ["Tirel"], k=4)
        >>> round(found.p_y - sum(one.p_z * one.p_y_given_z for one in found.candidates), 6)
        0.0

        Args:
            targets: the hidden words, one string for each ``[MASK]``; empty: the model's best guess.
            k: number of candidates, the null document included.

        Raises RealmError: the sentence or a target cannot be used, or this run cannot fill masks."""
        return self._current().explain(text, targets=targets, k=k, exclude_documents=exclude_documents)

    def evaluate(
        self, *questions: Given, k: Sequence[int] = (), read: int = 0, abstain_below: float = 0.0, progress: bool = False
    ) -> dict[str, Any]:
        """Measure exact match, F1 and recall on questions: the object of ``realm eval --json``.

        >>> rows = [{"question": "What is the currency of Arvad?", "answers": ["Tirel"]}]
        >>> found = realm.evaluate(rows, k=[1, 5])
        >>> found["n"], sorted(found["recall"])
        (1, ['1', '5'])

        ``k``: depths of recall; ``read``: blocks read for an answer; if not given, both as in the recipe. Raises RealmError: a file cannot
        be read, or an option is out of range."""
        from realm.runs.evaluation import Wanted, evaluate_run

        with tempfile.TemporaryDirectory() as scratch, Progress(quiet=not progress) as bars:
            files = tuple(files_of_given(questions, Path(scratch)))
            wanted = Wanted(files, depths=tuple(k), read=read, abstain_below=abstain_below)
            return evaluate_run(self._run.paths.root, wanted, bars)

    def pretrain(self, steps: int = 1000, *, out: str | Path | None = None, progress: bool = True, **keys: Any) -> Self:
        """Learn from the documents alone, in a new run that starts from this one's networks; ``self`` is that run from then on.

        >>> Realm.from_documents("notes/").pretrain(steps=1000).save("runs/taught")  # doctest: +SKIP

        Args:
            out: the run directory, by default runs/NAME after the documents; the same call continues what was interrupted there.
            keys: others of ``[pretrain]`` in a recipe, such as ``batch=8``.

        Raises RealmError: as for ``realm run``."""
        fill = "pointer" if self._run.reads else "mlm"
        return self._learn("pretrain", {"fill": fill, "steps": steps} | keys, out or self._run_after_documents(), progress, new=True)

    def finetune(
        self, questions: Given, dev: Given | None = None, *, out: str | Path | None = None, progress: bool = True, **keys: Any
    ) -> Self:
        """Learn from questions and answers; ``self`` is the run that did from then on.

        >>> realm.finetune("qa_train.jsonl", preset="few-shot")  # doctest: +SKIP

        Args:
            questions: files or rows of docs/data-formats.md: {"question", "answers"}.
            dev: questions that confidence is calibrated on.
            out: the run directory: by default this run itself if it has not learnt from questions, else, and for documents, runs/NAME.
            keys: others of ``[finetune]`` in a recipe, such as ``steps=200``.

        Raises RealmError: as for ``realm run``."""
        new = out is not None or self._run.tuned is not None or self._cached
        root = Path(out or (self._run_after_documents() if new else self._run.paths.root))
        named = {"train": questions} if dev is None else {"train": questions, "dev": dev}
        files = {key: str(files_of_given([value], root)[0].resolve()) for key, value in named.items()}
        return self._learn("finetune", files | keys, root, progress, new=new)

    def add(self, *documents: Given) -> int:
        """Add files, folders or rows of documents and embed them. Returns the number of blocks that became searchable.

        >>> realm.add("more.jsonl")
        1
        >>> realm.ask("What is the currency of Novaria?").versions["corpus"]
        2

        Raises RealmError: one cannot be read, or holds no usable document; nothing is changed then."""
        return self._change(updates.add_documents, documents)

    def update(self, *documents: Given) -> int:
        """Replace documents by those with the same ids. Returns the number of blocks that became searchable. Raises RealmError: as ``add``.

        >>> realm.update([{"id": "Arvad/0", "title": "Arvad", "text": "People in Arvad pay with the lune."}])
        1
        """
        return self._change(updates.update_documents, documents)

    def remove(self, *ids: str) -> None:
        """Remove documents: no answer holds them from then on. Raises CorpusError: one is not there; nothing is changed then.

        >>> realm.remove("Belmor/1")
        """
        updates.remove_documents(self._run.paths.corpus, ids)
        self._changed = True

    def save(self, out: str | Path) -> Path:
        """Copy what answers: networks, index, documents, recipe. Returns ``out``, which must not exist. Raises RunError: it does.

        >>> Realm.load(realm.save("saved")).search("Arvad", k=1) == realm.search("Arvad", k=1)
        True
        """
        if Path(out).exists():
            raise RunError("there is something here already, and it was not changed", path=out, cure="Choose another directory.")
        with publish_directory(Path(out)) as staging:
            shutil.copytree(self._run.paths.root, staging, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*NOT_SAVED))
            open_run(staging)  # another process may have changed it meanwhile
        return Path(out)

    def push_to_hub(
        self, repository: str, *, private: bool | None = None, revision: str | None = None, token: str | bool | None = None
    ) -> str:
        """Upload what ``save`` writes, the documents included, but not the address of a language model, and return the address of the
        commit. Raises RunError: the hub refuses or cannot be reached.

        >>> realm.push_to_hub("me/my-run", private=True)  # doctest: +SKIP
        """
        with tempfile.TemporaryDirectory() as scratch:
            saved = self.save(Path(scratch) / "run")
            claim_run(RunPaths(saved), replace(self._run.recipe, write=WriteConfig()))
            (saved / "README.md").write_text(hub.RUN_CARD, "utf-8")
            return hub.upload(saved, repository, private=private, revision=revision, token=token, commit_message="Upload a REALM run")

    @property
    def abstain_below(self) -> float:
        """Confidence below which the run abstains, measured on dev questions; 0 if it was not measured.
        Raises RunError: the run has no reader."""
        return self._current().abstain_below

    @property
    def unsearchable(self) -> int:
        """Blocks of the corpus that are not in the index yet, because documents were added without embedding them."""
        return self._current().unsearchable

    @property
    def _cached(self) -> bool:
        return self._run.paths.wrapped.exists()

    def _current(self) -> OpenRun:
        """The run, reopened if its corpus has changed, so that removed documents vanish at once."""
        with self._opening:
            if self._run.inputs.store.changed():
                self._run = open_run(self._run.paths.root).read_by(self._reader)
            return self._run

    def _change(self, act: Any, documents: Sequence[Given]) -> int:
        with tempfile.TemporaryDirectory() as scratch:
            act(self._run.paths.corpus, files_of_given(documents, Path(scratch)))
        self._run, count = self._run.with_added()
        self._changed = True
        return count

    def _run_after_documents(self) -> Path:
        return Path("runs") / Path((self._run.recipe.corpus.sources or ("documents",))[0]).stem

    def _learn(self, stage: str, keys: Mapping[str, Any], out: str | Path, progress: bool, *, new: bool) -> Self:
        """Run the stages up to this one: in the run as it is, or in a new one of its documents that starts from its networks."""
        from realm.runs.run import STAGES, run_recipe

        recipe, paths = self._run.recipe, self._run.paths
        values = {name: section for name, section in asdict(recipe).items() if name != stage}
        if new:
            if self._changed or (not self._cached and self._run.inputs.store.version > 1):
                cure = "Open all of them, Realm.from_documents(...), or fine-tune this run as it is."
                raise RunError("documents were changed here, which a new run would not see", path=paths.root, cure=cure)
            tuned = self._run.tuned is not None
            body = recipe.model.body if self._cached else str(paths.stage("finetune" if tuned else "pretrain").resolve())
            read = {key: value for key, value in values["corpus"].items() if key in READ_BY}
            values = {"model": {"body": body}, "corpus": read, **({} if self._cached else {"run": values["run"]})}
            values |= {} if stage == "pretrain" else {"pretrain": {"steps": 0, "from_ict": False, "from_warm": False}}
        stages = STAGES[: STAGES.index(stage) + 1]
        with Progress(quiet=not progress) as bars:
            run_recipe(build_recipe(values, overrides={stage: dict(keys)}), out, stages=stages, progress=bars)
        self._run, self._reader = open_run(out), ""  # what has learnt reads
        return self
