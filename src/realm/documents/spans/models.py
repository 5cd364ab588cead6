"""Salient-span taggers from models outside the corpus: any Hugging Face token classifier."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from realm.documents.spans.spans import TaggedSpan, kind_of
from realm.errors import DataError, said

BATCH = 32
LONGEST = 512
"""Wordpieces of a sentence that are read; of a longer one the rest is not tagged."""


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
    """Tags what a token classifier labels, by the pipeline of transformers: a word has the label of its first piece.

    The model is a directory, by an absolute path or one that begins with "." or "~"; anything else is a hub name. Weights must be
    safetensors; code that comes with a model is never run. Raises DataError: nothing usable is found there, a hub name is a directory here
    as well, or its labels are not of the BIO kind."""

    def __init__(self, model: str):
        from transformers import AutoModelForTokenClassification, AutoTokenizer, TokenClassificationPipeline

        self.model = _place_of(model)
        cure = "Give a hub name or a directory with a token classifier: config.json, model.safetensors, tokenizer.json"
        try:
            tokenizer: Any = AutoTokenizer.from_pretrained(self.model, use_fast=True, trust_remote_code=False)
            network: Any = AutoModelForTokenClassification.from_pretrained(self.model, use_safetensors=True, trust_remote_code=False).eval()
        except Exception as error:  # transformers raises whatever a strange file makes its parts raise
            raise DataError(f"no token classifier '{model}': {said(error)}", cure=cure) from error
        if not getattr(tokenizer, "is_fast", False):
            raise DataError(f"the tokenizer of '{model}' has no fast version, which offsets need", cure=cure)
        labels = sorted(map(str, network.config.id2label.values()))
        if "O" not in labels or any(label[1:2] == "-" and label[0] not in "BI" for label in labels):
            problem = f"the labels of '{model}' ({', '.join(labels[:5])}) are not of the BIO kind"
            raise DataError(problem, cure="Name labels O, B-..., I-...")
        longest = getattr(network.config, "max_position_embeddings", None) or LONGEST
        tokenizer.model_max_length = min(longest, tokenizer.model_max_length, LONGEST)
        self._tagged: Any = TokenClassificationPipeline(
            model=network, tokenizer=tokenizer, aggregation_strategy="first", batch_size=BATCH, device="cpu"
        )

    def tag(self, text: str) -> list[TaggedSpan]:
        """Spans in order, without overlaps: dates and numbers if the labels name them, else names."""
        return self.tag_many([text])[0]

    def tag_many(self, texts: Sequence[str]) -> list[list[TaggedSpan]]:
        """The spans of each text, computed in batches of similar length."""
        found: list[list[TaggedSpan]] = [[] for _ in texts]
        order = sorted((number for number, text in enumerate(texts) if text.strip()), key=lambda number: len(texts[number]))
        for number, groups in zip(order, self._tagged([texts[number] for number in order]) if order else (), strict=True):
            found[number] = [_stripped(texts[number], group) for group in groups]
        return found

    def state(self) -> dict[str, Any]:
        return {"type": "hf", "model": self.model}


def _stripped(text: str, group: dict[str, Any]) -> TaggedSpan:
    """A span of the pipeline without the space that some tokenizers leave before a word."""
    piece = text[group["start"] : group["end"]]
    return TaggedSpan(group["end"] - len(piece.lstrip()), group["end"], kind_of(group["entity_group"]))
