"""One datastore with the model that made it, opened together for one command."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack, cast

import torch

from realm.errors import ConfigError
from realm.index.base import RowIndex
from realm.index.mips import Metric
from realm.index.quality import recall_against
from realm.knn.building import DatastoreOptions
from realm.knn.datastore import Datastore, read_facts
from realm.knn.evaluation import perplexities, translate, translation_scores
from realm.knn.masked import MaskedNetwork, build_from_run, evaluate_clozes
from realm.knn.network import HubNetwork, Network, load_network
from realm.knn.pruning import Method, prune
from realm.knn.scoring import KnnLogitsProcessor, ScoredTokens, score_windows
from realm.knn.settings import Mixing
from realm.knn.texts import TextOptions, build_from_texts, read_pairs, windows_of_texts
from realm.knn.tuning import NEIGHBOURS, tune, with_gate
from realm.knn.windows import WindowSet
from realm.paths import RunPaths

Count = Callable[[str, int, int], None]
SAMPLE = 64
"""Predictions on which the recall of an approximate search is measured."""


@dataclass(frozen=True)
class Session:
    """A datastore, its model, and the search between them."""

    network: HubNetwork
    datastore: Datastore
    index: RowIndex

    @classmethod
    def open(cls, path: Path, *, model: str = "", kind: str = "auto", metric: str = "l2", device: str = "cpu") -> "Session":
        """Open a datastore and the model named in it, or ``model``.

        Raises:
            SnapshotError: no usable datastore, or one that another model made.
            ConfigError: no model there; no such index or metric.
        """
        network = network_of(path, model, device)
        datastore = Datastore.open(path, network)
        return cls(network, datastore, datastore.index(kind, cast(Metric, metric)))

    def recall(self, windows: WindowSet, k: int) -> float:
        """The share of the exactly nearest k that the search finds, over the first predictions of ``windows``."""
        exact = self.datastore.index("exact", self.index.metric)
        number, keys = 0, torch.zeros(0, self.network.dim)
        while number < len(windows) and len(keys) < SAMPLE:
            keys = torch.cat([keys, self.network.read([windows.window(number)], log_probs=False).keys.cpu()])
            number += 1
        return recall_against(exact, self.index, keys[:SAMPLE], [k])[k]


def network_of(path: Path, model: str, device: str) -> HubNetwork:
    """The model that a datastore names, with the layer of its keys.

    Raises:
        SnapshotError: no datastore.
        ConfigError: the model cannot be loaded.
    """
    facts = read_facts(path)
    if facts.kind == "masked":
        raise ConfigError("this datastore belongs to the encoder of a run, which only fills masks", cure="Use: realm knn eval or prune")
    return load_network(model or facts.model, tokenizer=facts.tokenizer, layer=facts.layer, device=device)


def build(
    model: str,
    sources: Sequence[Path],
    out: Path,
    options: TextOptions,
    *,
    layer: str = "",
    device: str = "cpu",
    **how: Unpack[DatastoreOptions],
) -> Datastore:
    """A datastore of texts and a model of transformers, or without sources of a run and its corpus.

    Raises what ``load_network`` and ``build_from_texts`` do, or ``MaskedNetwork.open`` and ``build_from_run``.
    """
    if RunPaths(Path(model)).config.is_file():
        if sources:
            raise ConfigError(f"'{model}' is a run, which reads its own corpus", cure="Leave the sources out.")
        return build_from_run(out, MaskedNetwork.open(Path(model), layer=layer, device=device), **how)
    if not sources:
        raise ConfigError("no text to read", cure="Name documents, or JSONL files of pairs for a translation model.")
    network = load_network(model, tokenizer=how.get("tokenizer", ""), layer=layer, device=device)
    return build_from_texts(out, network, sources, options, **how)


def evaluate(
    path: Path,
    sources: Sequence[Path],
    options: TextOptions,
    mixing: Mixing,
    *,
    model: str = "",
    kind: str = "auto",
    beams: int = 4,
    alone: bool = True,
    device: str = "cpu",
    progress: Count,
) -> dict[str, Any]:
    """Perplexity, and for pairs BLEU and chrF, with and without neighbours; seconds a token; recall of the search; how it was pruned.

    Raises what ``Session.open``, ``windows_of_texts`` and ``translation_scores`` do; of a run's encoder ``masked.evaluate_clozes``.
    """
    facts = read_facts(path)
    found: dict[str, Any] = {"datastore": str(path), "keys": facts.keys, "pruned_by": [note["method"] for note in facts.pruned]}
    if facts.kind == "masked":
        found |= evaluate_clozes(path, sources, mixing, model=model, kind=kind, device=device)
        return found | {"settings": settings_facts(mixing)}
    session = Session.open(path, model=model, kind=kind, metric=mixing.metric, device=device)
    scored, words, recall = _scored(session, sources, options, mixing.k, progress)
    found |= perplexities(scored, mixing, words) | {"index": session.index.info()["kind"], "index_recall": recall}
    per_token = {"model": scored.model_seconds / len(scored), "search": scored.search_seconds / len(scored)}
    found |= {"settings": settings_facts(mixing), "seconds_per_token": per_token}
    if session.network.kind == "translation" and beams:
        texts, references = zip(*read_pairs(sources, options), strict=True)
        for name, index in (("without", None), ("with", session.index))[0 if alone else 1 :]:
            count = lambda done, total, name=name: progress(f"knn: translations {name}", done, total)  # noqa: E731
            made = translate(session.network, texts, index=index, mixing=mixing, beams=beams, progress=count)
            found[f"translation_{name}"] = {**translation_scores(made.texts, references), "tokens_per_second": made.tokens / made.seconds}
    return found


def tune_on(
    session: Session,
    sources: Sequence[Path],
    options: TextOptions,
    grid: Mapping[str, Sequence[Any]],
    out: Path,
    *,
    gate: bool = False,
    progress: Count,
) -> dict[str, Any]:
    """Search the grid on held-out text, for the metric of the session's index, and write the best settings to ``out``.

    Raises what ``windows_of_texts`` and ``tune`` do.
    """
    most = max([*grid["neighbours"], *(() if grid["neighbours"] else NEIGHBOURS)])
    scored, words, _ = _scored(session, sources, options, most, progress)
    tuned = tune(scored, session.index.metric, **grid)
    best = with_gate(scored, tuned.best) if gate else tuned.best
    best.save(out)
    found: dict[str, Any] = {"datastore": str(session.datastore.path), "settings": settings_facts(best), "file": str(out)}
    return found | perplexities(scored, best, words) | {"model_loss": tuned.model_loss, "loss": tuned.loss, "grid": tuned.rows}


def pruned(
    path: Path, out: Path, method: str, keep: float, *, seed: int = 0, model: str = "", device: str = "cpu", progress: Count
) -> Datastore:
    """Make a smaller datastore; the model is opened only where it must run. Raises what ``prune`` and ``network_of`` do."""
    facts = read_facts(path)
    network: Network | None = None
    if method == "known":
        masked = facts.kind == "masked"
        run = Path(model or facts.model)
        network = MaskedNetwork.open(run, layer=facts.layer, device=device) if masked else network_of(path, model, device)
    source = Datastore.open(path, network)
    count = lambda done, total: progress("knn: tokens", done, total)  # noqa: E731
    return prune(source, out, cast(Method, method), keep, network=network, seed=seed, progress=count)


@torch.inference_mode()
def generate(
    session: Session, text: str, mixing: Mixing, *, tokens: int = 64, beams: int = 1, sample: bool = False, seed: int = 0
) -> dict[str, Any]:
    """What the model says after ``text`` (or as its translation): {"text", "generated", "settings"}.

    Raises:
        ConfigError: tokens or beams below 1, a text without tokens, or more of them than the model reads.
    """
    if min(tokens, beams) < 1:
        raise ConfigError(f"tokens = {tokens} and beams = {beams}: both must be at least 1", cure="Raise them.")
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
    torch.manual_seed(seed)
    inputs = torch.tensor([ids], device=network.device)
    with KnnLogitsProcessor(network, session.index, mixing) as knn:
        made = network.model.generate(
            input_ids=inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=tokens,
            num_beams=beams,
            do_sample=sample,
            logits_processor=[knn],
        )[0]
    new = made[len(ids) :] if network.kind == "causal" else made
    generated = network.tokenizer.decode(new, skip_special_tokens=True).strip()
    return {"text": text, "generated": generated, "settings": settings_facts(mixing)}


def settings_facts(mixing: Mixing) -> dict[str, Any]:
    facts = {"k": mixing.k, "a": None if mixing.gate else mixing.a, "temperature": mixing.temperature, "metric": mixing.metric}
    return {**facts, "gate": mixing.gate is not None}


def _scored(session: Session, sources: Sequence[Path], options: TextOptions, k: int, progress: Count) -> tuple[ScoredTokens, int, float]:
    """Every wanted token of the sources but unknown ones, the words that they make up, and the recall of the search at k."""
    with tempfile.TemporaryDirectory() as scratch:
        windows = windows_of_texts(Path(scratch) / "windows", session.network, sources, options)
        scored = score_windows(session.network, windows, session.index, k, lambda done, total: progress("knn: tokens", done, total))
        recall = session.recall(windows, min(k, len(session.datastore)))
        return scored.without(session.network.tokenizer.unk_token_id), int(windows.facts["words"]), recall
