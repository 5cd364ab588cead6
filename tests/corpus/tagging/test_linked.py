"""Links as salient spans: the words of a document's links, titles in documents without, through files and processes."""

from pathlib import Path

import pytest

from realm.corpus.build.builder import build_corpus
from realm.corpus.change.updates import add_documents
from realm.corpus.store.blocks import BlockStore
from realm.corpus.tagging.linked import LinkTagger
from realm.corpus.tagging.spans import CombinedTagger, TaggedSpan, for_document
from realm.corpus.tagging.specs import tagger_from_state

PAGES = (
    ("Pound", "The [[Pound|pound sterling]] is old. Who pays with the pound sterling in [[London]], [[the]] city? It was so in 1990."),
    ("London", "The city on the Thames is London."),
    ("Thames", "A river. It flows through London and through Old London Town, says nobody. The water of the Thames is cold."),
    ("Water", "All water is wet. London has Water."),
)


def wiki(path: Path, *pages: tuple[str, str]) -> Path:
    made = [
        f"<page><title>{title}</title><ns>0</ns><id>{number}</id><revision><id>9</id><text>{text}</text></revision></page>"
        for number, (title, text) in enumerate(pages, 1)
    ]
    path.write_text(f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">{"".join(made)}</mediawiki>', "utf-8")
    return path


def spans(corpus: Path) -> dict[str, list[str]]:
    store = BlockStore.open(corpus)
    found: dict[str, list[str]] = {}
    for row in range(len(store)):
        block = store.block(row)
        found.setdefault(block.title, []).extend(block.text[start:end] for start, end in store.spans(row).chars.tolist())
    return found


@pytest.mark.parametrize("workers", [1, 2])
def test_words_of_links_and_titles_are_spans(tmp_path: Path, workers: int) -> None:
    build_corpus([wiki(tmp_path / "wiki.xml", *PAGES)], tmp_path / "corpus", vocab_size=300, tagger="links", workers=workers)
    expected = {
        "Pound": ["pound sterling", "pound sterling", "London"],
        "London": ["Thames", "London"],
        "Thames": ["London", "London", "Thames"],
        "Water": ["Water"],  # the capital at the beginning of a sentence tells nothing
    }
    assert spans(tmp_path / "corpus") == expected
    more = [("", "")] * 9 + [("Sterling", "Is it [[Money|hard cash]]? Much hard cash. Ask in London.")]
    add_documents(tmp_path / "corpus", [wiki(tmp_path / "more.xml", *more)], workers=1)
    assert spans(tmp_path / "corpus") == expected | {"Sterling": ["hard cash", "hard cash"]}


def test_links_join_other_taggers(tmp_path: Path) -> None:
    build_corpus([wiki(tmp_path / "wiki.xml", *PAGES)], tmp_path / "corpus", vocab_size=300, tagger="links+dates", workers=1)
    assert spans(tmp_path / "corpus")["Pound"] == ["pound sterling", "pound sterling", "London", "1990"]


def test_the_longest_title_wins_and_a_tagger_is_rebuilt_from_its_state() -> None:
    tagger = LinkTagger.of_titles(["New York", "New York City", "", "York Minster", "city"])
    text = "In New York City and New York Minster they know no city."
    assert tagger.tag(text) == [TaggedSpan(3, 16, "name"), TaggedSpan(21, 29, "name")]
    combined = CombinedTagger([tagger])
    assert tagger_from_state(combined.state()).tag(text) == tagger.tag(text)
    assert for_document(combined, ()) is combined
    assert for_document(combined, (("they", 3), ("know", 4))).tag(text) == [TaggedSpan(43, 47, "phrase")]
    with pytest.raises(ValueError, match="buffer"):
        LinkTagger.from_state({"titles": "AAAA"})
