"""Scores of a tagger on spans that people marked, in BIO JSONL or CoNLL columns."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from realm.documents.spans.spans import SpanTagger, TaggedSpan, kind_of, spans_of, tag_all
from realm.documents.spans.specs import DEFAULT, TaggerPlan, corpus_tagger
from realm.documents.store import manifest as manifests
from realm.documents.store.blocks import BlockStore
from realm.errors import DataError
from realm.storage.decoding import json_value
from realm.text.files import open_text


@dataclass(frozen=True)
class LabelledSentence:
    """Tokens with one label each (BIO, BILOU or BIOES)."""

    tokens: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def text(self) -> str:
        """The tokens with single spaces between them."""
        return " ".join(self.tokens)

    @property
    def edges(self) -> list[tuple[int, int]]:
        ends = accumulate(len(token) + 1 for token in self.tokens)
        return [(end - len(token) - 1, end - 1) for end, token in zip(ends, self.tokens, strict=True)]


def read_labelled(path: Path) -> list[LabelledSentence]:
    """Read a file of labelled sentences, plain, .gz or .xz. Raises DataError: no such file, a line that cannot be read, or no sentence."""
    with open_text(path) as lines:
        stream = enumerate(lines, 1)
        first = next(((number, line) for number, line in stream if line.strip()), None)
        if first is None:
            raise DataError("no sentence in it", path=path, cure=_CURE)
        whole = chain([first], stream)
        return list(_from_json(path, whole) if first[1].lstrip().startswith("{") else _from_columns(path, whole))


def _from_json(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[LabelledSentence]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row: Any = json_value(line)
            tokens, labels = row["tokens"], row["tags"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"no labelled sentence ({type(error).__name__}: {error})", path=path, line=number, cure=_CURE) from error
        if not all(isinstance(values, list) and all(isinstance(value, str) for value in values) for values in (tokens, labels)):
            raise DataError("tokens and tags must be lists of strings", path=path, line=number, cure=_CURE)
        if len(tokens) != len(labels):
            raise DataError(f"{len(tokens)} tokens but {len(labels)} tags", path=path, line=number, cure=_CURE)
        yield LabelledSentence(tuple(tokens), tuple(labels))


def _from_columns(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[LabelledSentence]:
    tokens: list[str] = []
    labels: list[str] = []
    for number, line in chain(lines, [(0, "")]):
        columns = line.split()
        if columns and columns[0] != "-DOCSTART-":
            if len(columns) < 2:
                raise DataError("one column only", path=path, line=number, cure=_CURE)
            tokens.append(columns[0])
            labels.append(columns[-1])
        elif tokens:
            yield LabelledSentence(tuple(tokens), tuple(labels))
            tokens, labels = [], []


def evaluate_tagger(path: Path, spec: str = "", corpus: Path | None = None) -> dict[str, Any]:
    """Score a tagger, named as ``spans.specs`` says, on a labelled file: what ``score`` gives, with the file's name and number of
    sentences.

    The tagger learns from ``corpus``, or without one from the text of the file itself (never from its labels). An empty ``spec`` is the one
    that is saved in the corpus, or the default. Raises DataError, ConfigError, CorpusError, MissingExtra: a file, spec, corpus or model
    that cannot be used."""
    sentences = read_labelled(path)
    if corpus is None:
        tagger = TaggerPlan(spec or DEFAULT).learned_from(sentence.text for sentence in sentences)
    elif spec:
        tagger = TaggerPlan(spec).learned_from(_sentences_of(BlockStore.open(corpus)))
    else:
        tagger = corpus_tagger(corpus, manifests.read_manifest(corpus))
    return {"file": str(path), "sentences": len(sentences), **score(tagger, sentences)}


def score(tagger: SpanTagger, sentences: Sequence[LabelledSentence]) -> dict[str, Any]:
    """Precision, recall and F1 (0..1) of exact spans of any type, and the share of predicted spans that touch a marked one.

    Spans of a kind that the file never marks (dates and numbers, in most sets of names) are left out and counted."""
    marked = [_marked(sentence) for sentence in sentences]
    kinds = {span.kind for spans in marked for span in spans}
    if "name" in kinds:
        kinds.add("phrase")
    gold = predicted = correct = touching = left_out = 0
    for wanted, found in zip(marked, tag_all(tagger, [sentence.text for sentence in sentences]), strict=True):
        kept = {(span.start, span.end) for span in found if span.kind in kinds}
        ranges = {(span.start, span.end) for span in wanted}
        left_out += len(found) - len(kept)
        gold, predicted, correct = gold + len(ranges), predicted + len(kept), correct + len(ranges & kept)
        touching += sum(any(start < other_end and other < end for other, other_end in ranges) for start, end in kept)
    precision, recall = correct / max(predicted, 1), correct / max(gold, 1)
    return {
        "marked": gold,
        "predicted": predicted,
        "left_out": left_out,
        "correct": correct,
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall) if correct else 0.0,
        "touching": touching / max(predicted, 1),
    }


def _marked(sentence: LabelledSentence) -> list[TaggedSpan]:
    edges = sentence.edges
    return [TaggedSpan(edges[first][0], edges[stop - 1][1], kind_of(kind)) for first, stop, kind in spans_of(sentence.labels)]


def _sentences_of(store: BlockStore) -> Iterator[str]:
    for row in range(len(store)):
        if store.live[row]:
            text = store.block(row).text
            yield from (text[start:end] for start, end in store.sentences(row).chars.tolist())


_CURE = 'Write {"tokens": [...], "tags": ["O", "B-PER", ...]} a line, or CoNLL columns (token first, label last)'
