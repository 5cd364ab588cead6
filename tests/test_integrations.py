"""The frameworks themselves call a run: LangChain, LlamaIndex, Haystack and DSPy, each skipped where it is not installed."""

import asyncio
import re
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError
from unittest.mock import Mock

import pytest

from realm import Realm
from realm.errors import ConfigError
from realm.integrations import needing

QUESTION = "What is the currency of Arvad?"
OLD = "Install it: pip install -U 'langchain-core>=9.1'"


@pytest.fixture
def realm(tiny_run):
    return Realm.open(tiny_run)


@pytest.mark.parametrize(("found", "problem"), [
    ("9.1.4", ""), ("10.0", ""), ("9.0.9rc1", f"langchain-core 9.0.9rc1 is too old. {OLD}"),
    (None, f"langchain-core is not installed. {OLD}"),
])  # fmt: skip
def test_a_framework_that_is_too_old_is_named(found, problem, monkeypatch):
    monkeypatch.setattr("realm.integrations.version", Mock(return_value=found, side_effect=None if found else PackageNotFoundError))
    with pytest.raises(ConfigError, match=re.escape(problem)) if problem else nullcontext(), needing("langchain-core", "9.1"):
        pass


def test_langchain(realm):
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    from realm.integrations.langchain import RealmRetriever, ask_tool

    retriever, hits = RealmRetriever(realm=realm, k=3), realm.search(QUESTION, k=3)
    found = retriever.invoke(QUESTION)
    assert [document.page_content for document in found] == [hit.text for hit in hits]
    assert found[0].metadata == {"doc_id": hits[0].doc_id, "block_id": hits[0].block_id, "title": hits[0].title, "score": hits[0].score}
    assert asyncio.run(retriever.ainvoke(QUESTION)) == found
    chain = retriever | (lambda documents: [document.metadata["doc_id"] for document in documents])
    assert chain.batch([QUESTION, "Belmor"])[0] == [hit.doc_id for hit in hits]
    tool, answer = ask_tool(realm, k=2), realm.ask(QUESTION, k=2)
    call = {"type": "tool_call", "id": "1", "name": tool.name, "args": {"question": QUESTION}}
    for message in (tool.invoke(call), asyncio.run(tool.ainvoke(call))):
        first, *blocks = message.content.splitlines()
        assert first in (answer.answer, "not here") and message.artifact.evidence == answer.evidence
        assert [block[:3] for block in blocks] == ["[1]", "[2]"] and answer.evidence[0].text in blocks[0]
    assert tool.args_schema.model_json_schema()["required"] == ["question"]


def test_llama_index(realm):
    pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")
    from realm.integrations.llama_index import RealmQueryEngine, RealmRetriever

    retriever, hits = RealmRetriever(realm, k=3), realm.search(QUESTION, k=3)
    for nodes in (retriever.retrieve(QUESTION), asyncio.run(retriever.aretrieve(QUESTION))):
        assert [(node.text, node.score) for node in nodes] == [(hit.text, hit.score) for hit in hits]
        assert nodes[0].metadata["doc_id"] == hits[0].doc_id
    engine, answer = RealmQueryEngine(realm, k=2), realm.ask(QUESTION, k=2)
    for response in (engine.query(QUESTION), asyncio.run(engine.aquery(QUESTION))):
        assert str(response) in (answer.answer, "not here") and response.metadata["p"] == answer.p
        assert [node.text for node in response.source_nodes] == [evidence.text for evidence in answer.evidence]


def test_haystack(tiny_run, realm):
    haystack = pytest.importorskip("haystack", reason="haystack-ai is not installed")
    from realm.integrations.haystack import RealmReader, RealmRetriever

    pipeline = haystack.Pipeline()
    pipeline.add_component("retriever", RealmRetriever(str(tiny_run), top_k=3))
    pipeline.add_component("reader", RealmReader(str(tiny_run)))
    allowed = {} if haystack.__version__.startswith("2.") else {"allowed_modules": ["realm.integrations.haystack"]}
    again = haystack.Pipeline.loads(pipeline.dumps(), **allowed)
    assert again.dumps() == pipeline.dumps()
    found = again.run({"retriever": {"query": QUESTION}, "reader": {"query": QUESTION, "top_k": 2}})
    hits, answer = realm.search(QUESTION, k=3), realm.ask(QUESTION, k=2)
    assert [document.content for document in found["retriever"]["documents"]] == [hit.text for hit in hits]
    spans = [one for one in found["reader"]["answers"] if one.data is not None]
    assert [one.data for one in spans] == [evidence.answer for evidence in answer.evidence] and len(spans) == 2
    first = spans[0]
    assert "".join(first.document.content[first.document_offset.start : first.document_offset.end].split()) == "".join(first.data.split())
    assert (found["reader"]["answers"][0].data is None) is answer.abstained


def test_dspy(realm):
    dspy = pytest.importorskip("dspy", reason="dspy is not installed")
    from realm.integrations.dspy import RealmAnswers, RealmRM

    hits, answer, model = realm.search(QUESTION, k=3), realm.ask(QUESTION, k=2), RealmRM(realm, k=2)
    with dspy.context(rm=model):
        assert dspy.Retrieve(k=3)(QUESTION).passages == [hit.text for hit in hits]
    assert [(one.score, one.doc_id) for one in model(QUESTION)] == [(hit.score, hit.doc_id) for hit in hits[:2]]
    module = RealmAnswers(realm, k=2)
    for said in (module(question=QUESTION), asyncio.run(module.acall(question=QUESTION))):
        assert said.answer in (answer.answer, "not here") and said.p == answer.p
        assert said.passages == [evidence.text for evidence in answer.evidence]
