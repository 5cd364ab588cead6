"""MediaWiki dumps: what is taken and left out, damage, decompression in parallel, worker processes, and every real dump at hand."""

import bz2
import gzip
import lzma
import re
from collections import Counter
from dataclasses import replace

import pytest
from dumps import dump, page

import realm.documents.wiki.dump as wikidump
from realm.documents.links import title_key
from realm.documents.records import DAMAGED, EMPTY_TEXT, Redirect, Rejected, SourceDocument
from realm.documents.sources import iter_documents
from realm.documents.wiki.dump import iter_pages, read_pieces, read_wikidump
from realm.documents.wiki.names import Namespaces
from realm.documents.workers import Workers
from realm.errors import DataError


def articles(count):
    return dump(*(page(n, f"Page {n}", f"The '''page''' of number {n} is [[about|all about]] cats. " * 20) for n in range(count)))


def documents(records):
    return [record for record in records if isinstance(record, SourceDocument)]


def test_articles_and_what_is_left_out(tmp_path):
    path = tmp_path / "wiki.xml"
    pages = [
        page(1, "Cat &amp; dog", "A '''cat''' [[Resym:x.jpg]]is here.\n== References ==\n&lt;ref>x&lt;/ref>"),
        page(2, "Old name", "#REDIRECT [[Cat]]", extra='<redirect title="Cat" />'), page(3, "Talk:Cat", "Talk.", ns="1"),
        page(4, "Mercury", "It may mean: {{disambig}}"), page(5, "List of cats", "* Tom"),
        page(6, "Data", "{}", revision="<model>json</model>"), page(7, "Empty", "{{only|templates}}"),
    ]  # fmt: skip
    path.write_text(dump(*pages), "utf-8")
    article, *others = read_wikidump(path)
    assert replace(article, headings=None, structured=False) == SourceDocument("testwiki:1", "Cat & dog", "A cat is here.", str(path), 4)
    assert others == [Redirect(str(path), 7, title_key("Old name"), title_key("Cat")), Rejected(str(path), 12, EMPTY_TEXT)]


@pytest.mark.parametrize("schema", [f"0.{minor}" for minor in range(3, 12)])
def test_schemas(tmp_path, schema):
    """Before 0.6 pages have no namespace element, before 0.4 redirects none either."""
    path = tmp_path / "wiki.xml"
    ns = None if schema < "0.6" and len(schema) == 3 else "0"
    pages = [page(1, "A", "The A."), page(2, "B", "#redirect [[A]]"), page(3, "Templato:C", "c", ns=ns and "10"), page(4, "2001: D", "d")]
    if ns is None:
        pages = [text.replace("<ns>0</ns>", "") for text in pages]
    path.write_text(dump(*pages, schema=schema), "utf-8")
    assert [document.title for document in documents(read_wikidump(path))] == ["A", "2001: D"]


def test_the_latest_of_several_revisions(tmp_path):
    path = tmp_path / "wiki.xml"
    older, newest, old = (
        f"<revision><timestamp>{time}</timestamp><text>{text}</text></revision>"
        for time, text in [("2019-05-01T00:00:00Z", "older"), ("2021-01-01T00:00:00Z", "newest"), ("2020-01-01T00:00:00Z", "old")]
    )
    path.write_text(dump(f"<page><title>A</title><ns>0</ns><id>1</id>{older}{newest}{old}</page>", site=""), "utf-8")
    assert [(document.doc_id, document.text) for document in documents(read_wikidump(path))] == [("1", "newest")]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig"])
def test_encodings(tmp_path, encoding):
    path = tmp_path / "wiki.xml"
    declared = '<?xml version="1.0" encoding="utf-16"?>' if encoding == "utf-16-le" else ""
    path.write_bytes((declared + dump(page(1, "Кот", "Кот – животное."))).encode(encoding))
    assert [document.text for document in documents(read_wikidump(path))] == ["Кот – животное."]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_truncated_xml(tmp_path, encoding):
    path = tmp_path / "wiki.xml"
    text = dump(page(1, "A", "The A."), page(2, "B", "The B."), page(3, "C", "The C."))
    path.write_bytes(text[: text.index("The C.")].encode(encoding))
    *whole, rejected = read_wikidump(path)
    assert [document.title for document in documents(whole)] == ["A", "B"]
    assert rejected == Rejected(str(path), 6, wikidump.BROKEN_XML)


def test_missing_files_and_what_follows_the_end_are_rejected(tmp_path):
    path = tmp_path / "wiki.xml"
    path.write_text(dump(page(1, "A", "The A.")) + dump(page(2, "B", "The B.")), "utf-8")
    first, rejected = read_wikidump(path)
    assert isinstance(first, SourceDocument) and isinstance(rejected, Rejected) and rejected.reason == wikidump.BROKEN_XML
    assert [type(record) for record in read_wikidump(tmp_path / "none.xml.bz2")] == [Rejected]


@pytest.mark.parametrize("ending", [".bz2", ".gz", ".xz"])
def test_truncated_compression(tmp_path, ending):
    pack = {".bz2": lambda data: bz2.compress(data, 1), ".gz": gzip.compress, ".xz": lzma.compress}[ending]
    noise = "".join(f"{number * 7919 % 99991} " for number in range(20_000))
    data = pack(dump(*(page(n, f"Page {n}", f"{n} " + noise) for n in range(8))).encode())
    path = tmp_path / f"wiki.xml{ending}"
    path.write_bytes(data[: len(data) * 7 // 8])
    *whole, rejected = read_wikidump(path)
    assert isinstance(rejected, Rejected) and rejected.reason == DAMAGED
    assert [document.doc_id for document in documents(whole)] == [f"testwiki:{n}" for n in range(len(whole))]
    assert ending == ".xz" or len(whole) >= 4


@pytest.mark.parametrize(("content", "said"), [
    ("<rss><channel/></rss>", "this is not a MediaWiki XML dump"), ("plain text", "this is not a MediaWiki XML dump"),
    ("", "this is not a MediaWiki XML dump"),
    ('<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;">]><mediawiki>&d;</mediawiki>', "document type"),
])  # fmt: skip
def test_no_dump(tmp_path, content, said):
    path = tmp_path / "other.xml"
    path.write_text(content, "utf-8")
    with pytest.raises(DataError, match=said) as caught:
        list(read_wikidump(path))
    assert "\n" not in str(caught.value) and caught.value.cure


# --- decompression


def _many_blocks():
    return "".join(f"{number * number % 1_000_003:x} " for number in range(120_000)).encode()


@pytest.mark.parametrize("streams", [1, 9])
def test_bzip2_of_one_stream_and_of_many(tmp_path, streams):
    """A single stream of many blocks, and a file of many streams, against the bz2 module."""
    data = _many_blocks()
    step = -(-len(data) // streams)
    packed = b"".join(bz2.compress(data[at : at + step], 1) for at in range(0, len(data), step))
    assert packed.count(b"1AY&SY") >= streams  # the magic number of a block; those within a stream lie between bytes
    path = tmp_path / "data.bz2"
    path.write_bytes(packed)
    assert b"".join(read_pieces(path)) == bz2.decompress(packed) == data


@pytest.mark.parametrize("name", ["wiki.xml", "wiki.xml.bz2", "wiki.xml.gz", "wiki"])
@pytest.mark.parametrize("kind", [".bz2", ".gz", ".xz", ".zst", ""])
def test_what_counts_is_the_content_not_the_name(tmp_path, pack, name, kind):
    path = tmp_path / f"packed{kind}"
    pack(path, dump(page(1, "A", "The A.")).encode())
    path = path.rename(tmp_path / name)
    assert [document.doc_id for document in documents(iter_documents(path))] == ["testwiki:1"]


def test_damaged_bzip2_gives_what_was_whole(tmp_path):
    data = _many_blocks() * 4
    packed = bytearray(bz2.compress(data, 1))
    packed[len(packed) // 2] ^= 0xFF
    path = tmp_path / "data.bz2"
    path.write_bytes(packed)
    whole = b""
    with pytest.raises(wikidump.DamagedData):
        for piece in read_pieces(path):
            whole += piece
    assert data.startswith(whole) and len(whole) > len(data) // 8


# --- worker processes


def test_the_result_does_not_depend_on_the_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(wikidump, "CHUNK_CHARS", 20_000)
    path = tmp_path / "wiki.xml.bz2"
    path.write_bytes(bz2.compress(articles(90).encode()))
    alone = list(read_wikidump(path))
    assert len(alone) == 90
    with Workers(2) as workers:
        assert list(read_wikidump(path, workers)) == alone


# --- real dumps


def _counted_in_xml(data):
    """Pages of namespace 0 without a redirect element, by the XML's text alone."""
    text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8")
    heads = (part.split("<revision>")[0] for part in text.split("<page>")[1:])
    return sum("<ns>0</ns>" in head and not re.search(r"<redirect\b", head) for head in heads)


# Pages left out: disambiguation, lists, redirects that only their text shows.
LEFT_OUT = {
    "dbpedia-minidump-en.xml.bz2": (1, 0, 0), "enwiki-2013-shortened-pages-articles.xml.bz2": (8, 2, 0),
    "enwiki-table-markup.xml.bz2": (0, 1, 0), "smallwiki-pages-articles.xml.bz2": (7, 0, 0),
    "tinywiki-pages-articles.xml.bz2": (1, 0, 1),
}  # fmt: skip


def test_every_dump_is_accounted_for(data_dir, tmp_path):
    """Articles and what is left out add up to the namespace-0 pages without a redirect that another way of counting finds."""
    paths = [path for path in sorted((data_dir / "dumps").iterdir()) if path.name.endswith((".xml", ".xml.bz2"))]
    assert len(paths) == 15
    for path in paths:
        reasons = Counter()
        data = bz2.decompress(path.read_bytes()) if path.suffix == ".bz2" else path.read_bytes()
        plain = tmp_path / "dump.xml"
        plain.write_bytes(data)
        for site, entry in iter_pages(plain):
            assert isinstance(entry, wikidump.WikiPage), path
            reasons[wikidump.why_left_out(entry, Namespaces(site.namespaces))] += 1
        disambiguations, lists, by_text = LEFT_OUT.get(path.name, (0, 0, 0))
        assert (reasons[wikidump.DISAMBIGUATION], reasons[wikidump.LIST]) == (disambiguations, lists), path
        assert reasons[None] == _counted_in_xml(data) - disambiguations - lists - by_text, path


@pytest.mark.parametrize(
    ("name", "without_prose"),
    [("aawiki-20260101-pages-meta-current", 1), ("bgwiki-shortened-pages-articles", 0), ("smallwiki-pages-articles", 0)]
    + [(f"dbpedia-minidump-{language}", 0) for language in ("ar", "commons", "fr", "ja", "simple", "zh")],
)
def test_real_dumps_leave_prose_only(data_dir, name, without_prose):
    records = list(read_wikidump(data_dir / "dumps" / f"{name}.xml.bz2"))
    assert [record.reason for record in records if isinstance(record, Rejected)] == [EMPTY_TEXT] * without_prose
    assert not [one for one in documents(iter(records)) if any(mark in one.text for mark in ("{{", "[[", "<ref", "{|", "'''"))]
