"""The head of a block within so many wordpieces, the links that are the block's, and the headings in it."""

from types import SimpleNamespace

import pytest

from realm.answering.answerer import cited
from realm.documents.change.updates import sync_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.ingest.packed import bounded_head, links_of_blocks
from realm.documents.store.blocks import BlockStore


@pytest.mark.parametrize(("title", "parts", "most", "ids"), [
    ([1, 2], [[3], [4, 5]], 5, [1, 2, 3, 4, 5]),
    ([1, 2], [[3], [4, 5]], 4, [1, 2, 4, 5]),  # the outer heading goes first
    ([1, 2, 3], [[4, 5, 6]], 4, [1, 2, 4, 5]), ([1], [[4, 5, 6]], 3, [1, 4, 5]), ([1, 2, 3], [[4]], 2, [1, 4]),
])  # fmt: skip
def test_a_long_head_keeps_title_and_innermost_heading(title, parts, most, ids):
    assert bounded_head(title, parts, most) == ids


def test_a_link_is_the_block_s_in_which_its_words_begin():
    document = SimpleNamespace(text="Ann met Bob. Bob saw Ann.", links=(("Bob", 1), ("Ann", 2), ("met", 3), ("nobody", 4)))
    assert links_of_blocks(document, [(0, 12), (13, 25)]) == [[1, 3], [2]]


PARTS = [(1, "Staff manual", "This is for all."), (2, "2 Pay", "It comes on Fridays."), (2, "3 Ill", "Call."), (3, "3.1 Notes", "A week.")]
ABOVE = {"all": "", "Fridays": "2 Pay", "3": "3 Ill", "Call": "3 Ill", "week": "3 Ill: 3.1 Notes"}
FORMS = {
    "staff.md": lambda level, words: f"{'#' * level} {words}", "staff.html": lambda level, words: f"<h{level}>{words}</h{level}>",
    "Staff manual": lambda _, words: words, "Staff manual.rst": lambda level, words: f"{words}\n{'=-~'[level - 1] * 12}",
}  # fmt: skip


@pytest.mark.parametrize("name", [*FORMS, "staff.docx"])
def test_an_answer_has_the_headings_above_it_wherever_its_block_begins(tmp_path, name):
    path, corpus = tmp_path / name, tmp_path / "corpus"
    if name in FORMS:
        path.write_text("\n\n".join(f"{FORMS[name](level, words)}\n\n{text}" for level, words, text in PARTS))
    else:
        document = pytest.importorskip("docx").Document()
        for level, words, text in PARTS:
            document.add_heading(words, level)
            document.add_paragraph(text)
        document.core_properties.title = "Staff manual"
        document.save(path)
    build_corpus([path], corpus, vocab_size=300, block_length=256)
    (block,) = map((store := BlockStore.open(corpus)).block, range(len(store)))
    found = [cited(block, 1.0, 1.0, at := block.text.index(words), at + len(words)) for words in ABOVE]
    assert {one.answer: one.heading for one in found} == ABOVE and {one.text_heading for one in found} == {""}
    assert sync_documents(corpus, [path]).version == 1
    if name == "staff.md":
        path.write_text(path.read_text().replace("###", "##"))
        assert sync_documents(corpus, [path]).version == 2 and BlockStore.open(corpus).block(1).heading(at) == "3.1 Notes"
