"""LlamaIndex: search as a retriever, answers as a query engine.

>>> from realm import Realm
>>> realm = Realm.from_documents("notes/")  # doctest: +SKIP
>>> str(RealmQueryEngine(realm).query("Who built the bridge?"))  # doctest: +SKIP
'Ellen Marsh'
"""

from typing import Any

from realm.answering.records import Answer, Evidence, Hit
from realm.integrations import claims, needing, origin
from realm.runs.api import Realm

with needing("llama-index-core", "0.14"):
    from llama_index.core.base.base_query_engine import BaseQueryEngine
    from llama_index.core.base.response.schema import Response
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode


class RealmRetriever(BaseRetriever):
    """The k nearest blocks of a query as nodes with scores."""

    def __init__(self, realm: Realm, k: int = 5, **kwargs: Any):
        super().__init__(**kwargs)
        self._realm, self._k = realm, k

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(hit, hit.score) for hit in self._realm.search(query_bundle.query_str, self._k)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(hit, hit.score) for hit in await self._realm.asearch(query_bundle.query_str, self._k)]


class RealmQueryEngine(BaseQueryEngine):
    """Answers as responses: the span, or "not here"; the blocks read as source nodes, scored by p(z|x); p and confidence as metadata."""

    def __init__(self, realm: Realm, k: int = 5, callback_manager: Any = None):
        super().__init__(callback_manager)
        self._realm, self._k = realm, k

    def _get_prompt_modules(self) -> dict[str, Any]:
        return {}

    def _query(self, query_bundle: QueryBundle) -> Response:
        return _response(self._realm.ask(query_bundle.query_str, self._k))

    async def _aquery(self, query_bundle: QueryBundle) -> Response:
        return _response(await self._realm.aask(query_bundle.query_str, self._k))


def _node(found: Hit | Evidence, score: float) -> NodeWithScore:
    return NodeWithScore(node=TextNode(id_=str(found.block_id), text=found.text, metadata=origin(found)), score=score)


def _response(answer: Answer) -> Response:
    facts = {"answer": answer.answer, "p": answer.p, "confidence": answer.confidence, "level": answer.level}
    sources = [_node(evidence, evidence.p_z) for evidence in answer.evidence]
    return Response(response=answer.answer if claims(answer) else "not here", source_nodes=sources, metadata=facts)
