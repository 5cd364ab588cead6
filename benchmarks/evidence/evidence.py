"""Does REALM's pre-training pay? One reader and one index, four retrievers: BM25, the published embedder, ORQA's and REALM's.

    python -m benchmarks.evidence.evidence RUN --train DATA/squad/qa_train.jsonl.xz --test DATA/squad/qa_dev.jsonl.xz --out FILE.json
    python -m benchmarks.evidence.evidence RUN --test DATA/covidqa/qa_dev.jsonl.xz --labels --rows salient --out FILE.json
    python -m benchmarks.evidence.evidence RUN --judged DATA/ir --labels --steps 300 --out FILE.json

RUN has ended pre-training over a published body with a reader that points and documents that stay (presets/pretrain/pointer.toml), or has
another run's reader and no step of its own: model.body = OTHER/stages/pretrain, pretrain.fill = "pointer", pretrain.steps = 0. For
each seed REALM's queries learn by the marginal likelihood, ORQA's learn ICT from as many wordpieces, and those of --rows learn like REALM's
but for what `realm ablate` changes in a row. For each number of labels the reader learns once, on what hybrid search over the published
embedder finds; with none (--labels alone) nothing is read. Beside RUN lies RUN-evidence, with what is learnt: started again, the script
goes on. What is compared, and how it is decided, was registered in results/2026-11-24-evidence-registered.md and
results/2026-11-25-evidence-registered-2.md. FILE.json holds every row; the last line is one JSON object.
"""

import argparse
import dataclasses
import json
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.common import judged_values, load_cranfield, result
from benchmarks.reading.few_questions import drawn, learning
from realm.answering.answerer import Answerer
from realm.answering.opening import read_run_recipe
from realm.answering.reading import read_spans
from realm.evaluation.evaluate import answer_all, rank
from realm.evaluation.measures import Relevance
from realm.evaluation.questions.loading import load_questions
from realm.experiments.ablate import Ablation, chosen_ablations
from realm.models.bodies.body import multiplying
from realm.models.embedder import Embedder
from realm.models.featurize import searched_ids
from realm.models.model import RealmModel
from realm.models.reader import Reader, ReadingNetwork
from realm.models.types import MaskedQuery, Question, Sequence as Inputs, Spans, TokenIds
from realm.recipe.sections import check_recipe
from realm.search.blocks import BlockInputs
from realm.search.candidates import Candidates, DenseCandidates, Searching, make_source
from realm.search.publishing.embedding import EmbedOptions
from realm.search.publishing.generation import Generation, open_generation
from realm.storage.layout import RunPaths, stage_facts
from realm.storage.metrics import MetricsLog
from realm.training.baselines.orqa import CLOZE, published_retriever, run_cloze
from realm.training.beams import LiveSource
from realm.training.context import StageContext, fingerprint, is_published, load_stage, open_context, publish_stage, source_over, train
from realm.training.finetune.stage import train_reader
from realm.training.finetune.task import ReadingTask, training_questions
from realm.training.loop.checkpoint import CheckpointDirectory
from realm.training.pretrain.stage import search_verdict
from realm.training.pretrain.task import PretrainTask
from realm.training.refresh.index_source import Inline, RefreshContext

DEPTHS = (1, 5, 20)
DEEP = 60
"""Blocks searched for a sentence, of which those that it must not be given are left out."""
AT_ONCE = 64
DRAWS = 10_000
SEEDS = 3
SEARCHES = ("dense", "hybrid")
SHARED = ("corpus", "index", "params", "sources.json", "sentences", "sentences.json", "run.json")
"""What the seeds have of RUN."""
REALM, ORQA, PUBLISHED, BM25 = "REALM", "ORQA", "off the shelf", "BM25"
OPPONENTS = (ORQA, PUBLISHED, REALM)
JUDGED = ("ndcg_10", "recall_20")
"""What is measured against judgements."""
UNTAUGHT = (BM25, PUBLISHED)
"""What finds the same in every seed."""
SHOWN = 10
"""Answers that are kept to be read by people."""

Memory = dict[tuple[tuple[int, ...], int], tuple[Tensor, Tensor, Tensor]]
"""What a reader made of a question's wordpieces and a row: logits and valid [t, w], not_here."""


class StandingIndex(Inline):
    """The one index of documents that stay, made before: nothing is embedded again.

    Args:
        context: of the refreshes that are not needed.
        standing: the index.
    """

    def __init__(self, context: RefreshContext, standing: Generation):
        super().__init__(context)
        self.standing = standing

    def _embed(self, step: int, model: RealmModel, options: EmbedOptions) -> Generation:
        self.generation = self.standing
        return self.standing


class StandingDocuments(nn.Module):
    """The documents' side that stays: its vectors are those of the index, looked up by what a block is.

    Args:
        generation: the index.
        inputs: its corpus.
    """

    def __init__(self, generation: Generation, inputs: BlockInputs):
        super().__init__()
        rows = inputs.store.rows_of(np.asarray(generation.snapshot.block_ids))
        self.vectors = torch.from_numpy(np.asarray(generation.snapshot.vectors, np.float32))
        self.place = {tuple(block.ids): at for at, block in enumerate(inputs.blocks(rows.tolist()))}
        self.embedder = generation.embedder

    @torch.no_grad()
    def forward(self, sequences: Sequence[Inputs]) -> Tensor:
        """Embeddings [b, d]; of what is no block (the null document) made anew."""
        known = [self.place.get(tuple(one.ids)) for one in sequences]
        found = torch.stack([torch.zeros_like(self.vectors[0]) if at is None else self.vectors[at] for at in known])
        new = [i for i, at in enumerate(known) if at is None]
        if new:
            found[new] = torch.from_numpy(self.embedder.embed_blocks([sequences[i] for i in new]))
        return found


class RememberingAnswerer(Answerer):
    """Reads each block once a question, whatever retrievers find it.

    Attributes:
        memory: what was read.
    """

    memory: Memory

    def _spans(self, tokens: list[TokenIds], found: Candidates) -> Spans:
        pairs = [(tuple(asked), row) for asked, rows in zip(tokens, found.rows.tolist(), strict=True) for row in rows]
        missing = [pair for pair in dict.fromkeys(pairs) if pair not in self.memory]
        if missing:
            read = read_spans(self.reader, self.inputs, [asked for asked, _ in missing], np.array([[row] for _, row in missing]))
            for pair, scores, valid, not_here in zip(missing, read.scores, read.valid, read.not_here, strict=True):
                self.memory[pair] = (scores[0].copy(), valid[0].copy(), not_here[0])
        longest = max(self.memory[pair][0].shape[0] for pair in pairs)
        shape = (*found.rows.shape, longest, self.memory[pairs[0]][0].shape[1])
        scores, valid = np.full(shape, -np.inf, np.float32), np.zeros(shape, bool)
        for at, pair in enumerate(pairs):
            spans, there, _ = self.memory[pair]
            place = np.unravel_index(at, found.rows.shape)
            scores[place][: len(spans)], valid[place][: len(there)] = spans, there
        return Spans(scores, np.array([self.memory[pair][2] for pair in pairs]).reshape(found.rows.shape), valid)


def seed_context(run: Path, seed: int, out: Path, inputs: BlockInputs | None = None) -> StageContext:
    """A run of another seed whose corpus, index and pre-training are RUN's; ``inputs``: the corpus, if it is open already."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "stages").mkdir(exist_ok=True)
    for name in (*SHARED, "stages/pretrain"):
        there, here = run / name, out / name
        if there.exists() and not here.exists():
            here.symlink_to(os.path.relpath(there, here.parent), target_is_directory=there.is_dir())
    recipe = read_run_recipe(RunPaths(run))
    recipe = dataclasses.replace(recipe, run=dataclasses.replace(recipe.run, seed=seed))
    log = MetricsLog(RunPaths(out).metrics)
    context = open_context(RunPaths(out), recipe, lambda *row: print(*row[:3], flush=True), print, log=log)
    return context if inputs is None else dataclasses.replace(context, inputs=inputs)


def retriever_context(context: StageContext, steps: int = 0, changes: Mapping[str, Any] = MappingProxyType({})) -> StageContext:
    """The steps in which the retriever alone learns, as a stage by themselves; so many of them (0: RUN's), with these changes.

    Raises:
        SystemExit: RUN has none, and none are asked for.
        ConfigError: the changes do not fit a reader that points.
    """
    section = context.recipe.pretrain
    steps = steps or max(0, section.steps - section.reader_first)
    if not steps:
        raise SystemExit("RUN has no step in which a retriever learns: say how many with --steps")
    values: dict[str, Any] = {"steps": steps, "reader_first": 0, "own_block": 0.0, "publish": "last", **changes}
    recipe = dataclasses.replace(context.recipe, pretrain=dataclasses.replace(section, **values))
    check_recipe(recipe)
    return dataclasses.replace(context, recipe=recipe)


def retriever_rows(names: str) -> list[Ablation]:
    """The rows of an ablation with these names, in which no other stage changes and the reader's part does not.

    Raises:
        SystemExit: another one was named, or one that these documents, which stay, leave as it is.
    """
    rows = list(chosen_ablations(names)) if names else []
    for row in rows:
        if set(row.changes) != {"pretrain"} or {"refresh", "from_ict", "from_warm"} & set(row.changes["pretrain"]):
            raise SystemExit(f"{row.name} is not a matter of the retriever's part over an index that stays: use `realm ablate`")
    return rows


def kept_embedder(context: StageContext, name: str, generation: Generation) -> Embedder:
    """The embedder of queries that a row learnt, or the published one, as the gate has it."""
    kept = stage_facts(context.paths, name)["gate"]["kept"]
    return load_stage(context, name).embedder if kept == "after" else generation.embedder


def searched(task: PretrainTask, queries: list[MaskedQuery]) -> list[Inputs]:
    return [task.context.inputs.featurizer.query(searched_ids(query, pointer=True)) for query in queries]


def embedded(embedder: Embedder, sequences: list[Inputs]) -> np.ndarray:
    """float32 [n, d] of what is asked."""
    embedder.eval()
    with torch.inference_mode(), multiplying("cpu", bf16=True):
        parts = [embedder.embed_queries(sequences[at : at + AT_ONCE]).float() for at in range(0, len(sequences), AT_ONCE)]
    return torch.cat(parts).numpy()


def held_out_hits(
    task: PretrainTask, queries: list[MaskedQuery], embedder: Embedder, block_ids: np.ndarray, vectors: np.ndarray
) -> np.ndarray:
    """bool [n, depths]: whether a block that a sentence may be given and that holds its hidden span is among the best."""
    rows, places = task.context.store.rows_of(block_ids), task.context.inputs.span_places
    found = []
    for query, row in zip(queries, embedded(embedder, searched(task, queries)) @ vectors.T, strict=True):
        best = np.argsort(-row)[:DEEP]
        best = best[~np.isin(block_ids[best], query.excluded)][: max(DEPTHS)]
        held = np.array([bool(places.places(int(rows[at]), query.targets)) for at in best])
        found.append([held[:k].any() for k in DEPTHS])
    return np.array(found)


class Retrieving:
    """Pre-training of the published embedder's queries over one index, by what RUN's reader makes of documents; the reader stays.

    Args:
        context: of one seed.
        generation: the index.
        steps: so many; 0: RUN's.
        row: an ablation; None: REALM itself.
    """

    def __init__(self, context: StageContext, generation: Generation, steps: int = 0, row: Ablation | None = None):
        changes: dict[str, Any] = {} if row is None else dict(row.changes["pretrain"])
        self.context, self.generation = retriever_context(context, steps, changes), generation
        self.name = "realm" if row is None else f"realm-{row.name}"
        more = {"steps": str(steps)} if steps else {}
        more |= {"changes": json.dumps(changes, sort_keys=True)} if changes else {}
        self.mark = fingerprint(self.context, self.name, "pretrain", **more)
        reader = load_stage(context, "pretrain").reader.requires_grad_(False)
        documents = StandingDocuments(generation, context.inputs)
        self.task = PretrainTask(self.context, published_retriever(self.context).with_parts(reader=reader, document_embedder=documents))
        self.task.source, self.task.generation = StandingIndex(self.task.source.context, generation), generation
        self.held_out = self.task.queries.held_out_queries()
        self.task.queries.held_out = []  # what is held out is searched here, and not read every few steps

    def found(self, embedder: Embedder) -> np.ndarray:
        """bool [n, depths]: hidden spans of held-out sentences, found by dense search."""
        snapshot = self.generation.snapshot
        ids, vectors = np.asarray(snapshot.block_ids), np.asarray(snapshot.vectors, np.float32)
        return held_out_hits(self.task, self.held_out, embedder, ids, vectors)

    def learnt(self, judge: "Retrieving") -> Embedder:
        """The embedder of queries; the published one where it finds fewer hidden spans or sentences' own blocks later, as the gate has it.

        Args:
            judge: whose held-out sentences are asked, so that all rows are judged by the same.
        """
        if not is_published(self.context, self.name, self.mark):
            train(self.context, self.task, self.task.section, self.mark)
            began = self.generation.embedder
            recall = (float(judge.found(one)[:, 1].mean()) for one in (began, self.task.model.embedder))
            verdict = search_verdict(self.task, began, *recall)
            sentences = self.task.queries.sentences
            facts = {"gate": verdict.facts(), "encoded": self.task.watcher.encoded}
            facts |= {"sentences": len(sentences), "dropped": dict(sentences.dropped)}
            publish_stage(self.context, self.name, self.task.model.only("embedder"), self.mark, facts)
            # every row steps under the name "pretrain", by which what is random is drawn, so that rows differ by their change alone
            CheckpointDirectory(self.context.paths.checkpoints(self.task.name), fingerprint=self.mark).discard()
        return kept_embedder(self.context, self.name, self.generation)

    def facts(self) -> dict[str, Any]:
        """What its stage says of it."""
        return stage_facts(self.context.paths, self.name)


class Readers:
    """RUN's reader after so many labelled questions, each taught once, and what it read, each block once a question.

    Args:
        context: of RUN's own seed, which draws the questions.
        source: what finds the blocks that are learnt from; it stays.
        options: how much is learnt.
    """

    def __init__(self, context: StageContext, source: LiveSource, options: argparse.Namespace):
        self.context, self.source, self.options = context, source.requires_grad_(False), options
        self._known: dict[int, tuple[Reader, Memory]] = {}

    def of(self, labels: int) -> tuple[Reader, Memory]:
        """The reader and its memory."""
        if labels not in self._known:
            self._known[labels] = (self._taught(labels) if labels else load_stage(self.context, "pretrain").reader, {})
        return self._known[labels]

    def _taught(self, labels: int) -> Reader:
        options, name, left = self.options, f"reader-{labels}", load_stage(self.context, "pretrain")
        files = drawn(options.train, labels, self.context.seed, self.context.paths.root / f"train-{labels}.jsonl")
        recipe, values = self.context.recipe, learning(options, labels)
        section = dataclasses.replace(recipe.finetune, train=str(files), start_questions=options.start_questions, **values)
        context = dataclasses.replace(self.context, recipe=dataclasses.replace(recipe, finetune=section))
        mark = fingerprint(context, name, "pretrain", labels=str(labels), lr=str(options.lr), steps=str(section.steps))
        if not is_published(context, name, mark):
            task = ReadingTask(name, context, self.source, left.reader, *training_questions(context))
            publish_stage(context, name, left.only("reader"), mark, train_reader(context, task, mark))
        return load_stage(context, name).reader


def hits_at(by_answer: Sequence[np.ndarray]) -> np.ndarray:
    """bool [n, depths] of rankings."""
    return np.array([[bool(row[:k].any()) for k in DEPTHS] for row in by_answer])


def paired(ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    """The mean difference of [seeds, n] paired by question, with a 95 % bootstrap interval, and each seed's own."""
    gaps = ours.astype(float) - theirs.astype(float)
    questions, rng = gaps.mean(0), np.random.default_rng(0)
    means = [questions[rng.integers(len(questions), size=(100, len(questions)))].mean(1) for _ in range(DRAWS // 100)]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    by_seed = [round(float(gap.mean()), 4) for gap in gaps]
    found = {"value": round(float(questions.mean()), 4), "interval": [round(float(low), 4), round(float(high), 4)], "by_seed": by_seed}
    return found | {"decision": decision(float(low), float(high), by_seed)}


def decision(low: float, high: float, by_seed: Sequence[float]) -> str:
    """As registered: "holds" above 0 in one sign of three seeds (of fewer it is "above 0" alone), "against" below 0, else "open"."""
    if low > 0 and all(gap > 0 for gap in by_seed):
        return "holds" if len(by_seed) >= SEEDS else "above 0"
    return "against" if high < 0 else "open"


class Evidence:
    """What was measured: for each row (labels, retriever, search) and measure an array a seed."""

    def __init__(self) -> None:
        self.hits: dict[tuple[int, str, str, str], list[np.ndarray]] = {}

    def add(self, labels: int, retriever: str, search: str, **measures: np.ndarray) -> None:
        for measure, values in measures.items():
            self.hits.setdefault((labels, retriever, search, measure), []).append(values)

    def repeated(self, labels: int, retriever: str, search: str, measures: Sequence[str]) -> bool:
        """Take the seed before for this one, too, where a row is the same in each; False where there is none yet."""
        keys = [(labels, retriever, search, measure) for measure in measures]
        if retriever not in UNTAUGHT or not all(key in self.hits for key in keys):
            return False
        for key in keys:
            self.hits[key].append(self.hits[key][-1])
        return True

    def rows(self) -> list[dict[str, Any]]:
        """Means and each seed's own."""
        return [
            {"labels": labels, "retriever": retriever, "search": search, "measure": measure, "n": len(values[0])}
            | {"value": round(float(np.mean(values)), 4), "by_seed": [round(float(np.mean(one)), 4) for one in values]}
            for (labels, retriever, search, measure), values in self.hits.items()
        ]

    def differences(self) -> list[dict[str, Any]]:
        """REALM and its rows minus each opponent, wherever both have the same number of seeds."""
        found = []
        for (labels, retriever, search, measure), values in self.hits.items():
            for opponent in OPPONENTS if retriever not in (ORQA, *UNTAUGHT) else ():
                theirs = self.hits.get((labels, opponent, search, measure), [])
                if opponent != retriever and len(theirs) == len(values):
                    row = {"labels": labels, "of": retriever, "minus": opponent, "search": search, "measure": measure}
                    found.append(row | paired(np.array(values), np.array(theirs)))
        return found


class Measuring:
    """One seed: its retrievers and readers, asked."""

    def __init__(self, context: StageContext, generation: Generation, options: argparse.Namespace, rows: Sequence[Ablation] = ()):
        self.context, self.generation, self.options = context, generation, options
        everyone = load_questions(options.test) if options.test else []
        self.everyone, self.asked = everyone, random.Random(0).sample(everyone, min(options.asked, len(everyone)))
        self.relevance = Relevance(context.store)
        self.retrieving = Retrieving(context, generation, options.steps)
        realm = self.retrieving.learnt(self.retrieving)
        self.embedders = {PUBLISHED: generation.embedder, **self._cloze(), REALM: realm}
        for row in rows:
            self.embedders[f"{REALM}, {row.name}"] = Retrieving(context, generation, options.steps, row).learnt(self.retrieving)

    def _cloze(self) -> dict[str, Embedder]:
        """ORQA's, of as many wordpieces as REALM read in RUN, or in the stage of its own."""
        if not self.options.orqa:
            return {}
        if "encoded" in stage_facts(self.context.paths, "pretrain") and not self.options.steps:
            run_cloze(self.context)
        else:
            run_cloze(self.retrieving.context, int(self.retrieving.facts()["encoded"]))
        return {ORQA: load_stage(self.context, CLOZE).embedder}

    def source(self, retriever: str, search: str) -> DenseCandidates:
        """What finds blocks in a row; BM25's relevance, which the reader adds up, is the published embedder's."""
        embedder = self.embedders.get(retriever, self.generation.embedder)
        parts = (embedder, self.generation.snapshot, self.generation.index, self.context.inputs, self.context.paths.index)
        return make_source(*parts, Searching("sparse" if retriever == BM25 else search))

    def ways(self) -> list[tuple[str, str]]:
        """(retriever, search) of each row."""
        return [(BM25, "sparse"), *((retriever, search) for search in self.options.search for retriever in self.embedders)]

    def retrieval(self, evidence: Evidence) -> None:
        """Recall by answer over all questions or what the judgements say, and recall of hidden spans that nobody trained on."""
        for retriever, search in self.ways() if self.everyone else ():
            if evidence.repeated(0, retriever, search, [f"recall@{k}" for k in DEPTHS]):
                continue
            rankings = rank(self.source(retriever, search), self.relevance, self.everyone, max(DEPTHS))
            found = hits_at([ranking.by_answer for ranking in rankings])
            evidence.add(0, retriever, search, **{f"recall@{k}": found[:, at] for at, k in enumerate(DEPTHS)})
        for retriever, search in self.ways() if self.options.judged else ():
            if evidence.repeated(0, retriever, search, JUDGED):
                continue
            values = judged_values(self.source(retriever, search), self.context.store, load_cranfield(self.options.judged))
            evidence.add(0, retriever, search, **{measure: np.array(values[measure]) for measure in JUDGED})
        for retriever, embedder in self.embedders.items():
            found = self.retrieving.found(embedder)
            evidence.add(0, retriever, "dense", **{f"held-out recall@{k}": found[:, at] for at, k in enumerate(DEPTHS)})

    def answers(self, evidence: Evidence, labels: int, reader: Reader, memory: Memory) -> list[dict[str, Any]]:
        """EM and F1 of every row under the reader after so many labels; a few answers of REALM's."""
        shown: list[dict[str, Any]] = []
        for retriever, search in self.ways():
            if evidence.repeated(labels, retriever, search, ("em", "f1", "oracle")):
                continue
            answerer = RememberingAnswerer(
                self.context.inputs, self.source(retriever, search), ReadingNetwork(reader, bf16=self.context.recipe.run.bf16), versions={}
            )
            answerer.memory = memory
            readings = answer_all(answerer, self.relevance, self.asked, self.options.read)
            em, f1 = np.array([one.correct for one in readings]), np.array([one.f1 or 0.0 for one in readings])
            evidence.add(labels, retriever, search, em=em, f1=f1, oracle=np.array([one.oracle for one in readings]))
            print(json.dumps({"seed": self.context.seed, "labels": labels, "retriever": retriever, "search": search, "em": em.mean()}))
            if (retriever, search) == (REALM, "hybrid"):
                shown = [told(one.question, one.answer.answer, one.correct) for one in readings[:SHOWN]]
        return shown


def told(question: Question, answer: str, correct: bool) -> dict[str, Any]:
    """One answer as people read it."""
    return {"question": question.text, "answer": answer, "accepted": list(question.answers), "correct": correct}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--train", type=Path, help="questions that labels are taken from")
    parser.add_argument("--test", type=Path, help="questions that are asked")
    parser.add_argument("--judged", type=Path, help="DATA/ir: Cranfield")
    parser.add_argument("--steps", type=int, default=0, help="steps in which the retriever learns; 0: those of RUN")
    parser.add_argument("--rows", default="", help="rows of an ablation beside REALM, such as salient,no_null")
    parser.add_argument("--search", choices=SEARCHES, nargs="+", default=list(SEARCHES), help="how blocks are found, but for BM25")
    parser.add_argument("--orqa", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--asked", type=int, default=300, help="questions that are answered; recall is over all of the file")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(SEEDS)))
    parser.add_argument("--labels", type=int, nargs="*", default=[0, 16, 128])
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--read", type=int, default=5)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--least", type=int, default=40)
    parser.add_argument("--start-questions", type=int, default=16)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    recipe = read_run_recipe(RunPaths(options.run))
    beside = options.run.with_name(f"{options.run.name}-evidence")
    rows = retriever_rows(options.rows)
    context = seed_context(options.run, recipe.run.seed, beside / "readers")
    generation = open_generation(context.paths, context.inputs, stage_facts(context.paths, "pretrain")["generation"], device=context.device)
    readers = Readers(context, LiveSource(source_over(context, generation.embedder, generation), generation.embedder), options)
    evidence, shown = Evidence(), {}
    facts: dict[str, Any] = {"run": options.run.name, "steps": options.steps, "asked": options.asked, "read": options.read}

    def write() -> None:
        found = facts | {"seeds": options.seeds, "rows": evidence.rows(), "differences": evidence.differences(), "answers": shown}
        options.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")

    for seed in options.seeds:
        measuring = Measuring(seed_context(options.run, seed, beside / f"seed-{seed}", context.inputs), generation, options, rows)
        measuring.retrieval(evidence)
        write()
        for labels in options.labels:
            shown[f"{labels} labels, seed {seed}"] = measuring.answers(evidence, labels, *readers.of(labels))
            write()
    print(json.dumps(result("evidence", recipe.run.threads, **facts, rows=evidence.rows(), differences=evidence.differences())))


if __name__ == "__main__":
    main()
