"""Windows of tokens for language models, translation and masks: input, places that count, and the token wanted at each."""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from realm.documents.records import SourceDocument
from realm.documents.sources import LOOK, SourceOptions, iter_documents
from realm.errors import ConfigError, DataError
from realm.knn.network import HubNetwork, Window
from realm.search.publishing.embedding import length_batches
from realm.storage.files import json_lines

PART_ROWS = 8192
"""Keys that are computed and made durable together, at least; a window is never split."""
TOKENS_PER_BATCH = 4096
FIELDS = ("ids", "source", "places", "targets")


class WindowSet:
    """Windows in memory: flat arrays, about 16 bytes a token; ``targets`` int32 [n], wanted tokens in order.

    ``counts``: whitespace "words" of the predicted texts, and "skipped" records. Raises DataError: not one wanted token."""

    def __init__(self, windows: Iterable[Window], counts: Counter[str] | None = None):
        flat, ends = {name: array("i") for name in FIELDS}, array("q")
        for window in windows:
            for name, values in flat.items():
                values.frombytes(np.asarray(getattr(window, name), np.int32).tobytes())
                ends.append(len(values))
        self._flat = {name: np.array(values, np.int32) for name, values in flat.items()}
        self.targets = self._flat["targets"]
        self.counts = Counter[str]() if counts is None else counts
        if not self.count:
            raise DataError("the sources hold no text to predict", cure="Give documents of at least two tokens.")
        self._ends = np.array(ends, np.int64).reshape(-1, len(FIELDS)).T
        self._starts = np.concatenate([np.zeros((len(FIELDS), 1), np.int64), self._ends[:, :-1]], axis=1)
        self.sha256 = hashlib.sha256(self._ends.tobytes() + b"".join(values.tobytes() for values in self._flat.values())).hexdigest()

    def __len__(self) -> int:
        return self._ends.shape[1]

    @property
    def count(self) -> int:
        """n, wanted tokens in all."""
        return len(self.targets)

    def window(self, number: int) -> Window:
        edges = zip(self._starts[:, number].tolist(), self._ends[:, number].tolist(), strict=True)
        return Window(**{name: self._flat[name][start:end] for name, (start, end) in zip(FIELDS, edges, strict=True)})

    def parts(self, first_row: int = 0) -> Iterator[tuple[int, int]]:
        """Runs of windows (first, stop) of about PART_ROWS wanted tokens, from row ``first_row`` on. Raises ValueError: no part begins
        there."""
        ends, first = self._ends[-1], 0
        while first < len(self):
            begin = int(self._starts[-1, first])
            stop = min(len(self), int(np.searchsorted(ends, begin + PART_ROWS)) + 1)
            if begin >= first_row:
                if begin > first_row:
                    raise ValueError(f"no part begins at row {first_row}")
                first_row = int(ends[stop - 1])
                yield first, stop
            first = stop

    def batches(self, first: int, stop: int) -> Iterator[tuple[np.ndarray, list[Window]]]:
        """Windows of a part in batches of similar length, which depend on the part alone, with the rows of their wanted tokens in it."""
        windows = [self.window(number) for number in range(first, stop)]
        base = int(self._starts[-1, first])
        for chosen in length_batches(np.array([max(len(window.ids), len(window.source)) for window in windows]), TOKENS_PER_BATCH):
            spans = [np.arange(self._starts[-1, first + i], self._ends[-1, first + i]) - base for i in chosen.tolist()]
            yield np.concatenate(spans), [windows[i] for i in chosen.tolist()]

    def rows(self, first: int, stop: int) -> slice:
        """Rows of the wanted tokens of a run of windows."""
        return slice(int(self._starts[-1, first]), int(self._ends[-1, stop - 1]))


@dataclass(frozen=True)
class TextOptions:
    """Options of sources: ``context`` tokens that a language model reads (0: its limit, at most 512), ``stride`` added by each further
    window.

    ``source_column`` and ``target_column``: fields of a pair; ``reading`` of documents."""

    context: int = 0
    stride: int = 0
    source_column: str = "source"
    target_column: str = "target"
    reading: SourceOptions = LOOK

    def fitted(self, longest: int | None) -> tuple[int, int]:
        """(context, stride) for a model that reads ``longest`` tokens. Raises ConfigError: out of its range."""
        context = self.context or min(512, longest or 512)
        stride = self.stride or max(1, context // 2)
        if longest is not None and context > longest:
            raise ConfigError(f"context = {context}, and the model reads at most {longest} tokens", cure=f"Lower it to {longest}.")
        if not 1 <= stride <= context:
            raise ConfigError(f"stride = {stride} is outside 1 to the context {context}", cure="Lower it.")
        return context, stride


def windows_of_texts(network: HubNetwork, sources: Sequence[Path], options: TextOptions) -> WindowSet:
    """Windows of documents, or of pairs of sentences for a translation model. Raises DataError: a source has no text."""
    counts, read = Counter(words=0, skipped=0), _of_pairs if network.kind == "translation" else _of_documents
    return WindowSet(read(network, sources, options, counts), counts)


def _of_documents(network: HubNetwork, sources: Sequence[Path], options: TextOptions, counts: Counter[str]) -> Iterator[Window]:
    context, stride = options.fitted(network.longest)
    for source in sources:
        for record in iter_documents(source, options.reading):
            if not isinstance(record, SourceDocument):
                counts["skipped"] += 1
                continue
            counts["words"] += _words(network, record.text)
            yield from sliding_windows(np.array(network.tokenizer(record.text, verbose=False)["input_ids"], np.int32), context, stride)


def _of_pairs(network: HubNetwork, sources: Sequence[Path], options: TextOptions, counts: Counter[str]) -> Iterator[Window]:
    longest, start = network.longest, network.decoder_start
    for text, translation in read_pairs(sources, options):
        source = np.array(network.tokenizer(text, verbose=False)["input_ids"], np.int32)
        wanted = np.array(network.tokenizer(text_target=translation, verbose=False)["input_ids"], np.int32)
        if longest is not None and max(len(source), len(wanted)) > longest:
            counts["skipped"] += 1
            continue
        counts["words"] += _words(network, translation)
        read = np.concatenate([np.array([start], np.int32), wanted[:-1]])
        yield Window(read, np.arange(len(wanted), dtype=np.int32), wanted, source)


def _words(network: HubNetwork, text: str) -> int:
    unknown = getattr(network.tokenizer, "unk_token", None)
    return len((text.replace(str(unknown), " ") if unknown else text).split())


def sliding_windows(ids: np.ndarray, context: int, stride: int) -> Iterator[Window]:
    """Windows over one document of L tokens that want every token but the first exactly once.

    ``stride``: tokens that each window but the first wants, from at least context - stride tokens or all before them."""
    ids = np.asarray(ids, np.int32)
    done = 1  # tokens that are context or were wanted
    while done < len(ids):
        end = min(len(ids), done + (context if done == 1 else stride))
        start = max(0, end - 1 - context)
        yield Window(ids[start : end - 1], np.arange(done - 1 - start, end - 1 - start, dtype=np.int32), ids[done:end])
        done = end


def read_pairs(files: Iterable[Path], options: TextOptions) -> Iterator[tuple[str, str]]:
    """Sentences and translations of JSONL files (also .gz, .xz). Raises DataError, with file and line: missing, or a text lacks."""
    wanted = (options.source_column, options.target_column)
    cure = f'Each line is {{"{wanted[0]}": ..., "{wanted[1]}": ...}}; --column source=NAME and target=NAME give other names.'
    for path in files:
        for number, row in json_lines(path, cure):
            source, target = (row.get(name) for name in wanted)
            if not all(isinstance(text, str) and text.strip() for text in (source, target)):
                raise DataError(f"no text in '{wanted[0]}' or '{wanted[1]}'", path=path, line=number, cure=cure)
            yield str(source), str(target)
