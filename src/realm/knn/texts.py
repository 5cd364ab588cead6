"""Text into windows: documents for a language model, pairs of sentences for a translation model."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from realm.corpus.records import SourceDocument
from realm.corpus.sources import LOOK, SourceOptions, iter_documents
from realm.errors import ConfigError, DataError
from realm.knn.building import DatastoreOptions, build_datastore, ensure_windows
from realm.knn.datastore import Datastore
from realm.knn.network import HubNetwork
from realm.knn.windows import Window, WindowSet, sliding_windows, write_windows
from realm.storage.files import sha256_file
from realm.text.files import json_lines


@dataclass(frozen=True)
class TextOptions:
    """How sources become windows.

    Args:
        context: most tokens that a language model reads at once; 0: as many as it can, at most 512.
        stride: tokens that each window but a document's first adds; 0: half the context.
        source_column: field of a pair with the text to translate.
        target_column: field with its translation.
    """

    context: int = 0
    stride: int = 0
    source_column: str = "source"
    target_column: str = "target"
    reading: SourceOptions = LOOK

    def fitted(self, longest: int | None) -> tuple[int, int]:
        """(context, stride) for a model that reads ``longest`` tokens.

        Raises:
            ConfigError: a context that the model cannot read, or a stride beyond it.
        """
        context = self.context or min(512, longest or 512)
        stride = self.stride or max(1, context // 2)
        if longest is not None and context > longest:
            raise ConfigError(f"context = {context}, and the model reads at most {longest} tokens", cure=f"Lower it to {longest}.")
        if not 1 <= stride <= context:
            raise ConfigError(f"stride = {stride} is outside 1 to the context {context}", cure="Lower it.")
        return context, stride


class TextWindows:
    """Windows of sources for one network; iterate once. ``words`` and ``skipped`` are right when that has ended.

    Attributes:
        words: whitespace words of the texts that are predicted, unknown tokens left out.
        skipped: records that could not be used.
    """

    def __init__(self, network: HubNetwork, sources: Sequence[Path], options: TextOptions):
        self.network, self.sources, self.options = network, sources, options
        self.words = self.skipped = 0
        self._unknown = str(getattr(network.tokenizer, "unk_token", None) or "\0")

    @property
    def facts(self) -> dict[str, Any]:
        return {"words": self.words, "skipped": self.skipped}

    def __iter__(self) -> Iterator[Window]:
        return self._of_pairs() if self.network.kind == "translation" else self._of_documents()

    def _of_documents(self) -> Iterator[Window]:
        context, stride = self.options.fitted(self.network.longest)
        for source in self.sources:
            for record in iter_documents(source, self.options.reading):
                if not isinstance(record, SourceDocument):
                    self.skipped += 1
                    continue
                self.words += len(record.text.replace(self._unknown, " ").split())
                yield from sliding_windows(np.array(self._ids(record.text), np.int32), context, stride)

    def _of_pairs(self) -> Iterator[Window]:
        longest, start = self.network.longest, decoder_start(self.network.model)
        for text, translation in read_pairs(self.sources, self.options):
            source, target = self._ids(text), self._ids(translation, as_target=True)
            if longest is not None and max(len(source), len(target)) > longest:
                self.skipped += 1
                continue
            self.words += len(translation.replace(self._unknown, " ").split())
            wanted = np.array(target, np.int32)
            read = np.concatenate([np.array([start], np.int32), wanted[:-1]])
            yield Window(read, np.arange(len(wanted), dtype=np.int32), wanted, np.array(source, np.int32))

    def _ids(self, text: str, *, as_target: bool = False) -> list[int]:
        given: dict[str, Any] = {"text_target": text} if as_target else {"text": text}
        ids: list[int] = self.network.tokenizer(**given, verbose=False)["input_ids"]
        return ids


def decoder_start(model: Any) -> int:
    """The token that a decoder begins with. Raises ConfigError: the model's configuration does not name one."""
    found = [getattr(model.config, name, None) for name in ("decoder_start_token_id", "bos_token_id")]
    start = next((token for token in found if token is not None), None)
    if start is None:
        raise ConfigError("the model's configuration has no decoder_start_token_id", cure="Set it in its config.json.")
    return int(start)


def read_pairs(files: Iterable[Path], options: TextOptions) -> Iterator[tuple[str, str]]:
    """Sentences and their translations of JSONL files (also .gz, .xz).

    Raises:
        DataError: a file is missing, or a row lacks one of the two texts; the message names file and line.
    """
    wanted = (options.source_column, options.target_column)
    cure = f'Each line is {{"{wanted[0]}": ..., "{wanted[1]}": ...}}; --source-column and --target-column give other names.'
    for path in files:
        for number, row in json_lines(path, cure):
            source, target = (row.get(name) for name in wanted)
            if not all(isinstance(text, str) and text.strip() for text in (source, target)):
                raise DataError(f"no text in '{wanted[0]}' or '{wanted[1]}'", path=path, line=number, cure=cure)
            yield str(source), str(target)


def build_from_texts(
    directory: Path, network: HubNetwork, sources: Sequence[Path], options: TextOptions | None = None, **how: Unpack[DatastoreOptions]
) -> Datastore:
    """A datastore of documents (for a language model) or of pairs of sentences (for a translation model).

    Raises what ``build_datastore``, ``ensure_windows`` and ``TextOptions`` do.
    """
    options = options or TextOptions()
    made_from = {
        "model": network.sha256,
        "tokenizer": network.tokenizer_sha256,
        "sources": [[str(source), sha256_file(source) if source.is_file() else None] for source in sources],
        "window": options.fitted(network.longest),
        "options": asdict(options),
    }
    run = TextWindows(network, sources, options)
    windows = partial(ensure_windows, directory, made_from, run, lambda: run.facts)
    return build_datastore(directory, network, windows, **how)


def windows_of_texts(path: Path, network: HubNetwork, sources: Sequence[Path], options: TextOptions) -> WindowSet:
    """The windows of texts to be predicted, as the directory ``path``; its facts hold "words" and "skipped".

    Raises what ``write_windows`` and ``TextOptions`` do.
    """
    run = TextWindows(network, sources, options)
    return write_windows(path, run, lambda: run.facts)
