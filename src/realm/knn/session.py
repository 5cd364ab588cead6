"""One datastore with the model that made it: built, tuned, measured, and asked to generate."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch

from realm.documents.sources import SourceOptions
from realm.errors import ConfigError, DataError, needing, require_some
from realm.knn.datastore import BuildOptions, Datastore, DatastoreFacts, Progress, build_from_texts
from realm.knn.network import HubNetwork, load_network
from realm.knn.scoring import KnnLogitsProcessor, Mixing, ScoredTokens, score_windows
from realm.knn.windows import TextOptions, read_pairs, windows_of_texts
from realm.search.index.base import RowIndex
from realm.search.publishing.embedding import length_batches

Count = Callable[[str, int, int], None]
"""Called with (name of the work, done, in all)."""
TOKENS_PER_BATCH = 2048
"""Of translations: padded sources times beams."""
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
NEIGHBOURS = (4, 8, 16, 32, 64)
TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""In units of the mean distance between the nearest neighbour and the last: models differ in the scale of their states."""


def build(
    model: str, sources: Sequence[Path], out: Path, options: TextOptions, layer: str = "", device: str = "cpu", **how: Unpack[BuildOptions]
) -> Datastore:
    """A datastore of texts and a model of transformers."""
    if not sources:
        raise ConfigError("no text to read", cure="Name documents, or JSONL files of pairs for a translation model.")
    return build_from_texts(out, load_network(model, layer=layer, device=device), sources, options, **how)


@dataclass(frozen=True)
class Session:
    """An open datastore, its model, and the search between them."""

    network: HubNetwork
    datastore: Datastore
    index: RowIndex

    @classmethod
    def open(cls, path: Path, *, model: str = "", device: str = "cpu") -> "Session":
        """Open a datastore with the model named in it, or ``model``. Raises SnapshotError: see ``Datastore``. ConfigError: no model."""
        facts = DatastoreFacts.read(path)
        network = load_network(model or facts.model, layer=facts.layer, device=device)
        datastore = Datastore.open(path, network)
        return cls(network, datastore, datastore.index())

    @property
    def options(self) -> TextOptions:
        """Options of the datastore's own text, for other texts; formats of documents are detected anew."""
        values = self.datastore.facts.text["options"]
        return TextOptions(**{**values, "reading": SourceOptions(**{**values["reading"], "format": None})})

    def score(self, sources: Sequence[Path], k: int, progress: Count) -> tuple[ScoredTokens, int]:
        """Every wanted token of texts but unknown ones, and the number of their words."""
        windows = windows_of_texts(self.network, sources, self.options)
        scored = score_windows(self.network, windows, self.index, k, lambda done, total: progress("knn: tokens", done, total))
        return scored.without(self.network.tokenizer.unk_token_id), windows.counts["words"]


def evaluate(
    path: Path, sources: list[Path], mixing: Mixing, progress: Count, model: str = "", beams: int = 4, device: str = "cpu"
) -> dict[str, Any]:
    """Perplexity, and for pairs BLEU and chrF, with and without neighbours; seconds a token."""
    session = Session.open(path, model=model, device=device)
    found: dict[str, Any] = {"datastore": str(path), "keys": session.datastore.facts.keys}
    scored, words = session.score(sources, mixing.k, progress)
    per_token = {"model": scored.model_seconds / len(scored), "search": scored.search_seconds / len(scored)}
    found |= perplexities(scored, mixing, words) | {"settings": mixing.facts(), "seconds_per_token": per_token}
    if session.network.kind == "translation" and beams:
        texts, references = zip(*read_pairs(sources, session.options), strict=True)
        for name, index in (("without", None), ("with", session.index)):
            count = lambda done, total, name=name: progress(f"knn: translations {name}", done, total)  # noqa: E731
            made = translate(session.network, texts, index=index, mixing=mixing, beams=beams, progress=count)
            found[f"translation_{name}"] = {**translation_scores(made.texts, references), "tokens_per_second": made.tokens / made.seconds}
    return found


def perplexities(scored: ScoredTokens, mixing: Mixing, words: int | None) -> dict[str, Any]:
    """{"tokens", "perplexity", "knn_perplexity", "word_perplexity", "knn_word_perplexity", "mean_a", "found"}.

    Per whitespace word: total log-probability over the words, None without their number; "found": share of wanted tokens among neighbours.
    """
    plain, mixed, near = torch.from_numpy(scored.log_probs), scored.mixed(mixing), scored.neighbours
    hit = ((near.tokens[:, : mixing.k] == scored.wanted[:, None]) & near.valid[:, : mixing.k]).any(1)
    return {
        "tokens": len(scored),
        "perplexity": _perplexity(plain, len(scored)),
        "knn_perplexity": _perplexity(mixed, len(scored)),
        "word_perplexity": _perplexity(plain, words or 0),
        "knn_word_perplexity": _perplexity(mixed, words or 0),
        "mean_a": float(scored.knn_probs(mixing)[1].mean()) if len(scored) else 0.0,
        "found": float(hit.mean()) if len(scored) else 0.0,
    }


def _perplexity(log_probs: torch.Tensor, units: int) -> float | None:
    """Perplexity; None where it is infinite: a wanted token got no probability at all."""
    if not units:
        return None
    mean = -float(log_probs.double().sum()) / units
    return math.exp(mean) if mean < 700 else None


@dataclass(frozen=True)
class Translations:
    """Translations in the order of the sources, the number of their tokens, and the seconds of making them."""

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
    """Translate by ``beams``, with neighbours if given, at most ``longest`` tokens; batches depend on the lengths of sources alone."""
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
    """{"bleu", "chrf"} by sacrebleu, from 0 to 100. Raises MissingExtra: sacrebleu is not installed."""
    with needing("BLEU and chrF", "knn"):
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    measures = {"bleu": BLEU(), "chrf": CHRF()}
    return {name: float(measure.corpus_score(list(hypotheses), [list(references)]).score) for name, measure in measures.items()}


def tune_on(session: Session, sources: Sequence[Path], grid: Mapping[str, Sequence[Any]], out: Path, progress: Count) -> dict[str, Any]:
    """Search the grid on held-out text and write the best settings to ``out``."""
    scored, words = session.score(sources, max(grid["neighbours"] or NEIGHBOURS), progress)
    tuned = tune(scored, **grid)
    tuned.best.save(out)
    found: dict[str, Any] = {"datastore": str(session.datastore.path), "settings": tuned.best.facts(), "file": str(out)}
    return found | perplexities(scored, tuned.best, words) | {"model_loss": tuned.model_loss, "loss": tuned.loss, "grid": tuned.rows}


@dataclass(frozen=True)
class Tuned:
    """Best point of a grid and all ``rows``, {"k", "a", "temperature", "loss"}; the loss is the mean negative log-probability."""

    best: Mixing
    rows: list[dict[str, float]]
    loss: float
    model_loss: float


def tune(
    scored: ScoredTokens, *, neighbours: Sequence[int] = (), shares: Sequence[float] = (), temperatures: Sequence[float] = ()
) -> Tuned:
    """Search the grid for the lowest mean negative log-probability of the wanted tokens, without the model.

    Empty: all NEIGHBOURS, SHARES, and TEMPERATURES times the mean distance from the nearest neighbour to the last.

    Raises ConfigError: a value out of range; DataError: nothing was scored."""
    if not len(scored) or not scored.neighbours.valid.any():
        raise DataError("nothing to tune on: no prediction has a neighbour", cure="Give more text, or a larger datastore.")
    most = scored.neighbours.scores.shape[1]
    sizes = list(neighbours) or sorted({min(k, most) for k in NEIGHBOURS})
    if max(sizes) > most:
        raise ConfigError(f"k = {max(sizes)}, and {most} neighbours were looked up")
    near, count = scored.neighbours, scored.neighbours.valid.sum(1)
    some = count > 0
    distance = float((near.scores[some, 0].astype(float) - near.scores[some, count[some] - 1]).mean())
    scale = distance if distance > 0 else 1.0
    rows: list[dict[str, float]] = []
    log_model = torch.from_numpy(scored.log_probs).double()
    for k in sizes:
        for temperature in list(temperatures) or [scale * factor for factor in TEMPERATURES]:
            p_knn, _ = scored.knn_probs(Mixing(k, 1.0, temperature))
            for a in list(shares) or SHARES:
                Mixing(k, a, temperature)  # refuses what is out of range
                mixed = torch.logaddexp(log_model + torch.log1p(torch.tensor(-a).double()), p_knn.log() + torch.tensor(a).double().log())
                rows.append({"k": k, "a": a, "temperature": temperature, "loss": min(-float(mixed.mean()), 1e9)})
    best = min(rows, key=lambda row: row["loss"])
    return Tuned(Mixing(int(best["k"]), best["a"], best["temperature"]), rows, best["loss"], -float(log_model.mean()))


@torch.inference_mode()
def generate(session: Session, text: str, mixing: Mixing, tokens: int = 64) -> dict[str, Any]:
    """Continue or translate ``text`` greedily: {"text", "generated", "settings"}. Raises ConfigError: no tokens, or too many."""
    require_some("--tokens", tokens)
    network = session.network
    ids = network.tokenizer(text, verbose=False)["input_ids"]
    if network.kind == "causal" and ids and ids[-1] == network.tokenizer.eos_token_id:
        ids = ids[:-1]  # the text goes on
    if not ids:
        raise ConfigError("the text has no tokens", cure="Give a text with letters.")
    needed = max(len(ids), tokens) if network.kind == "translation" else len(ids) + tokens
    if network.longest is not None and needed > network.longest:
        problem = f"{len(ids)} tokens of text and {tokens} new ones are too many: the model reads at most {network.longest}"
        raise ConfigError(problem, cure="Shorten the text or lower --tokens.")
    inputs, greedy = torch.tensor([ids], device=network.device), {"max_new_tokens": tokens, "num_beams": 1, "do_sample": False}
    with KnnLogitsProcessor(network, session.index, mixing) as knn:
        made = network.model.generate(input_ids=inputs, attention_mask=torch.ones_like(inputs), logits_processor=[knn], **greedy)[0]
    new = made[len(ids) :] if network.kind == "causal" else made
    return {"text": text, "generated": network.tokenizer.decode(new, skip_special_tokens=True).strip(), "settings": mixing.facts()}
