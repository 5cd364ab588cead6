"""The Python API: open a trained run, ask it, search it, add documents to it."""

from collections.abc import Sequence
from pathlib import Path

from realm.answering.levels import leveled
from realm.answering.opening import OpenRun, open_run
from realm.answering.records import Answer, Explanation, Hit
from realm.documents.change.updates import add_documents


class Realm:
    """A trained run that answers questions with evidence.

    Examples:
        >>> from realm import Realm
        >>> realm = Realm.open("runs/demo")
        >>> answer = realm.ask("What is the currency of Arvad?", k=3)
        >>> any(answer.answer in evidence.text for evidence in answer.evidence)
        True
        >>> best = answer.evidence[0]
        >>> best.text[best.start : best.end] == best.answer
        True
        >>> round(sum(evidence.p_z for evidence in answer.evidence), 3)
        1.0
        >>> [hit.doc_id for hit in realm.search("the currency of Arvad", k=2)]  # doctest: +ELLIPSIS
        ['...', '...']

        Documents can be added at any time, without training:

        >>> realm.add_documents("more.jsonl")
        1
        >>> realm.ask("What is the currency of Novaria?").versions["corpus"]
        2
    """

    def __init__(self, run: OpenRun):
        self._run = run

    @classmethod
    def open(cls, run: str | Path) -> "Realm":
        """Open a run directory. Raises RealmError: no run, pre-training has not ended, or its parts do not match."""
        return cls(open_run(run))

    def ask(self, question: str, k: int = 5) -> Answer:
        """Answer a question from the k most relevant blocks. Raises RunError: no reader; ConfigError: k is below 1."""
        run = self._current()
        return leveled(run.answerer.answer([question], k=run.require_k(k))[0], run.abstain_below)

    def search(self, text: str, k: int = 5) -> tuple[Hit, ...]:
        """Find the k nearest blocks, best first, before fine-tuning, too. Raises ConfigError: k is below 1."""
        return self._current().search(text, k)

    def explain(self, text: str, targets: Sequence[str] = (), *, k: int = 8, exclude_documents: Sequence[str] = ()) -> Explanation:
        """Show which documents help to fill each ``[MASK]`` of a sentence, a whole span each; see :func:`realm.answering.explain.explain`.

        Args:
            targets: the hidden words, one string for each ``[MASK]``; empty: the model's best guess.
            k: number of candidates, the null document included.

        Raises RealmError: the sentence or a target cannot be used, or this run cannot fill masks.
        """
        return self._current().explain(text, targets=targets, k=k, exclude_documents=exclude_documents)

    def add_documents(self, *sources: str | Path) -> int:
        """Add files or folders of documents and embed them. Returns the number of blocks that became searchable.

        Raises RealmError: a source cannot be read, or holds no usable document; nothing is changed then.
        """
        add_documents(self._run.paths.corpus, [Path(source) for source in sources])
        self._run, count = self._run.with_added()
        return count

    @property
    def abstain_below(self) -> float:
        """Confidence below which the run abstains, measured on dev questions; 0 if it was not measured.
        Raises RunError: the run has no reader.
        """
        return self._current().abstain_below

    @property
    def unsearchable(self) -> int:
        """Blocks of the corpus that are not in the index yet, because documents were added without embedding them."""
        return self._current().unsearchable

    def _current(self) -> OpenRun:
        """The run, reopened if its corpus has changed, so that removed documents vanish at once."""
        if self._run.inputs.store.changed():
            self._run = open_run(self._run.paths.root)
        return self._run
