"""The candidates of masked sentences: what the published embedder finds, alone or with sparse search, without the documents that hold the
sentence."""

from collections.abc import Callable, Sequence as SequenceOf

import numpy as np
import torch

from realm.corpus.store.blocks import BlockStore
from realm.data.blocks import BlockInputs
from realm.data.featurize import searched_ids
from realm.data.masked_text import words_left
from realm.data.masking.exclusion import overlapping
from realm.data.types import MaskedQuery
from realm.errors import TrainingError
from realm.index.hybrid import HybridSearch
from realm.refresh import Generation
from realm.retrieval import Retrieved, Retriever

Find = Callable[[np.ndarray, int, list[np.ndarray]], Retrieved]
"""Searches for some of the queries, int64 [m], so many candidates without what each of them excludes."""


@torch.inference_mode()
def retrieve_candidates(
    generation: Generation,
    inputs: BlockInputs,
    queries: SequenceOf[MaskedQuery],
    k: int,
    *,
    null: bool,
    overlap: int,
    hybrid: HybridSearch | None = None,
    sentences: BlockStore | None = None,
    proposals: int = 0,
    pointer: bool = False,
) -> Retrieved:
    """k candidates of each query by the generation's own embedder, or by that and sparse search for the words that are left.

    Args:
        generation: what is searched.
        inputs: corpus and featuriser.
        queries: b masked sentences; what they exclude is never found.
        k: candidates, the null document included.
        null: whether candidate 0 is the null document.
        overlap: documents that share so many wordpieces in a row with the sentence are not found either; 0 for no such rule.
        hybrid: searches the generation's blocks; None: the embedder alone does.
        sentences: the corpus that the sentences came from, if ``hybrid`` is given.
        proposals: so many blocks are searched for by ``hybrid``, and the embedder's best of them are the candidates, in its order; 0: the
            best by the sum of both searches are, in that order.
        pointer: the hidden span is one [MASK] to the embedder.

    Raises:
        TrainingError: the embedder has damaged weights.
    """
    embedder = generation.queries
    learning = embedder.training  # it may be the live one
    query_emb = embedder.eval().embed_queries([inputs.featurizer.query(searched_ids(query, pointer=pointer)) for query in queries])
    embedder.train(learning)
    if not bool(torch.isfinite(query_emb).all()):
        problem = f"the query embedder of index generation {generation.number} gives values that are not finite"
        raise TrainingError(problem, cure="Its weights are damaged: lower the learning rate and train the stage again.")
    retriever = Retriever(lambda emb: emb, generation.index, hybrid)
    texts = words_left(sentences, queries) if hybrid is not None and sentences is not None else [""] * len(queries)

    def find(which: np.ndarray, depth: int, exclude: list[np.ndarray]) -> Retrieved:
        words, asked = [texts[i] for i in which.tolist()], query_emb[torch.from_numpy(which)]
        return retriever.retrieve(asked, depth, null=null, exclude=exclude, texts=words, proposals=proposals)

    if not overlap:
        return find(np.arange(len(queries)), k, [query.excluded for query in queries])
    return _search_on(find, inputs, queries, k, len(generation.index) + int(null), overlap)


def _search_on(find: Find, inputs: BlockInputs, queries: SequenceOf[MaskedQuery], k: int, most: int, overlap: int) -> Retrieved:
    """Search, exclude what overlaps, and search again for queries that found such documents, each time twice as deep, up to ``most``."""
    excluded = [query.excluded for query in queries]
    waiting, depth = np.arange(len(queries)), k
    columns: list[tuple[np.ndarray, ...]] = [()] * len(queries)
    while len(waiting):
        found = find(waiting, depth, [excluded[i] for i in waiting])
        again = []
        for at, i in enumerate(waiting.tolist()):
            trivial = overlapping(queries[i], found.block_ids[at], inputs.store, overlap)
            excluded[i] = np.union1d(excluded[i], trivial)
            columns[i] = tuple(values[at, :k] for values in (found.block_ids, found.valid, found.scores))
            if np.isin(columns[i][0], trivial).any():
                again.append(i)
        waiting, depth = np.array(again, np.int64), min(2 * depth, max(k, most))
    ids, valid, scores = (np.stack(values) for values in zip(*columns, strict=True))
    return Retrieved(ids, valid, scores)
