"""A small salient-span tagger trained on labelled sentences: an averaged structured perceptron over hashed word features.

Deterministic, a few megabytes, no GPU. Needs no statistics of the corpus, so that it can be trained once and used anywhere.
"""

import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import regex
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from realm.corpus.tagging.bio import spans_of
from realm.corpus.tagging.labelled import LabelledSentence
from realm.corpus.tagging.spans import TaggedSpan, kind_of
from realm.errors import ConfigError, DataError
from realm.storage import files

FILE, FORMAT = "perceptron.safetensors", "realm-perceptron-1"
# Rows of the weight table. Features that fall into one row share it, which costs little at this size.
BUCKETS = 1 << 18
EPOCHS = 6

_TOKEN = regex.compile(r"[\p{L}\p{M}\p{N}]+(?:[’'&.\-][\p{L}\p{M}\p{N}]+)*|[^\s\p{L}\p{M}\p{N}]")
_SHAPES = [(regex.compile(pattern), sign) for pattern, sign in ((r"\p{Lu}+", "A"), (r"\p{Ll}+", "a"), (r"\p{N}+", "0"), (r"\p{Lo}+", "x"))]


class PerceptronTagger:
    """Tags what ``train_perceptron`` learned.

    Args:
        weights: float32 [BUCKETS, l], a row for each hashed feature.
        moves: float32 [l + 1, l], from the label before (the last row: the sentence's start) to the next.
        labels: of the l columns, "O" first.
        origin: where it lies; a corpus keeps this, not the weights.
    """

    def __init__(self, weights: np.ndarray, moves: np.ndarray, labels: Sequence[str], origin: str = ""):
        self.weights, self.moves, self.labels, self.origin = weights, moves, tuple(labels), origin

    @classmethod
    def load(cls, directory: str | Path) -> "PerceptronTagger":
        """Open what ``save`` wrote.

        Raises:
            DataError: there is nothing of this kind, or it is damaged.
        """
        file = Path(directory) / FILE
        cure = "Train one: realm tagger train FILE --out DIR"
        try:
            with safe_open(file, "numpy") as opened:
                about = opened.metadata() or {}
                if about.get("format") != FORMAT:
                    raise DataError(f"not a tagger of this version ({about.get('format')})", path=file, cure=cure)
                return cls(
                    opened.get_tensor("weights"), opened.get_tensor("moves"), about["labels"].split(), str(Path(directory).resolve())
                )
        except (OSError, SafetensorError, KeyError) as error:
            raise DataError(f"no tagger here: {error}", path=file, cure=cure) from error

    def save(self, directory: Path) -> None:
        """Write the weights to a new directory.

        Raises:
            DataError: the directory exists.
        """
        check_new(directory)
        with files.publish_directory(directory) as staging:
            content = save({"weights": self.weights, "moves": self.moves}, {"format": FORMAT, "labels": " ".join(self.labels)})
            (staging / FILE).write_bytes(content)

    def tag(self, text: str) -> list[TaggedSpan]:
        """Spans in order, without overlaps, of the kinds that were trained."""
        tokens = list(_TOKEN.finditer(text))
        if not tokens:
            return []
        rows = _features([token.group() for token in tokens])
        best = self.best_path(rows)
        spans = spans_of(self.labels[label] for label in best)
        return [TaggedSpan(tokens[first].start(), tokens[stop - 1].end(), kind) for first, stop, kind in spans]

    def best_path(self, rows: np.ndarray) -> list[int]:
        """The labels of the highest sum of weights (Viterbi). ``rows`` int64 [t, f]: each token's features."""
        scores = self.weights[rows].sum(axis=1)  # [t, l]
        total = scores[0] + self.moves[-1]
        back = np.empty(scores.shape, np.int64)
        for position in range(1, len(scores)):
            candidates = total[:, None] + self.moves[:-1]
            back[position] = candidates.argmax(axis=0)
            total = candidates.max(axis=0) + scores[position]
        path = [int(total.argmax())]
        for position in range(len(scores) - 1, 0, -1):
            path.append(int(back[position, path[-1]]))
        return path[::-1]

    def state(self) -> dict[str, Any]:
        """Where it lies."""
        return {"type": "perceptron", "model": self.origin}


def check_new(directory: Path) -> None:
    """Refuse a directory that exists; called before the work that fills it.

    Raises:
        DataError: it exists.
    """
    if directory.exists():
        raise DataError("this is here already, and it is left as it is", path=directory, cure="Choose another --out")


def train_perceptron(sentences: Sequence[LabelledSentence], epochs: int = EPOCHS) -> PerceptronTagger:
    """Learn from labelled sentences: their kinds of spans (name, date, number), not their finer types. The same input, the same weights.

    Raises:
        ConfigError: ``epochs`` is below 1.
        DataError: no sentence has a span.
    """
    if epochs < 1:
        raise ConfigError(f"epochs = {epochs} is below 1")
    examples = [example for sentence in sentences if (example := _example(sentence)) is not None]
    kinds = sorted({label[2:] for _, labels in examples for label in labels if label != "O"})
    if not kinds:
        raise DataError("no sentence has a labelled span", cure="Label spans B-... and I-...")
    names = ["O", *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI")]
    number_of = {name: number for number, name in enumerate(names)}
    data = [(rows, np.array([number_of[label] for label in labels])) for rows, labels in examples]
    tagger = PerceptronTagger(np.zeros((BUCKETS, len(names)), np.float32), np.zeros((len(names) + 1, len(names)), np.float32), names)
    # Weights times the step they were set at: subtracted at the end, it makes of the last weights their mean over all steps.
    late_weights, late_moves = np.zeros(tagger.weights.shape), np.zeros(tagger.moves.shape)
    source, step = Random(0), 0
    for _ in range(epochs):
        source.shuffle(data)
        for rows, wanted in data:
            step += 1
            found = np.array(tagger.best_path(rows))
            if (found == wanted).all():
                continue
            for labels, sign in ((wanted, 1.0), (found, -1.0)):
                wrong = np.flatnonzero(found != wanted)
                at = rows[wrong].ravel(), np.repeat(labels[wrong], rows.shape[1])
                before = np.concatenate([[len(names)], labels[:-1]])
                for table, late, places in ((tagger.weights, late_weights, at), (tagger.moves, late_moves, (before, labels))):
                    np.add.at(table, places, sign)
                    np.add.at(late, places, sign * step)
    tagger.weights = (tagger.weights - late_weights / (step + 1)).astype(np.float32)
    tagger.moves = (tagger.moves - late_moves / (step + 1)).astype(np.float32)
    return tagger


def _example(sentence: LabelledSentence) -> tuple[np.ndarray, list[str]] | None:
    """Features and labels of a sentence, cut into tokens as ``tag`` cuts it, whatever the file did."""
    edges = sentence.edges
    spans = [(edges[first][0], edges[stop - 1][1], kind_of(kind)) for first, stop, kind in spans_of(sentence.labels)]
    tokens = list(_TOKEN.finditer(sentence.text))
    if not tokens:
        return None
    labels = []
    for token in tokens:
        inside = next((span for span in spans if span[0] <= token.start() < span[1]), None)
        labels.append("O" if inside is None else f"{'B' if token.start() == inside[0] else 'I'}-{inside[2]}")
    return _features([token.group() for token in tokens]), labels


def _features(tokens: Sequence[str]) -> np.ndarray:
    """Rows of the weight table, int64 [t, f], for each token."""
    small = [token.lower() for token in tokens]
    shapes = [_shape(token) for token in tokens]
    padded, signs = ["<", "<", *small, ">", ">"], ["<", "<", *shapes, ">", ">"]
    return np.array([_rows(_names(padded, signs, tokens[at], at + 2)) for at in range(len(tokens))], np.int64)


def _names(small: Sequence[str], shapes: Sequence[str], token: str, at: int) -> Iterable[str]:
    word, shape = small[at], shapes[at]
    first = "first" if small[at - 1] in ("<", '"', "“", "'", "(") else ""
    return (
        "", f"w {word}", f"t {token}", f"s {shape} {first}", f"p {word[:3]}", f"e {word[-3:]}", f"e2 {word[-2:]}", f"-1 {small[at - 1]}",
        f"+1 {small[at + 1]}", f"-2 {small[at - 2]}", f"+2 {small[at + 2]}", f"s- {shapes[at - 1]} {shape}", f"s+ {shape} {shapes[at + 1]}",
        f"s-+ {shapes[at - 1]} {shape} {shapes[at + 1]}", f"-w {small[at - 1]} {shape}", f"+w {shape} {small[at + 1]}",
    )  # fmt: skip


def _rows(names: Iterable[str]) -> list[int]:
    return [zlib.crc32(name.encode("utf-8", "surrogatepass")) % BUCKETS for name in names]


def _shape(token: str) -> str:
    """The kinds of a token's characters, runs shortened: "Aa" for "London", "A.A" for "U.S"."""
    for pattern, sign in _SHAPES:
        token = pattern.sub(lambda match, sign=sign: sign if len(match.group()) < 2 else sign * 2, token)
    return token[:8]
