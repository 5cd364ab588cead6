"""Quality with and without neighbours: perplexity of wanted tokens, and of translations BLEU and chrF."""

import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from realm.errors import MissingExtra
from realm.index.base import RowIndex
from realm.index.embed import length_batches
from realm.knn.building import Progress
from realm.knn.network import HubNetwork
from realm.knn.scoring import KnnLogitsProcessor, ScoredTokens
from realm.knn.settings import Mixing

TOKENS_PER_BATCH = 2048


def perplexities(scored: ScoredTokens, mixing: Mixing, words: int | None) -> dict[str, Any]:
    """{"tokens", "perplexity", "knn_perplexity", "word_perplexity", "knn_word_perplexity", "mean_a", "found"}.

    The perplexity of a whitespace word is the total log-probability over the words (None without a number of words); "found" is the share
    of predictions with the wanted token among the neighbours.
    """
    plain = ScoredTokens.mixed(scored, Mixing(a=0.0))
    mixed = scored.mixed(mixing)
    near = scored.neighbours
    hit = ((near.tokens[:, : mixing.k] == scored.wanted[:, None]) & near.valid[:, : mixing.k]).any(1)
    return {
        "tokens": len(scored),
        "perplexity": _perplexity(plain, len(scored)),
        "knn_perplexity": _perplexity(mixed, len(scored)),
        "word_perplexity": None if not words else _perplexity(plain, words),
        "knn_word_perplexity": None if not words else _perplexity(mixed, words),
        "mean_a": float(scored.knn_probs(mixing)[1].mean()) if len(scored) else 0.0,
        "found": float(hit.mean()) if len(scored) else 0.0,
    }


def _perplexity(log_probs: torch.Tensor, units: int) -> float | None:
    """None where it is infinite: a wanted token got no probability at all."""
    if not units:
        return None
    mean = -float(log_probs.double().sum()) / units
    return math.exp(mean) if mean < 700 else None


@dataclass(frozen=True)
class Translations:
    """Translations of the sources, in their order, the tokens that they have in all, and what they took."""

    texts: list[str]
    tokens: int
    seconds: float


@torch.inference_mode()
def translate(
    network: HubNetwork,
    sources: Sequence[str],
    *,
    index: RowIndex | None = None,
    mixing: Mixing | None = None,
    beams: int = 4,
    longest: int = 128,
    progress: Progress | None = None,
) -> Translations:
    """Translate, with neighbours if an index and settings are given; batches depend on the lengths of the sources alone.

    Args:
        beams: 1 is greedy.
        longest: most tokens of a translation, if the model can say so many. Sources are cut at what it can read.
    """
    longest = min(longest, network.longest or longest)
    ids = [network.tokenizer(text, verbose=False)["input_ids"][: network.longest] for text in sources]
    texts, done, tokens = [""] * len(ids), 0, 0
    started, padding = time.perf_counter(), network.model.generation_config.pad_token_id
    with nullcontext() if index is None or mixing is None else KnnLogitsProcessor(network, index, mixing, padding) as knn:
        for batch in length_batches(np.array([len(row) * beams for row in ids]), TOKENS_PER_BATCH):
            inputs, mask = network.padded([np.array(ids[i]) for i in batch.tolist()])
            options: dict[str, Any] = {} if knn is None else {"logits_processor": [knn]}
            made = network.model.generate(
                input_ids=inputs, attention_mask=mask, num_beams=beams, do_sample=False, max_new_tokens=longest, **options
            )
            for i, row in zip(batch.tolist(), made, strict=True):
                texts[i] = network.tokenizer.decode(row, skip_special_tokens=True).strip()
            tokens += int((made[:, 1:] != network.model.config.pad_token_id).sum())
            done += len(batch)
            if progress is not None:
                progress(done, len(ids))
    return Translations(texts, tokens, time.perf_counter() - started)


def translation_scores(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """{"bleu", "chrf"} by sacrebleu, from 0 to 100 as it gives them.

    Raises:
        MissingExtra: sacrebleu is not installed.
    """
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise MissingExtra("BLEU and chrF", "knn") from None
    measures = {"bleu": BLEU(), "chrf": CHRF()}
    return {name: float(measure.corpus_score(list(hypotheses), [list(references)]).score) for name, measure in measures.items()}
