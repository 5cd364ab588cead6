"""What agents call: pages that fit, cursors, places that change between two calls."""

import shutil

import pytest
from pydantic import ValidationError

from realm.documents.change.updates import add_documents
from realm.errors import DataError, RealmError
from realm.serve import tools
from realm.serve.tools import AskCall, ExplainCall, Place, ReadCall, SearchCall


@pytest.fixture
def place(run_copy):
    return Place(run_copy, (), "", print)


@pytest.fixture(scope="module")
def opened(tiny_run):
    return Place(tiny_run, (), "", print).current()


def test_search_pages_go_on_where_the_last_one_ended(opened):
    whole = tools.search(opened, SearchCall(text="the currency of Arvad", k=20))
    first = tools.search(opened, SearchCall(text="the currency of Arvad", k=2))
    second = tools.search(opened, SearchCall(text="the currency of Arvad", k=2, cursor=first.next))
    assert whole.blocks[:4] == first.blocks + second.blocks and (whole.next, second.next) == (None, 4)
    assert tools.search(opened, SearchCall(text="x", cursor=99)) == tools.Found([], None)
    best = whole.blocks[0]
    assert best.text == tools.read(opened, ReadCall(block=best.block_id, around=0)).blocks[0].text and best.end - best.start == len(
        best.text
    )


def test_answers_fit_into_a_context(opened, monkeypatch):
    monkeypatch.setattr(tools, "MOST_CHARS", 50)
    found = tools.search(opened, SearchCall(text="the currency of Arvad", k=5))
    assert len(found.blocks) == 1 and len(found.blocks[0].text) == 50 and found.next == tools.INSIDE
    told = tools.ask(opened, AskCall(question="What is the currency of Arvad?", k=4))
    assert (len(told.evidence), told.left_out) == (1, 3)
    shown, whole = told.evidence[0], opened.answers(["What is the currency of Arvad?"], 4)[0].evidence[0]
    assert len(shown.text) <= 50 and shown.text[shown.start : shown.end] == whole.text[whole.start : whole.end]
    assert whole.text[shown.doc_start - whole.doc_start :].startswith(shown.text)
    explained = tools.explain(opened, ExplainCall(text="The currency of Arvad is the [MASK].", targets=["Tirel"], k=3))
    assert len(explained.candidates) == 1 + 0 * explained.p_y  # the null document has no text, and the next one is too long


@pytest.mark.parametrize("most", [7, 50, 10**6])
def test_cursors_reach_the_end_of_blocks_that_are_longer_than_an_answer(opened, monkeypatch, most):
    whole = {one.doc_id: one for one in (tools.read(opened, ReadCall(document=name)) for name, _ in opened.listed(0, 20)[0])}
    ranked = tools.search(opened, SearchCall(text="the currency of Arvad", k=20)).blocks
    monkeypatch.setattr(tools, "MOST_CHARS", most)

    def paged(of, call):
        pages = [of(opened, call)]
        while pages[-1].next is not None:
            pages.append(of(opened, call.model_copy(update={"cursor": pages[-1].next})))
        assert all(0 < sum(len(block.text) for block in page.blocks) <= most for page in pages)
        return [block for page in pages for block in page.blocks]

    def joined(blocks):
        texts, ends = {}, {}
        for block in blocks:
            assert ends.get(block.block_id, block.start) == block.start
            texts[block.block_id] = texts.get(block.block_id, "") + block.text
            ends[block.block_id] = block.start + len(block.text)
        return list(texts.items())

    for name, page in whole.items():
        assert joined(paged(tools.read, ReadCall(document=name))) == joined(page.blocks)
    around = ReadCall(block=ranked[0].block_id, around=1)
    assert (ranked[0].block_id, ranked[0].text) in joined(paged(tools.read, around))
    found = paged(tools.search, SearchCall(text="the currency of Arvad", k=3))
    assert joined(found) == joined(ranked) and all(block.end - block.start == len(block.text) for block in found)
    assert tools.read(opened, ReadCall(document=ranked[0].doc_id, cursor=99)).blocks == []


def test_nothing_is_claimed_without_confidence(opened, monkeypatch):
    question = AskCall(question="What is the currency of Arvad?")
    monkeypatch.setattr(type(opened), "abstain_below", 0.0)
    claimed = tools.ask(opened, question)
    assert claimed.level in ("answer", "probably") and claimed.answer in claimed.evidence[0].text
    monkeypatch.setattr(type(opened), "abstain_below", 1.1)
    told = tools.ask(opened, question)
    assert (told.level, told.answer, told.said, told.shown) == ("closest", tools.NOT_HERE, "", "") and told.evidence


def test_documents_are_read_around_a_block_and_listed_page_by_page(opened):
    page = tools.read(opened, ReadCall(document="Arvad/0"))
    assert (page.doc_id, page.title, page.next) == ("Arvad/0", "Arvad", None)
    assert tools.read(opened, ReadCall(block=page.blocks[0].block_id)).blocks == page.blocks
    rows, following = opened.listed(0, 5)
    assert rows[0] == ("Arvad/0", "Arvad") and len(rows) == following == 5
    assert opened.listed(10, 5)[1] is None
    for wrong in (ReadCall(document="nobody"), ReadCall(block=10**6)):
        with pytest.raises(DataError, match="has the id"):
            tools.read(opened, wrong)


@pytest.mark.parametrize(
    "given", [{}, {"document": "a", "block": 1}, {"document": " "}, {"block": 1, "around": 11}, {"document": "a", "page": 1}]
)
def test_calls_that_are_refused(given):
    with pytest.raises(ValidationError):
        ReadCall.model_validate(given)


def test_a_run_is_followed_and_opened_again_when_it_went_and_came_back(place, tiny_run):
    before = place.current()
    assert place.current() is before
    add_documents(before.paths.corpus, [tiny_run.parent / "more.jsonl"])
    assert "Novaria/0" in place.current().documents and "Novaria/0" not in before.documents
    root = before.paths.root
    shutil.move(root, root.with_name("away"))
    with pytest.raises(RealmError):
        place.current()
    shutil.move(root.with_name("away"), root)
    assert place.current().documents
