"""Computations for requests: one class for each kind of question, called with all payloads of a batch."""

from dataclasses import dataclass
from typing import Any

import torch

from realm.answering.opening import OpenRun
from realm.serve.shapes import ExplainRequest

Result = tuple[Any, dict[str, int]]
"""The result of one payload, and the versions that it was computed with."""


@dataclass(frozen=True)
class Answers:
    """Answers to questions from k blocks each, none of them of the documents left out."""

    k: int
    exclude_documents: tuple[str, ...] = ()

    def __call__(self, opened: OpenRun, questions: list[str]) -> list[Result]:
        found = opened.answerer_without(self.exclude_documents).answer(questions, k=opened.require_k(self.k))
        return [(answer, opened.versions) for answer in found]


@dataclass(frozen=True)
class Search:
    """The k nearest blocks of texts."""

    k: int

    def __call__(self, opened: OpenRun, texts: list[str]) -> list[Result]:
        return [(hits, opened.versions) for hits in opened.search_all(texts, self.k)]


@dataclass(frozen=True)
class Explain:
    """Explanations of masked sentences."""

    def __call__(self, opened: OpenRun, sentences: list[ExplainRequest]) -> list[Result]:
        found = [opened.explain(one.text, targets=one.targets, k=one.k, exclude_documents=one.exclude_documents) for one in sentences]
        return [(explanation, opened.versions) for explanation in found]


@dataclass(frozen=True)
class Embed:
    """Embeddings of (title, text) on one side: of questions by the question embedder, of documents by the one that made the index."""

    side: str

    @torch.inference_mode()
    def __call__(self, opened: OpenRun, pairs: list[tuple[str, str]]) -> list[Result]:
        featurizer, encode = opened.inputs.featurizer, opened.inputs.store.tokenizer.encode
        bodies = encode([text for _, text in pairs])
        if self.side == "question":
            embedder = opened.source.embedder
            inputs = [featurizer.query(ids) for ids in bodies]
            cut = [len(ids) > featurizer.query_length - 2 for ids in bodies]
        else:
            embedder = opened.generation.embedder
            titles = encode([title for title, _ in pairs])
            inputs = [featurizer.block(title, ids) for title, ids in zip(titles, bodies, strict=True)]
            cut = [len(t) + len(b) > featurizer.block_length - 3 for t, b in zip(titles, bodies, strict=True)]
        vectors = embedder(inputs).float().cpu().tolist()
        return [((vector, was_cut), opened.versions) for vector, was_cut in zip(vectors, cut, strict=True)]


Question = Answers | Search | Explain | Embed
