"""Haystack: a retriever and a reader that serialise with their pipeline; ``Pipeline.load`` of version 3 wants this module allowed.

>>> RealmRetriever("notes/").run(query="Who built the bridge?")["documents"][0].content  # doctest: +SKIP
'The Harrow bridge was built in 1911 by Ellen Marsh ...'
"""

from functools import cached_property
from typing import Any

from realm.answering.records import Evidence, Hit
from realm.integrations import claims, needing, opened, origin
from realm.runs.api import Realm

with needing("haystack-ai", "2.20"):
    from haystack import Document, ExtractedAnswer, component, default_from_dict, default_to_dict


class _Component:
    """A component that opens its run or documents when it is first run."""

    def __init__(self, place: str, top_k: int = 5):
        """``place``: a run directory, or a file or folder of documents; ``top_k``: blocks to find or read."""
        self.place, self.top_k = place, top_k

    @cached_property
    def _realm(self) -> Realm:
        return opened(self.place)

    def warm_up(self) -> None:
        """Open the run or the documents."""
        self._realm  # noqa: B018

    def to_dict(self) -> dict[str, Any]:
        """Serialise the component: the place, and the number of blocks."""
        data: dict[str, Any] = default_to_dict(self, place=self.place, top_k=self.top_k)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        """Make the component that ``to_dict`` has serialised."""
        return default_from_dict(cls, data)


@component
class RealmRetriever(_Component):
    """The blocks nearest to a query."""

    @component.output_types(documents=list[Document])
    def run(self, query: str, top_k: int | None = None) -> dict[str, list[Document]]:
        """Find ``top_k`` blocks, best first."""
        return {"documents": [_document(hit, hit.score) for hit in self._realm.search(query, top_k or self.top_k)]}


@component
class RealmReader(_Component):
    """Answers to a query from the blocks that the run itself retrieves."""

    @component.output_types(answers=list[ExtractedAnswer])
    def run(self, query: str, top_k: int | None = None) -> dict[str, list[ExtractedAnswer]]:
        """Answer from ``top_k`` blocks, best first, a span each; before them an answer without data, where none is claimed."""
        answer = self._realm.ask(query, top_k or self.top_k)
        found = [_extracted(query, evidence, evidence.p_span) for evidence in answer.evidence]
        return {"answers": found if claims(answer) else [ExtractedAnswer(query=query, score=1.0 - answer.sureness), *found]}


def _document(found: Hit | Evidence, score: float) -> Document:
    return Document(id=str(found.block_id), content=found.text, meta=origin(found), score=score)


def _extracted(query: str, evidence: Evidence, score: float) -> ExtractedAnswer:
    span = ExtractedAnswer.Span(evidence.start, evidence.end)
    document = _document(evidence, evidence.p_z)
    return ExtractedAnswer(query=query, score=score, data=evidence.answer, document=document, document_offset=span, meta=origin(evidence))
