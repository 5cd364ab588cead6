"""Spans that another document has too, and the evidence for them, against loops over every run of words of every sentence."""

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from small import corpus_of, features, jsonl

import realm.training.masking.evidence
import realm.training.masking.evidence as evidence_module
import realm.training.masking.grams as grams_module
from realm.answering.cloze import words_left
from realm.documents.change.updates import remove_documents
from realm.documents.ingest.builder import BuildOptions, build_corpus
from realm.documents.store.blocks import BlockStore
from realm.models.featurize import searched_ids
from realm.recipe.seeds import generator
from realm.text.wordpieces import FIRST_UNSPACED, word_table
from realm.training.masking.evidence import Partners
from realm.training.masking.kinds import MAX_MASKS, RecurringSpans
from realm.training.masking.sentences import Exclusion, MaskedSentences


def spans_of(store, row):
    body = store.token_ids(row).tolist()
    return {tuple(body[start:end]) for start, end in store.spans(row).tokens.tolist()}


def naive(store, hidden, others, excluded, too_common):
    """What :meth:`Partners.rows` gives, read from every row each time."""
    held = {int(row): spans_of(store, int(row)) for row in np.flatnonzero(store.live)}

    def common(span):
        return sum(span in spans for spans in held.values()) > too_common

    beside = [span for span in others if span != hidden and not common(span)]
    if common(hidden):
        return []
    return [row for row, spans in sorted(held.items()) if row not in excluded and hidden in spans and any(s in spans for s in beside)]


def queries(store, featurizer):
    sentences = MaskedSentences(store, featurizer)
    return [sentences.query(item, generator("partners", item, n)) for item in range(len(sentences)) for n in range(6)]


def own_rows(store, query):
    return set(store.rows_of(query.excluded).tolist())


@pytest.mark.parametrize("too_common", [1, 2, 200])
def test_as_a_loop_over_everything(store, featurizer, too_common, monkeypatch):
    monkeypatch.setattr(realm.training.masking.evidence, "TOO_COMMON", too_common)
    partners, found = Partners(store), 0
    for query in queries(store, featurizer):
        for excluded in (set(), own_rows(store, query)):
            rows = partners.rows(query.targets, query.others, excluded)
            assert rows == naive(store, tuple(query.targets), list(query.others), excluded, too_common)
            found += len(rows)
    assert found > 0


def test_pairs_of_any_spans(store):
    """Also spans that no sentence has side by side, spans that are nowhere, and a span given as its own neighbour."""
    everything = sorted(set().union(*(spans_of(store, row) for row in range(len(store)))))
    partners = Partners(store)
    for hidden in [*everything, (1, 2, 3)]:
        for other in [*everything, (1, 2, 3)]:
            assert partners.rows(list(hidden), [list(other)], set()) == naive(store, hidden, [other], set(), 200)
        assert partners.rows(hidden, [hidden], set()) == partners.rows(hidden, [], set()) == []


def test_removed_blocks_are_no_partners(store, featurizer):
    london, thames = (store.tokenizer.encode([text])[0] for text in ("London", "Thames"))
    before, fewer = Partners(store).rows(london, [thames], set()), BlockStore.open(store.path)
    fewer.__dict__["live"] = np.arange(len(store)) != before[0]  # a tombstone
    assert Partners(fewer).rows(london, [thames], set()) == before[1:]


COMMON = {"latin": [*"abcdefgh"], "chinese": list("天地玄黄宇宙洪荒")}
TOPICS = {
    "latin": [f"{a}{b}o" for a in "klmnprst" for b in "aeiu"] + ["Arvad", "Belmor", "Carsin Dulwen", "1932", "1877", "to the ro"],
    "chinese": [*list("日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳云腾致雨"), "露结为霜", "金生丽水"],
}


def texts(script, documents=24, seed=0):
    """Documents of several blocks in words drawn unevenly, with commas, capitals, and sentences that several of them have."""
    rng, found = generator(script, seed), {}
    glue, stop = (" ", ".") if script == "latin" else ("", "。")
    shared = ["Carsin Dulwen ruled Belmor.", "Then Kao met Arvad in Belmor."] if script == "latin" else ["天地玄黄宇宙洪荒。"]
    for number in range(documents):
        sentences, topics = [], rng.permutation(TOPICS[script])[:6].tolist()
        for _ in range(6):
            drawn = rng.permutation([*rng.choice(COMMON[script], 3).tolist(), *rng.choice(topics, 3).tolist()]).tolist()
            drawn = [word.upper() if rng.random() < 0.1 else word for word in drawn]
            if glue and rng.random() < 0.5:
                drawn[2] += ","
            sentences.append(("Then " if glue else "") + glue.join(drawn) + stop)
        if number % 7 == 0:
            sentences.insert(2, shared[number % len(shared)])
        found[f"d{number}"] = (" " if glue else "").join(sentences)
    return found


def built(root, documents, name="corpus", like=None):
    jsonl(root / f"{name}.jsonl", [{"id": key, "title": "", "text": text} for key, text in documents.items()])
    options = BuildOptions(vocab_size=200, block_length=40) if like is None else BuildOptions(tokenizer=str(like), block_length=40)
    build_corpus([root / f"{name}.jsonl"], root / name, options)
    return BlockStore.open(root / name)


@pytest.fixture
def strict(monkeypatch):
    for name, value in {"STOP_SHARE": 0.25, "STOP_LEAST": 3, "COMMON_SHARE": 0.4, "COMMON_LEAST": 3}.items():
        monkeypatch.setattr(grams_module, name, value)
    monkeypatch.setattr(evidence_module, "CHANCE", 0.0)
    monkeypatch.setattr(evidence_module, "CHANCE_LEAST", 150)
    monkeypatch.setattr(evidence_module, "PAIRS_AT_ONCE", 40)


@dataclass(frozen=True)
class Sentence:
    """words: spelling, first and last wordpiece of each, counted from the sentence's first."""

    store: BlockStore
    row: int
    number: int
    document: str
    hash: int
    words: list[tuple[str, int, int]]


def read(store):
    starts, found = word_table(store.tokenizer).starts, []
    for row in np.flatnonzero(store.live).tolist():
        body, table = store.token_ids(row).tolist(), store.sentences(row)
        for number, (first, last) in enumerate(table.tokens.tolist()):
            borders = [0, *(p for p in range(1, last - first) if starts[body[first + p]]), last - first]
            pieces = [
                [store.tokenizer.token(body[first + p]).removeprefix("##").lower() for p in range(a, b)] for a, b in pairwise(borders)
            ]
            words = [("".join(spelled), a, b) for spelled, (a, b) in zip(pieces, pairwise(borders), strict=True)]
            found.append(Sentence(store, row, number, store.doc_id(row), int(table.hashes[number]), words))
    return found


def slow(sentences, blocks):
    """What may be hidden (row, sentence, start, end, whether salient) and the evidence rows of every place, by loops."""
    known, asked = read(blocks), read(sentences)
    everything = known if sentences is blocks else known + asked
    blocks_with, documents_with, asked_runs = defaultdict(set), defaultdict(set), set()
    held, all_documents = defaultdict(set), defaultdict(set)

    def runs(sentence):
        words = sentence.words
        pairs = [(a, b) for a in range(len(words)) for b in range(a + 1, len(words) + 1) if words[b - 1][2] - words[a][1] <= MAX_MASKS]
        return [(tuple(word for word, _, _ in words[a:b]), words[a][1], words[b - 1][2]) for a, b in pairs]

    for sentence in everything:
        for run, _, _ in runs(sentence):
            all_documents[run].add(sentence.document)
    for sentence in known:
        for run, _, _ in runs(sentence):
            documents_with[run].add(sentence.document)
            held[run].add(sentence.row)
        for word, _, _ in sentence.words:
            blocks_with[word].add(sentence.row)
    for sentence in asked:
        asked_runs |= {run for run, _, _ in runs(sentence)}
    limit = max(grams_module.COMMON_LEAST, int(grams_module.COMMON_SHARE * len({s.document for s in known})))
    often = max(grams_module.STOP_LEAST, grams_module.STOP_SHARE * len({s.row for s in known}))

    def spaced(word):
        return max(map(ord, word)) < FIRST_UNSPACED

    def letters(word):
        return any(c.isalnum() for c in word)

    def stopword(word):
        return len(blocks_with[word]) > often

    def usable(run):
        if len(all_documents[run]) < 2 or not documents_with[run] or run not in asked_runs or len(documents_with[run]) > limit:
            return False
        ends = all(letters(word) and not (stopword(word) and spaced(word)) for word in (run[0], run[-1]))
        return ends and any(letters(word) and not stopword(word) for word in run) and (len(run) > 1 or spaced(run[0]))

    listed, evidence = set(), {}
    for sentence in asked:
        places = [(run, a, b) for run, a, b in runs(sentence) if usable(run)]
        forbidden = {sentence.document} | {other.document for other in known if other.hash == sentence.hash}
        table = sentence.store.spans(sentence.row)
        first = int(sentence.store.sentences(sentence.row).tokens[sentence.number, 0])
        tagged = [(a - first, b - first) for a, b in table.tokens[table.sentence == sentence.number].tolist()]
        bare = set()
        for start, end in tagged:
            inside = [(a, b) for w, a, b in sentence.words if start <= a < end and letters(w) and not (stopword(w) and spaced(w))]
            bare |= {(inside[0][0], inside[-1][1])} if inside else set()
        for run, a, b in places:
            covering = [(x, y) for _, x, y in places if x <= a and b <= y]
            left, right, least = min(x for x, _ in covering), max(y for _, y in covering), np.inf
            found = set()
            for row in held[run]:
                if blocks.doc_id(row) in forbidden:
                    continue
                beside = [len(held[other]) for other, x, y in places if row in held[other] and (y <= left or right <= x)]
                chance = min((len(held[run]) * count for count in beside), default=np.inf) / evidence_module.CHANCE_LEAST
                if chance <= 1:
                    found.add(row)
                    least = min(least, chance)
            evidence[sentence.row, sentence.number, a, b] = found
            last = int(sentence.store.sentences(sentence.row).tokens[sentence.number, 1])
            pieces = sentence.store.token_ids(sentence.row).tolist()[first:last]
            if sum(pieces[at : at + b - a] == pieces[a:b] for at in range(len(pieces))) > 1:
                continue
            if found and (a, b) in bare:
                listed.add((sentence.row, sentence.number, a, b, True))
            elif found and (left, right) == (a, b) and least <= 0.25 and all(b <= x or y <= a for x, y in tagged):
                listed.add((sentence.row, sentence.number, a, b, False))
    return listed, evidence


def fast(sentences, blocks, length=64):
    kind = RecurringSpans(sentences, blocks, shown=length - 2, unsalient=0.5)
    masked = MaskedSentences(sentences, features(sentences, length), kind, Exclusion(sentences, blocks, exclude="document"))
    found = set()
    for item, (block, number) in enumerate(masked.keys.tolist()):
        row = int(sentences.rows_of(np.array([block]))[0])
        found |= {(row, number, min(span), max(span), span[0] < span[1]) for span in masked.spans_of(item)}
    return found, masked, kind


def agree(sentences, blocks):
    expected, evidence = slow(sentences, blocks)
    found, masked, kind = fast(sentences, blocks)
    assert found == expected
    for item in range(len(masked)):
        for draw in range(3):
            query = masked.query(item, generator(item, draw))
            row, rows = int(sentences.rows_of(np.array([query.origin]))[0]), kind.evidence.rows(query)
            assert rows == sorted(evidence[row, query.sentence, query.positions[0], query.positions[-1] + 1]) and rows
            assert not np.isin(blocks.block_ids[rows], query.excluded).any()
    return found


@pytest.mark.parametrize("script", ["latin", "chinese"])
def test_they_are_those_that_loops_over_all_runs_find(strict, tmp_path, script):
    store = built(tmp_path, texts(script, documents=40))
    found = agree(store, store)
    assert len(found) > 20 and max(end - start for _, _, start, end, _ in found) > 2
    if script == "latin":
        assert {salient for *_, salient in found} == {True, False}


def test_sentences_of_another_corpus(strict, tmp_path):
    """Documents of one id are one document, whichever corpus they are in."""
    blocks = built(tmp_path, texts("latin"))
    news = {f"d{n}": text for n, text in zip((3, 50, 51, 52), texts("latin", 4, seed=1).values(), strict=True)}
    assert len(agree(built(tmp_path, news, "news", like=blocks.path), blocks)) > 5


def test_what_was_removed_counts_for_nothing(strict, tmp_path):
    store = built(tmp_path, texts("latin"))
    before = agree(store, store)
    remove_documents(store.path, [f"d{n}" for n in range(0, 24, 2)])
    left = BlockStore.open(store.path)
    assert agree(left, left) != before


def test_a_word_counts_however_it_was_cut_and_written(tmp_path):
    """In a vocabulary with case a name in capitals has other wordpieces."""
    documents = {"a": "The bridge of Zorvath was built by Quellin.", "b": "In 1950 ZORVATH thanked (Quellin).", "c": "Nobody knew of it."}
    store = BlockStore.open(corpus_of(tmp_path, [(key, "", text) for key, text in documents.items()], vocab_size=200, lowercase=False))
    _, masked, _ = fast(store, store)
    hidden = {store.tokenizer.decode(masked.query(item, generator(item, n)).targets).lower() for item in range(2) for n in range(9)}
    assert len(masked) == 2 and hidden == {"zorvath", "quellin"}


def test_what_a_query_does_not_hold_neither_is_hidden_nor_helps(strict, tmp_path):
    store = built(tmp_path, texts("latin"))
    found, masked, kind = fast(store, store, 14)
    assert 0 < len(found) < len(fast(store, store)[0]) and all(end <= 12 for _, _, _, end, _ in found)
    assert all(kind.evidence.rows(masked.query(item, generator(item))) for item in range(len(masked)))


def test_how_often_an_unsalient_span_is_hidden(strict, tmp_path):
    store = built(tmp_path, texts("latin"))
    _, masked, kind = fast(store, store)
    both = [i for i in range(len(masked)) if {a < b for a, b in masked.spans_of(i)} == {True, False}]
    assert both
    for share in (0.0, 0.3, 1.0):
        kind.unsalient = share
        queries = [(i, masked.query(i, generator("hide", i, n))) for i in both for n in range(2000 // len(both))]
        free = [(q.positions[-1] + 1, q.positions[0]) in masked.spans_of(i) for i, q in queries]
        assert np.mean(free) == pytest.approx(share, abs=0.05)
    for i, query in queries:
        again = [tuple(query.whole[a:b]) for a, b in map(sorted, masked.spans_of(i))]
        assert set(query.others) <= set(again)


def test_whole_documents_are_excluded(tmp_path):
    """All blocks of the sentence's own document, and of those that hold it verbatim; in another corpus, of the document of that id."""
    store = built(tmp_path, texts("latin"))
    blocks, documents, several = Exclusion(store, store), Exclusion(store, store, exclude="document"), 0
    for sentence in read(store):
        rows = store.rows_of(blocks.blocks(sentence.row, sentence.hash))
        names = {store.doc_id(int(row)) for row in rows}
        expected = [block for row, block in enumerate(store.block_ids.tolist()) if store.doc_id(row) in names]
        assert documents.blocks(sentence.row, sentence.hash).tolist() == expected and set(store.block_ids[rows].tolist()) < set(expected)
        several += len(names) > 1
    assert several
    news = built(tmp_path, {"d3": "Nobody said so. It rained.", "other": "Nobody said this."}, "news", like=store.path)
    elsewhere = Exclusion(news, store, exclude="document")
    assert {store.doc_id(int(row)) for row in store.rows_of(elsewhere.blocks(0, 0))} == {"d3"}
    assert not len(elsewhere.blocks(1, 0))


def test_what_the_retriever_sees(strict, tmp_path):
    store = built(tmp_path, texts("latin", documents=40))
    _, masked, _ = fast(store, store)
    mask = features(store).mask
    queries = [masked.query(item, generator(item)) for item in range(len(masked))]
    query = next(query for query in queries if len(query.targets) > 1)
    first, last = query.positions[0], query.positions[-1]
    assert searched_ids(query, pointer=False) == query.ids
    assert searched_ids(query, pointer=True) == [*query.whole[:first], mask, *query.whole[last + 1 :]]
    hidden, shown = store.tokenizer.decode(query.targets).lower(), replace(query, shown=True)
    left, whole = (words_left(store, [some])[0].lower() for some in (query, shown))
    assert left.count(hidden) == whole.count(hidden) - 1 and "mask" not in left
    assert searched_ids(shown, pointer=True) == searched_ids(shown, pointer=False) == query.whole
    row = int(store.rows_of(np.array([query.origin]))[0])
    start, end = store.sentences(row).chars[query.sentence].tolist()
    assert words_left(store, [shown])[0] == store.block(row).text[start:end].rstrip()
