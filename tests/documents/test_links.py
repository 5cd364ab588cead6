"""Edges between documents: links of wiki and HTML pages, redirects, titles in the text; through every change of the corpus."""

import time

import numpy as np
import pytest
from dumps import dump, page
from small import corpus_of

from realm.documents.change.compaction import compact_corpus
from realm.documents.change.updates import add_documents, remove_documents, sync_documents, update_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.links import MOST_LINKS, Redirects, bounded, document_key, reference_key, title_key
from realm.documents.pages.hypertext import page_of
from realm.documents.pages.texts import html_page
from realm.documents.records import TOO_MANY_LINKS, Rejected, SourceDocument
from realm.documents.sources import LOOK
from realm.documents.store.blocks import BlockStore
from realm.documents.wiki.text import clean_wikitext
from realm.search.links import Neighbours, mentions
from realm.text.sentences import split_sentences


def build(out, *sources, **options):
    build_corpus(sources, out, vocab_size=300, block_length=48, workers=1, **options)
    return out


def led_to(corpus, doc_id):
    """Documents that any block of a document leads to, each once, in order."""
    store = BlockStore.open(corpus)
    neighbours = Neighbours(store)
    rows = [row for row in store.live_rows_of_document(doc_id).tolist() for row in neighbours.of_row(row).tolist()]
    return list(dict.fromkeys(store.doc_id(row) for row in rows))


def wiki(path, *pages):
    path.write_text(dump(*(page(number, title, text) for number, (title, text) in enumerate(pages, 1)), site=""), "utf-8")
    return path


PAGES = (
    ("Atitlán", "The lake lies in [[Guatemalan Republic|the highlands]]. {{Box|[[Oslo]]}} It is [[deep]]. See [[circle one]]."),
    ("Guatemalan Republic", "#REDIRECT [[Guatemala (country)#Name]]"),
    ("Guatemala (country)", "#redirect [[Guatemala]]"),
    (
        "Guatemala",
        "A country. Its capital is [[Guatemala City]], and [[#History|history]] is long. "
        + " ".join(f"In {year} coffee grew there." for year in range(1900, 1930)),
    ),
    ("Guatemala City", "The city is the capital of [[guatemala]]."),
    ("Oslo", "A city in Norway. Guatemala City is far from it."),
    ("Circle one", "#REDIRECT [[Circle two]]"),
    ("Circle two", "#REDIRECT [[Circle one]]"),
)


def test_links_of_a_wiki_lead_through_redirects_and_circles_lead_nowhere(tmp_path):
    corpus = build(tmp_path / "corpus", wiki(tmp_path / "wiki.xml", *PAGES))
    assert led_to(corpus, "1") == ["4"]  # through two redirects; the link in the template is no prose
    assert led_to(corpus, "4") == ["5"] and led_to(corpus, "5") == ["4"]
    assert led_to(corpus, "6") == ["5"]  # it has no link: the title in its text counts
    store = BlockStore.open(corpus)
    rows = store.live_rows_of_document("4")
    assert len(rows) > 3 and [len(store.links(row)) for row in rows.tolist()] == [1] + [0] * (len(rows) - 1)
    assert [store.doc_id(row) for row in Neighbours(store).of_row(int(store.live_rows_of_document("5")[0]))] == ["4"] * len(rows)


def test_links_survive_every_change(tmp_path):
    corpus = build(tmp_path / "corpus", wiki(tmp_path / "wiki.xml", *PAGES))
    remove_documents(corpus, ["4"])
    assert led_to(corpus, "1") == [] == led_to(corpus, "5")
    compact_corpus(corpus, purge=True)
    assert led_to(corpus, "6") == ["5"]
    add_documents(
        corpus, [wiki(tmp_path / "more.xml", *[("", "")] * 8, ("Guatemala", "Volcanoes stand there. [[Oslo]] has none."))], workers=1
    )
    assert led_to(corpus, "1") == ["9"] and led_to(corpus, "9") == ["6"]
    changed = wiki(tmp_path / "changed.xml", ("Atitlán", "The lake is near [[Christiania]] now."), ("Christiania", "#REDIRECT [[Oslo]]"))
    update_documents(corpus, [changed], workers=1)
    assert led_to(corpus, "1") == ["6"]
    sync_documents(corpus, [wiki(tmp_path / "wiki.xml", *PAGES)], workers=1)
    assert led_to(corpus, "1") == ["4"] == led_to(corpus, "5")
    compact_corpus(corpus)
    assert led_to(corpus, "1") == ["4"]


def test_links_of_html_files_and_of_fetched_pages(tmp_path):
    pytest.importorskip("trafilatura")
    pages = tmp_path / "site" / "places"
    pages.mkdir(parents=True)
    text = "<html><title>{}</title><body><p>{}</p></body></html>"
    there = '<a href="../my%20town.html#top">our town</a>, <a href="https://example.org/x">the web</a>, <a href="/root.html">the root</a>'
    (pages / "lake.html").write_text(text.format("The lake", f"The lake is deep and old. It is near {there} and much else."), "utf-8")
    (tmp_path / "site" / "my town.html").write_text(text.format("A town", "The town is large, and nobody knows its age."), "utf-8")
    assert led_to(build(tmp_path / "corpus", tmp_path / "site"), "places/lake.html") == ["my town.html"]
    page = b'<html><body><p>A page that leads to <a href="b.html?x=1#y">the other page</a> of the site.</p></body></html>'
    record = html_page(page, "utf-8", "https://example.org/a.html", "", "p", 1, 10)[0]
    assert isinstance(record, SourceDocument)
    assert record.links == (("the other page", document_key(b"https://example.org/b.html?x=1")),)
    assert reference_key("a.html", "mailto:x@y") is None and reference_key("a.html", "http://[") is None


NAMES = ("Guatemala", "Water", "New year", "Bank of England", "The Who", "iPhone", "中国的首都", "Washington, D.C.", "St. John's", "AC/DC")


@pytest.mark.parametrize(("text", "found"), [
    ("It is near Guatemala.", ["Guatemala"]),
    ("Guatemala is near.", []),  # the capital may be the sentence's
    ("Water is wet. New year comes. He drinks water.", []),
    ("Bank of England notes. The Who sang.", ["Bank of England", "The Who"]), ("who reads the iPhone?", ["iPhone"]),
    ("北京是中国的首都。", ["中国的首都"]), ("He went to Washington, D.C. and to St. John's.", ["Washington, D.C.", "St. John's"]),
])  # fmt: skip
def test_titles_that_are_ordinary_words_are_no_names(text, found):
    places = mentions(text, split_sentences(text))
    assert [mention.name for place in places for mention in place if mention.name in NAMES] == found
    for place in places:
        assert [mention.end for mention in place] == sorted((mention.end for mention in place), reverse=True)
        assert all(" ".join(text[mention.start : mention.end].split()) == mention.name for mention in place)


def test_the_longest_title_counts_and_several_documents_may_have_it(tmp_path):
    rows = [
        ("a", "Notes", "They left Guatemala City early. Then they saw Oslo, and later oslo again."), ("b", "Guatemala", "A country."),
        ("c", "Guatemala City", "A city."), ("d", "Oslo", "One paragraph."), ("e", "Oslo", "Another."), ("f", "later", "No name."),
    ]  # fmt: skip
    assert led_to(corpus_of(tmp_path, rows, vocab_size=300, workers=1), "a") == ["c", "d", "e"]


def test_redirects_are_followed_within_bounds():
    pairs = np.array([[1, 2], [2, 3], [3, 4], [10, 11], [11, 10], [5, 5], [1, 99]], np.uint64)
    found = Redirects(pairs).resolve(np.array([1, 4, 7, 5, 10], np.uint64)).tolist()
    assert found[:4] == [4, 4, 7, 5] and found[4] in (10, 11)
    assert Redirects(np.empty((0, 2), np.uint64)).resolve(np.array([1], np.uint64)).tolist() == [1]
    kept, cut = bounded([("a", 1), (" ", 2), ("b", 1), ("c\n d", 3)])
    assert kept == (("a", 1), ("c d", 3)) and not cut
    assert bounded((str(number), number) for number in range(MOST_LINKS))[1] is False
    assert bounded((str(number), number) for number in range(MOST_LINKS + 1)) == (tuple((str(n), n) for n in range(MOST_LINKS)), True)
    html = "<p>" + "".join(f'<a href="{number}.html">{number}</a>' for number in range(300_000)) + '<a href="open'
    assert len(page_of(html)[1]) == MOST_LINKS + 1
    assert page_of('<a>no</a><a href="x">the <b>other</b></a></a><a href="y">never ends')[1] == [("the other", "x")]


def test_a_page_with_a_million_links_keeps_the_first_and_is_counted(tmp_path):
    links = []
    clean_wikitext(" ".join(f"[[P{number}]]" for number in range(1_000_000)), links=links)
    assert len(links) == 1_000_000 and bounded((words, title_key(name)) for words, name in links)[1]
    many, started = " ".join(f"[[P{number}]]" for number in range(50_000)), time.perf_counter()
    source = wiki(tmp_path / "wiki.xml", ("All", f"Words first. {many}"), ("P7", "A page that others name."))
    corpus = build(tmp_path / "corpus", source, strict=True)  # which takes a document without all of its links
    assert time.perf_counter() - started < 60  # linear: seconds
    store = BlockStore.open(corpus)
    assert store.manifest.rejected == {TOO_MANY_LINKS: 1} and store.manifest.documents == 2
    assert sum(len(store.links(row)) for row in range(len(store))) == MOST_LINKS
    assert led_to(corpus, "1") == ["2"]


def test_a_link_is_the_block_s_in_which_its_words_stand():
    links = []
    prose = clean_wikitext(
        "'''A''' is [[b_c#d|the ''B'']] and [[:Category:X]], [[File:y.jpg|[[z]]]][[File:y.jpg|thumb|[[w]]]] [[#own]].", links=links
    )
    assert links == [("the B", "b c"), ("Category:X", "Category:X"), ("w", "w")] and "the B and Category:X" in prose
    assert title_key("b  c") == title_key("B c") != title_key("B C")
    assert isinstance(html_page(b"", "utf-8", "a", "", "p", 1, 5)[0], Rejected) and LOOK.format is None
