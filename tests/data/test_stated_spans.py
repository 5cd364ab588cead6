"""Spans that another block states, against a search through all blocks for each."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from realm.corpus.build.builder import build_corpus
from realm.corpus.build.options import BuildOptions
from realm.corpus.change.updates import remove_documents
from realm.corpus.store.blocks import BlockStore
from realm.data.featurize import Featurizer
from realm.data.loader import generator
from realm.data.masking import MaskedSentences, StatedSpans, salient_spans

SAME = "The bridge of Arvad was finished in 1932."
DOCUMENTS = {
    "bridge": f"{SAME} It was built by Victor Hugo.",
    "copy": f"{SAME} Nothing else is known of it.",
    "builder": "In 1932 a guide to Arvad was printed in Belmor.",
    "alone": "The queen Estrag had a summer house near Faldor since 1877.",
    "year": "It rained in Gantor for most of 1932.",
    "hugo": "The grave of Victor Hugo is in Paris.",
}
NEWS = {"news": "Last week the mayor of Arvad spoke of 1932. In Gantor nobody listened to Hestia."}
Kept = set[tuple[int, int, tuple[int, ...]]]


def built(root: Path, documents: dict[str, str], name: str, like: Path | None = None) -> BlockStore:
    rows = [{"id": key, "title": "", "text": text} for key, text in documents.items()]
    (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    options = BuildOptions(vocab_size=300) if like is None else BuildOptions(tokenizer=str(like))
    build_corpus([root / f"{name}.jsonl"], root / name, options)
    return BlockStore.open(root / name)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockStore]:
    yield built(tmp_path_factory.mktemp("stated"), DOCUMENTS, "corpus")


def masked(sentences: BlockStore, blocks: BlockStore, *, stated: bool, length: int = 64) -> MaskedSentences:
    special = sentences.tokenizer.special
    features = Featurizer(cls=special.cls, sep=special.sep, mask=special.mask, pad=special.pad, query_length=length)
    kind = salient_spans(sentences)
    return MaskedSentences(sentences, features, StatedSpans(kind, sentences, blocks) if stated else kind)


def spans(sentences: MaskedSentences) -> Kept:
    """(block, sentence, wordpieces) of everything that may be hidden."""
    found = set()
    for item in range(len(sentences)):
        query = sentences.query(item, generator(item))
        found |= {(query.origin, query.sentence, tuple(query.whole[a:b])) for a, b in sentences.spans_of(item)}
    return found


def slow(sentences: BlockStore, blocks: BlockStore) -> Kept:
    """The spans that a search through every block finds stated elsewhere."""

    def tagged(row: int) -> set[tuple[int, ...]]:
        body = blocks.token_ids(row).tolist()
        return {tuple(body[a:b]) for a, b in blocks.spans(row).tokens.tolist()}

    rows = [row for row in range(len(blocks)) if blocks.live[row]]
    whole = {row: {int(h) for h in blocks.sentences(row).hashes} for row in rows}
    everything, kept = spans(masked(sentences, sentences, stated=False)), set()
    for block, sentence, span in everything:
        own = int(sentences.rows_of([block])[0])
        beside = {other for b, s, other in everything if (b, s) == (block, sentence)} - {span}
        text = int(sentences.sentences(own).hashes[sentence])
        others = [row for row in rows if text not in whole[row] and not (sentences is blocks and row == own)]
        if any(span in tagged(row) and beside & tagged(row) for row in others):
            kept.add((block, sentence, span))
    return kept


def test_they_are_those_that_a_search_through_all_blocks_finds(corpus: BlockStore) -> None:
    sentences = masked(corpus, corpus, stated=True)
    kept, everything = spans(sentences), spans(masked(corpus, corpus, stated=False))
    assert kept == slow(corpus, corpus) and 0 < len(kept) < len(everything)
    assert sentences.dropped["stated nowhere else"] == len(everything) - len(kept)
    words = {corpus.tokenizer.decode(list(span)).lower() for _, _, span in kept}
    assert words == {"arvad", "1932"}, "a copy of the sentence, and a block that shares one name alone, do not state it"


def test_sentences_of_another_corpus_are_looked_up_in_the_knowledge_corpus(corpus: BlockStore, tmp_path: Path) -> None:
    news = built(tmp_path, NEWS, "news", like=corpus.path)
    kept = spans(masked(news, corpus, stated=True))
    assert kept == slow(news, corpus) and len({(block, sentence) for block, sentence, _ in kept}) == 1


def test_what_was_removed_states_nothing(tmp_path: Path) -> None:
    corpus = built(tmp_path, DOCUMENTS, "corpus")
    remove_documents(corpus.path, ["builder"])
    left = BlockStore.open(corpus.path)
    assert spans(masked(left, left, stated=True)) == slow(left, left) == set()


def test_what_a_query_does_not_show_does_not_help_to_find(corpus: BlockStore) -> None:
    """Cut before the year, the sentence has no second span to be found by."""
    assert not len(masked(corpus, corpus, stated=True, length=7))
