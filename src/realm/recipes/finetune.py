"""Open-domain QA fine-tuning (ORQA, section 4; REALM reuses it): retriever loss over a wide beam, reader loss over the best few.

The document side is frozen; the question embedder and the reader learn. Each term counts only where something correct was found.
"""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from realm import losses
from realm.answerer import Answerer
from realm.candidates import DenseCandidates, Source
from realm.data.loader import WHOLE, EpochOrder, Share, generator
from realm.data.matching import locate_answers
from realm.data.qa import load_questions
from realm.data.renaming import Renaming
from realm.data.types import Question
from realm.errors import DataError
from realm.index.generations import generation_path
from realm.index.manifest import require_whole
from realm.nn.reader import Reader, SpanScores, read_candidates
from realm.recipes.context import StageContext, fingerprint, is_published, load_stage, publish_stage, stage_facts, train
from realm.recipes.scoring import exact_match_share
from realm.refresh import open_generation
from realm.train.distributed import on_first
from realm.train.loop import Metrics, StepResult, Task

DEV_QUESTIONS = 200


class ReadingTask(Task):
    """Fine-tunes a reader on the candidates of a source, which learns too: the same task for REALM and for its baselines.

    Args:
        name: stage name.
        context: the run.
        source: where candidates come from.
        reader: the span reader.
        questions: to learn from; regex questions have no wordpieces to mark and are left out.
        dev: watched every ``eval_every`` steps; may be empty.
    """

    def __init__(self, name: str, context: StageContext, source: Source, reader: Reader, questions: list[Question], dev: list[Question]):
        self.name = name
        self.context = context
        self.section = context.recipe.finetune
        self.model = nn.ModuleDict({"source": source, "reader": reader})
        self.source, self.reader = source, reader
        self.questions = [q for q in questions if q.answer_type == "string"]
        if not self.questions:
            raise DataError("no question with string answers", path=self.section.train, cure="Fine-tuning marks answers in the text.")
        self.dev = dev[:DEV_QUESTIONS]
        self.tokens = context.store.tokenizer.encode([q.text for q in self.questions])
        self.answers = locate_answers(context.store, self.questions, self.section.match)
        self.order = EpochOrder(len(self.questions), name, context.seed)

    @cached_property
    def renaming(self) -> Renaming:
        """Counted over the corpus when the first example needs it: never at a rate of 0."""
        return Renaming(self.context.store)

    def step(self, step: int, share: Share = WHOLE) -> StepResult:
        """Retriever loss over the wide beam plus reader loss over the best few; a batch is averaged over its questions."""
        drawn = self.order.batch(step, self.section.batch, share)
        items = [item for _, item in drawn]
        texts, tokens = [self.questions[i].text for i in items], [self.tokens[i] for i in items]
        wide = self.source(texts, tokens, max(self.section.beam, self.section.read))
        correct = torch.from_numpy(np.stack([np.isin(rows, list(self.answers[i])) for i, rows in zip(items, wide.rows, strict=True)]))
        retrieval, found = losses.retriever_marginal(wide.scores, correct.to(wide.scores.device), wide.valid)
        read = wide.best(self.section.read)
        renamings = [self._renaming(position) for position, _ in drawn]
        spans = read_candidates(self.reader, self.context.inputs, tokens, read.rows, read.scores, renamings=renamings)
        gold = self._gold(items, read.rows, spans)
        reading, readable = losses.span_marginal(spans.logits.flatten(1), gold.flatten(1), spans.valid.flatten(1))
        loss = (retrieval + reading).sum()
        metrics = {
            "retriever_loss": float(retrieval.detach().sum() / found.sum().clamp(min=1)),
            "reader_loss": float(reading.detach().sum() / readable.sum().clamp(min=1)),
            "found": float(found.float().mean()),
            "readable": float(readable.float().mean()),
        }
        return StepResult(loss, int((found | readable).sum()), metrics, len(items))

    def examples(self, step: int) -> list[dict[str, Any]]:
        return [{"question": self.questions[item].id} for _, item in self.order.batch(step, self.section.batch)]

    def _renaming(self, position: int) -> np.ndarray | None:
        """What stands for each wordpiece in the example at ``position``; None where the names are left alone."""
        rng = generator("rename", self.name, self.context.seed, position)
        return self.renaming.draw(rng) if rng.random() < self.section.rename_rate else None

    def _gold(self, items: list[int], rows: np.ndarray, spans: SpanScores) -> Tensor:
        """True at spans that equal an answer, [b, k, t, w]."""
        gold = torch.zeros_like(spans.valid)
        _, _, longest, widest = gold.shape
        for i, item in enumerate(items):
            for j, row in enumerate(rows[i].tolist()):
                for start, end in self.answers[item].get(row, []):
                    if end <= longest and end - start <= widest:
                        gold[i, j, start, end - start - 1] = True
        return gold

    def between(self, step: int) -> Metrics | None:
        if not self.dev or step == 0 or (step % self.section.eval_every and step != self.section.steps):
            return None
        answerer = Answerer(self.context.inputs, self.source, self.reader, versions={})
        return {"dev_em": on_first(lambda: exact_match_share(answerer.answer(q_texts(self.dev), k=self.section.read), self.dev))}


def q_texts(questions: list[Question]) -> list[str]:
    return [q.text for q in questions]


def training_questions(context: StageContext) -> tuple[list[Question], list[Question]]:
    """Questions to learn from and to watch, as the recipe names them."""
    section = context.recipe.finetune
    return load_questions(Path(section.train)), load_questions(Path(section.dev)) if section.dev else []


def run_finetune(context: StageContext) -> None:
    """Fork the embedder, turn the encoder into a reader, fine-tune, publish questions' side, documents' side and reader."""
    mark = fingerprint(context, "finetune", "pretrain")
    if is_published(context, "finetune", mark):
        return
    model = load_stage(context, "pretrain").fork_document_embedder().with_reader(context.seed).to(context.device)
    number = stage_facts(context.paths, "pretrain")["generation"]
    generation = open_generation(context.paths, context.inputs, number, device=context.device)
    require_whole(generation.snapshot.manifest, generation_path(context.paths.index, number))
    assert model.embedder is not None and model.reader is not None
    source = DenseCandidates(model.embedder, generation.snapshot, generation.index, context.inputs)
    questions, dev = training_questions(context)
    task = ReadingTask("finetune", context, source, model.reader, questions, dev)
    steps = train(context, task, context.recipe.finetune, mark)
    publish_stage(context, "finetune", model, mark, {"steps": steps, "questions": len(task.questions), "generation": generation.number})
