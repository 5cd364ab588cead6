"""What teaches a retriever that knows something already? Each term alone, from one start, on the same sentences with the same reader.

    python benchmarks/bench_retriever_terms.py RUN --questions DATA/squad/qa_dev.jsonl.xz

RUN has ended pre-training with a reader that points ("reader first"): it stays as it is, so that what it makes of every candidate is
computed once, and the retriever alone learns after it. Side "query" leaves the documents' vectors as they are published, "both" trains
one embedder for both sides and embeds the corpus anew. Recall at 1, 5 and 20, dense alone, before and after: of blocks with the hidden
span for sentences that nobody trained on, and of blocks with an answer for --questions. Differences have 95 % bootstrap intervals over
sentences or questions. The last line is one JSON object.
"""

import argparse
import copy
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common import result
from realm import losses
from realm.data.blocks import NO_ROW
from realm.data.types import MaskedQuery
from realm.nn.bodies import freeze_words
from realm.nn.embedder import Embedder
from realm.nn.precision import multiplying
from realm.opening import read_run_recipe
from realm.paths import RunPaths
from realm.pointer import point_at
from realm.recipes.context import StageContext, load_stage, open_context, stage_facts
from realm.recipes.pretrain.evidence import holding
from realm.recipes.pretrain.task import PretrainTask
from realm.refresh import embed_corpus, open_generation
from retriever_judge import AT_ONCE, DEPTHS, Judge, searched


@dataclass(frozen=True)
class Batch:
    """b sentences, what is searched for them [b], their k candidates' rows [b, k] (NO_ROW where there is none), what the reader makes of
    each candidate, log p(y|z,x) [b, k], and which hold the hidden span [b, k]."""

    queries: list[MaskedQuery]
    rows: np.ndarray
    log_p_y: Tensor
    held: np.ndarray

    @property
    def valid(self) -> Tensor:
        return torch.from_numpy(self.rows != NO_ROW)

    def part(self, at: slice) -> "Batch":
        return Batch(self.queries[at], self.rows[at], self.log_p_y[at], self.held[at])


@dataclass(frozen=True)
class Scored:
    """Scores of u different blocks for b sentences [b, u], the columns of each sentence's own candidates [b, k], and the blocks' rows."""

    scores: Tensor
    own: Tensor
    rows: np.ndarray


Term = Callable[[PretrainTask, Batch, Scored], Tensor]


def own_log_probs(batch: Batch, scored: Scored) -> Tensor:
    """log p(z|x) over a sentence's own candidates, [b, k]."""
    return losses.candidate_log_probs(scored.scores.gather(1, scored.own), batch.valid)


def likelihood_term(loss: Callable[[Tensor, Tensor, Tensor], losses.Loss]) -> Term:
    def term(task: PretrainTask, batch: Batch, scored: Scored) -> Tensor:
        slots = torch.ones(len(batch.queries), 1, dtype=torch.bool)
        return loss(batch.log_p_y.unsqueeze(-1), own_log_probs(batch, scored), slots)[0].mean()

    return term


def evidence_term(task: PretrainTask, batch: Batch, scored: Scored) -> Tensor:
    """-log of the probability of the own candidates that hold the hidden span, among them all."""
    found, valid = losses.retriever_marginal(scored.scores.gather(1, scored.own), torch.from_numpy(batch.held), batch.valid)
    return found.sum() / valid.sum().clamp(min=1)


def allowed_in(task: PretrainTask, batch: Batch, scored: Scored) -> Tensor:
    """Which blocks of the batch a sentence may be given, [b, u]."""
    ids = np.asarray(task.context.store.block_ids)[scored.rows]
    return torch.from_numpy(np.array([~np.isin(ids, query.excluded) for query in batch.queries]))


def marginal_in_batch(task: PretrainTask, batch: Batch, scored: Scored) -> Tensor:
    """The marginal likelihood, p(z|x) over the candidates of the whole batch: those of others explain nothing."""
    log_p_z = losses.in_batch_log_probs(scored.scores, allowed_in(task, batch, scored), scored.own, batch.valid)
    slots = torch.ones(len(batch.queries), 1, dtype=torch.bool)
    return losses.marginal_nll_joint(batch.log_p_y.unsqueeze(-1), log_p_z, slots)[0].mean()


def evidence_in_batch(task: PretrainTask, batch: Batch, scored: Scored) -> Tensor:
    """The same among the candidates of the whole batch (Spider, Ram et al. 2022)."""
    places = task.context.inputs.span_places
    held = np.array([[bool(places.places(int(row), query.targets)) for row in scored.rows] for query in batch.queries])
    allowed = allowed_in(task, batch, scored)
    found, valid = losses.retriever_marginal(scored.scores, torch.from_numpy(held) & allowed, allowed)
    return found.sum() / valid.sum().clamp(min=1)


TERMS: dict[str, Term] = {
    "marginal": likelihood_term(losses.marginal_nll_joint),
    "emdr2": likelihood_term(losses.emdr2_retriever),
    "distill": likelihood_term(lambda p, z, slots: losses.distilled_retriever(p, z, slots, 1.0)),
    "evidence": evidence_term,
    "evidence, in batch": evidence_in_batch,
    "marginal, in batch": marginal_in_batch,
}


@torch.inference_mode()
def read(task: PretrainTask, count: int) -> Batch:
    """The first ``count`` sentences of a seed's order with their candidates, read."""
    queries = [task.query(at, task.training[item]) for at, item in task.order.batch(0, count)]
    rows, log_p_y, held = [], [], []
    view = task.view
    task.model.eval()
    for at in range(0, count, AT_ONCE // 4):
        some = queries[at : at + AT_ONCE // 4]
        retrieved = view.retrieve(some)
        found = np.where(retrieved.valid & retrieved.real, view.inputs.rows(retrieved.block_ids), NO_ROW)
        with multiplying("cpu", bf16=True):
            pointed = point_at(task.model.reader, view.inputs, [q.pointed for q in some], [q.targets for q in some], found)
        rows.append(found)
        log_p_y.append(pointed.log_probs.float())
        held.append(holding(view, some, retrieved))
    return Batch(queries, np.concatenate(rows), torch.cat(log_p_y), np.concatenate(held))


def taught(
    task: PretrainTask, embedder: Embedder, data: Batch, term: Term, batch_size: int, lr: float, vectors: np.ndarray | None
) -> float:
    """Teach an embedder; vectors [rows, d] by row where documents stay. Returns the mean loss of the last quarter."""
    weights = [parameter for parameter in embedder.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=lr, weight_decay=0.01)
    steps = len(data.queries) // batch_size
    seen: list[float] = []
    for step in range(steps):
        batch = data.part(slice(step * batch_size, (step + 1) * batch_size))
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1, (step + 1) / max(1, steps // 10)) * (1 - step / steps)
        rows, place = np.unique(np.maximum(batch.rows, 0), return_inverse=True)
        embedder.train()
        with multiplying("cpu", bf16=True):
            query_emb = embedder.embed_queries(searched(task, batch.queries))
            block_emb = embedder(task.context.inputs.blocks(rows.tolist())) if vectors is None else torch.from_numpy(vectors[rows])
            own = torch.from_numpy(place.reshape(batch.rows.shape))
            loss = term(task, batch, Scored(losses.inner_products(query_emb, block_emb), own, rows))
        optimizer.zero_grad()
        if loss.requires_grad:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
        seen.append(float(loss.detach()))
    return float(np.mean(seen[-max(1, steps // 4) :]))


def difference(before: np.ndarray, after: np.ndarray) -> dict[str, Any]:
    """Recall before and after and the gain with its interval, by depth."""
    rng, found = np.random.default_rng(0), {}
    for at, depth in enumerate(DEPTHS):
        gain = after[:, at].astype(float) - before[:, at]
        drawn = gain[rng.integers(len(gain), size=(2000, len(gain)))].mean(1)
        interval = [round(float(value), 4) for value in np.quantile(drawn, (0.025, 0.975))]
        found[str(depth)] = {
            "before": round(float(before[:, at].mean()), 4),
            "after": round(float(after[:, at].mean()), 4),
            "gain": interval,
        }
    return found


def by_row(block_ids: np.ndarray, vectors: np.ndarray, context: StageContext) -> np.ndarray:
    """Vectors at the rows of the corpus."""
    placed = np.zeros((len(context.store.block_ids), vectors.shape[1]), np.float32)
    placed[context.store.rows_of(block_ids)] = vectors
    return placed


def seeds_rows(context: StageContext, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row for each seed, term and side."""
    for seed in options.seeds:
        recipe = context.recipe
        section = replace(
            recipe.pretrain, candidates=options.candidates, null=False, held_out=max(options.held_out, recipe.pretrain.held_out)
        )
        here = replace(context, recipe=replace(recipe, run=replace(recipe.run, seed=seed), pretrain=section))
        model = load_stage(here, "pretrain")
        freeze_words(model)
        task = PretrainTask(here, model)
        task.generation = open_generation(here.paths, here.inputs, stage_facts(here.paths, "pretrain")["generation"], device=here.device)
        snapshot = task.generation.snapshot
        block_ids, vectors = np.asarray(snapshot.block_ids), np.asarray(snapshot.vectors, np.float32)
        judge, data = Judge(task, options.questions, options.held_out), read(task, options.sentences)
        before = judge.hits(model.embedder, block_ids, vectors)
        placed = by_row(block_ids, vectors, here)
        for side, name, batch_size, lr in itertools.product(options.sides, options.terms, options.batch, options.lr):
            embedder, started = copy.deepcopy(model.embedder), time.process_time()
            loss = taught(task, embedder, data, TERMS[name], batch_size, lr, placed if side == "query" else None)
            seconds = time.process_time() - started
            after = vectors if side == "query" else embed_corpus(embedder, here.inputs, here.store.rows_of(block_ids), bf16=True)
            found = judge.hits(embedder, block_ids, after)
            row: dict[str, Any] = {"seed": seed, "side": side, "term": name, "batch": batch_size, "lr": lr}
            row |= {"loss": round(loss, 3), "processor_seconds": round(seconds), "evidence": round(float(data.held.any(1).mean()), 3)}
            yield row | {of: difference(before[of], found[of]) for of in before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--terms", nargs="+", choices=list(TERMS), default=list(TERMS))
    parser.add_argument("--sides", nargs="+", choices=["query", "both"], default=["query"])
    parser.add_argument("--sentences", type=int, default=1536)
    parser.add_argument("--batch", type=int, nargs="+", default=[16])
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--lr", type=float, nargs="+", default=[2e-5])
    parser.add_argument("--held-out", type=int, default=500)
    options = parser.parse_args()
    paths = RunPaths(options.run)
    context = open_context(paths, read_run_recipe(paths), lambda *_: None)
    rows = []
    for row in seeds_rows(context, options):
        rows.append(row)
        print(json.dumps(row), flush=True)
    facts = {"sentences": options.sentences, "candidates": options.candidates}
    print(json.dumps(result("retriever terms", torch.get_num_threads(), run=str(options.run), **facts, rows=rows)))


if __name__ == "__main__":
    main()
