"""DSPy: search as the retrieval model of ``dspy.settings``, questions as a module.

>>> from realm import Realm
>>> realm = Realm.from_documents("notes/")  # doctest: +SKIP
>>> dspy.configure(rm=RealmRM(realm))  # doctest: +SKIP
>>> RealmAnswers(realm)(question="Who built the bridge?").answer  # doctest: +SKIP
'Ellen Marsh'
"""

from typing import Any

from realm.answering.records import Answer
from realm.integrations import claims, needing, origin
from realm.runs.api import Realm

with needing("dspy", "3.0"):
    import dspy


class RealmRM:
    """The k nearest blocks of a query: each has its text as ``long_text``, its score, and its document's id and title."""

    def __init__(self, realm: Realm, k: int = 5):
        self._realm, self._k = realm, k

    def __call__(self, query: str, k: int | None = None, **_: Any) -> list[Any]:
        """Find ``k`` blocks, best first."""
        hits = self._realm.search(query, k or self._k)
        return [dspy.Example(long_text=hit.text, score=hit.score, **origin(hit)) for hit in hits]


class RealmAnswers(dspy.Module):  # type: ignore[misc]
    """Answers as predictions: the span, or "not here", without a language model; its p and level, and the blocks read as passages."""

    def __init__(self, realm: Realm, k: int = 5):
        super().__init__()
        self._realm, self._k = realm, k

    def forward(self, question: str) -> Any:
        """Answer a question."""
        return _prediction(self._realm.ask(question, self._k))

    async def aforward(self, question: str) -> Any:
        """Answer a question, while others are answered."""
        return _prediction(await self._realm.aask(question, self._k))


def _prediction(answer: Answer) -> Any:
    passages = [evidence.text for evidence in answer.evidence]
    said = answer.answer if claims(answer) else "not here"
    return dspy.Prediction(answer=said, p=answer.p, level=answer.level, passages=passages)
