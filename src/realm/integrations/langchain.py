"""LangChain: search as a retriever, questions as a tool.

>>> from realm import Realm
>>> realm = Realm.from_documents("notes/")  # doctest: +SKIP
>>> RealmRetriever(realm=realm, k=4).invoke("Who built the bridge?")[0].page_content  # doctest: +SKIP
'The Harrow bridge was built in 1911 by Ellen Marsh ...'
>>> agent = create_agent(model, tools=[ask_tool(realm)])  # doctest: +SKIP
"""

from typing import Any

from realm.answering.records import Answer, Hit
from realm.integrations import needing, origin, told
from realm.runs.api import Realm

with needing("langchain-core", "1.0"):
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.tools import BaseTool, StructuredTool


class RealmRetriever(BaseRetriever):
    """The k nearest blocks of a query as documents; their metadata has the id, title and score."""

    realm: Realm
    k: int = 5

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return _documents(self.realm.search(query, self.k))

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return _documents(await self.realm.asearch(query, self.k))


def _documents(hits: tuple[Hit, ...]) -> list[Document]:
    return [Document(id=str(hit.block_id), page_content=hit.text, metadata={**origin(hit), "score": hit.score}) for hit in hits]


def ask_tool(
    realm: Realm,
    *,
    k: int = 5,
    name: str = "ask_documents",
    description: str = "Answer a question from the user's documents, with evidence.",
) -> BaseTool:
    """Make a tool that answers a question: text for the model, and the ``Answer`` as its artifact."""

    def ask(question: str) -> tuple[str, Answer]:
        answer = realm.ask(question, k)
        return told(answer), answer

    async def aask(question: str) -> tuple[str, Answer]:
        answer = await realm.aask(question, k)
        return told(answer), answer

    return StructuredTool.from_function(ask, aask, name=name, description=description, response_format="content_and_artifact")
