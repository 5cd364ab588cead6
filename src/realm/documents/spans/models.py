"""Salient-span taggers from models outside the corpus: any Hugging Face token classifier."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from realm.documents.spans.spans import OUTSIDE, TaggedSpan, kind_of, spans_of
from realm.errors import DataError, said

BATCH = 32
LONGEST = 512
"""Wordpieces of a sentence that are read; of a longer one the rest is not tagged."""


def _spans_of(text: str, tokens: Iterable[tuple[int, int, int | None, str]]) -> list[TaggedSpan]:
    """Spans by the labels of the words' first pieces, which is what classifiers are trained on; tokens: start, end, word number, label."""
    words: list[tuple[int, int, str]] = []
    last_word: int | None = None
    for start, end, word, label in tokens:
        if start == end:
            continue
        if word is None or word != last_word:
            words.append((start, end, label))
        elif any(map(str.isalnum, text[start:end])):  # not the full stop that some tokenizers leave on a word
            words[-1] = (words[-1][0], end, words[-1][2])
        last_word = word
    spans = []
    for first, stop, kind in spans_of(label for _, _, label in words):
        piece = text[(start := words[first][0]) : words[stop - 1][1]]
        if piece.strip():
            start += len(piece) - len(piece.lstrip())
            spans.append(TaggedSpan(start, start + len(piece.strip()), kind_of(kind)))
    return spans


def _place_of(model: str) -> str:
    """The absolute path of a directory, or a hub name, for which transformers would read a directory of that name as well. Raises
    DataError: a hub name, and such a directory."""
    if model.startswith((".", "~")) or Path(model).is_absolute():
        return str(Path(model).expanduser().resolve())
    if os.path.lexists(model):
        cure = f"Write hf:./{model} for it; for the hub, run the command from elsewhere"
        raise DataError(f"hf:{model} names a model on the hub, and a file or folder of that name is here", cure=cure)
    return model


class ClassifierTagger:
    """Tags what a token classifier labels.

    The model is a directory, by an absolute path or one that begins with "." or "~"; anything else is a hub name. Weights must be
    safetensors; code that comes with a model is never run. Raises DataError: nothing usable is found there, a hub name is a directory here
    as well, or its labels are not of the BIO kind."""

    def __init__(self, model: str):
        from transformers import AutoModelForTokenClassification, AutoTokenizer

        self.model = _place_of(model)
        cure = "Give a hub name or a directory with a token classifier: config.json, model.safetensors, tokenizer.json"
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(self.model, use_fast=True, trust_remote_code=False)
            self._network: Any = AutoModelForTokenClassification.from_pretrained(
                self.model, use_safetensors=True, trust_remote_code=False
            ).eval()
        except Exception as error:  # transformers raises whatever a strange file makes its parts raise
            raise DataError(f"no token classifier '{model}': {said(error)}", cure=cure) from error
        if not getattr(self._tokenizer, "is_fast", False):
            raise DataError(f"the tokenizer of '{model}' has no fast version, which offsets need", cure=cure)
        self._labels = {int(number): str(label) for number, label in self._network.config.id2label.items()}
        if OUTSIDE not in self._labels.values():
            listed = ", ".join(sorted(self._labels.values())[:5])
            raise DataError(
                f"the labels of '{model}' ({listed}) have no label for words outside a span", cure="Name labels O, B-..., I-..."
            )
        longest = getattr(self._network.config, "max_position_embeddings", None) or LONGEST
        self._longest = min(longest, self._tokenizer.model_max_length, LONGEST)

    def tag(self, text: str) -> list[TaggedSpan]:
        """Spans in order, without overlaps: dates and numbers if the labels name them, else names."""
        return self.tag_many([text])[0]

    def tag_many(self, texts: Sequence[str]) -> list[list[TaggedSpan]]:
        """The spans of each text, computed in batches of similar length."""
        found: list[list[TaggedSpan]] = [[] for _ in texts]
        order = sorted((number for number, text in enumerate(texts) if text.strip()), key=lambda number: len(texts[number]))
        for first in range(0, len(order), BATCH):
            numbers = order[first : first + BATCH]
            for number, spans in zip(numbers, self._tagged([texts[number] for number in numbers]), strict=True):
                found[number] = spans
        return found

    def state(self) -> dict[str, Any]:
        return {"type": "hf", "model": self.model}

    def _tagged(self, texts: list[str]) -> Iterator[list[TaggedSpan]]:
        import torch

        encoded = self._tokenizer(
            texts, padding=True, truncation=True, max_length=self._longest, return_offsets_mapping=True,
            return_special_tokens_mask=True, return_tensors="pt",
        )  # fmt: skip
        taken = {name: encoded[name] for name in self._tokenizer.model_input_names if name in encoded}
        with torch.inference_mode():
            best = self._network(**taken).logits.argmax(-1).tolist()
        columns = (encoded[name].tolist() for name in ("offset_mapping", "special_tokens_mask"))
        for row, (text, offsets, special, labels) in enumerate(zip(texts, *columns, best, strict=True)):
            tokens = zip(offsets, encoded.word_ids(row), labels, special, strict=True)
            yield _spans_of(text, ((*place, word, self._labels[label]) for place, word, label, is_special in tokens if not is_special))
