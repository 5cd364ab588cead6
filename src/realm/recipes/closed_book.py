"""Closed book: the encoder alone answers, from what its weights remember (design decision 18).

It is pre-trained on the same masked sentences and as many masked spans as REALM's encoder saw (warm stage and pre-training), without any
document, and fine-tuned on the same questions: "[CLS] question [MASK] ... [SEP] [SEP]", the answer's wordpieces in the masks. The length
is the one with the best mean log-probability. Its training-set EM shows whether it can learn at all.
"""

import dataclasses
import time
from pathlib import Path

import numpy as np
import torch

from realm.data.featurize import mask_slots
from realm.data.loader import EpochOrder, generator
from realm.data.qa import load_questions
from realm.data.types import Question, Sequence, TokenIds
from realm.errors import DataError
from realm.nn.model import RealmModel
from realm.paths import write_json
from realm.recipes.context import StageContext, fingerprint, is_published, load_stage, new_model, publish_stage, stage_facts, train
from realm.recipes.finetune import training_questions
from realm.recipes.scoring import bootstrap_interval, is_correct
from realm.recipes.warm import masked_sentences, one_document_nll
from realm.train.checkpoint import CheckpointDirectory
from realm.train.loop import StepResult, Task

LONGEST_ANSWER = 6
TRAIN_SAMPLE = 500
BATCH = 64


def empty_joint(context: StageContext, query: TokenIds) -> Sequence:
    """The encoder's input with the null document."""
    return context.inputs.featurizer.joint(query, [])


class ClosedBookTask(Task):
    """Fills masks without a document. ``examples`` gives (wordpieces, mask positions, targets) of one drawn item."""

    def __init__(self, name: str, context: StageContext, model: RealmModel, batch: int):
        self.name = name
        self.context = context
        self.model = model
        self.batch = batch

    def example(self, position: int, item: int) -> tuple[TokenIds, list[int], TokenIds]:
        raise NotImplementedError

    def step(self, step: int) -> StepResult:
        assert self.model.encoder is not None
        drawn = [self.example(position, item) for position, item in self.order.batch(step, self.batch)]
        where, what, slots = (t.to(self.context.device) for t in mask_slots([p for _, p, _ in drawn], [t for _, _, t in drawn]))
        log_probs = self.model.encoder([empty_joint(self.context, ids) for ids, _, _ in drawn], where, what)
        loss, valid = one_document_nll(log_probs, slots)
        return StepResult(loss.sum() / slots.sum(), int(valid.sum()))

    order: EpochOrder


class SentencesTask(ClosedBookTask):
    """Pre-training on the masked sentences that REALM saw, without documents."""

    def __init__(self, context: StageContext, model: RealmModel):
        super().__init__("closed_book_pretrain", context, model, BATCH)
        self.sentences = masked_sentences(context)
        self.order = EpochOrder(len(self.sentences), self.name, context.seed)

    def example(self, position: int, item: int) -> tuple[TokenIds, list[int], TokenIds]:
        query = self.sentences.query(item, generator(self.name, self.context.seed, position))
        return query.ids, query.positions, query.targets


class QuestionsTask(ClosedBookTask):
    """Fine-tuning on questions; of several accepted answers the first short enough is learnt."""

    def __init__(self, context: StageContext, model: RealmModel, questions: list[Question]):
        super().__init__("closed_book", context, model, BATCH)
        encode = context.store.tokenizer.encode
        room = context.inputs.featurizer.query_length - 2
        self.items: list[tuple[TokenIds, TokenIds]] = []
        for question, ids in zip(questions, encode([q.text for q in questions]), strict=True):
            short = [a for a in encode(list(question.answers)) if 0 < len(a) <= LONGEST_ANSWER and len(ids) + len(a) <= room]
            if short and question.answer_type == "string":
                self.items.append((ids, short[0]))
        if not self.items:
            raise DataError("no question has an answer of at most six wordpieces", path=context.recipe.finetune.train)
        self.order = EpochOrder(len(self.items), self.name, context.seed)

    def example(self, position: int, item: int) -> tuple[TokenIds, list[int], TokenIds]:
        ids, answer = self.items[item]
        mask = self.context.inputs.featurizer.mask
        return [*ids, *[mask] * len(answer)], list(range(len(ids), len(ids) + len(answer))), answer


@torch.inference_mode()
def answer_closed_book(context: StageContext, model: RealmModel, questions: list[Question]) -> list[str]:
    """The best filling of one to six masks behind each question, by mean log-probability."""
    assert model.encoder is not None
    model.encoder.eval()
    tokenizer, mask = context.store.tokenizer, context.inputs.featurizer.mask
    tokens = [ids[: context.inputs.featurizer.query_length - 2 - LONGEST_ANSWER] for ids in tokenizer.encode([q.text for q in questions])]
    best: list[tuple[float, str]] = [(-np.inf, "")] * len(questions)
    for width in range(1, LONGEST_ANSWER + 1):
        for at in range(0, len(tokens), BATCH):
            batch = tokens[at : at + BATCH]
            where = torch.tensor([[len(ids) + 1 + i for i in range(width)] for ids in batch], device=context.device)
            values, filled = model.encoder.log_probs([empty_joint(context, [*ids, *[mask] * width]) for ids in batch], where).max(-1)
            for i, (mean, ids) in enumerate(zip(values.mean(-1).tolist(), filled.tolist(), strict=True)):
                if mean > best[at + i][0]:
                    best[at + i] = (mean, tokenizer.decode(ids))
    return [text for _, text in best]


def share_correct(context: StageContext, model: RealmModel, questions: list[Question]) -> list[bool]:
    predictions = answer_closed_book(context, model, questions)
    return [is_correct(p, q) for p, q in zip(predictions, questions, strict=True)]


def run_closed_book(context: StageContext) -> None:
    """Train the closed-book baseline and write its EM on the evaluation and training questions to ``results/closed_book.json``."""
    mark = fingerprint(context, "closed_book", "pretrain")
    started = time.perf_counter()
    questions, _ = training_questions(context)
    if not is_published(context, "closed_book", mark):
        model = new_model(context).with_parts(embedder=None).to(context.device)
        recipe = context.recipe
        seen = stage_facts(context.paths, "warm")["steps"] * recipe.warm.batch
        seen += stage_facts(context.paths, "pretrain")["steps"] * recipe.pretrain.batch
        section = dataclasses.replace(recipe.warm, steps=max(1, seen // BATCH))
        train(context, SentencesTask(context, model), section, mark)
        section = dataclasses.replace(recipe.warm, steps=max(1, recipe.eval.closed_book_epochs * len(questions) // BATCH))
        steps = train(context, QuestionsTask(context, model, questions), section, mark)
        publish_stage(context, "closed_book", model, mark, {"steps": steps})
        CheckpointDirectory(context.paths.checkpoints("closed_book_pretrain"), fingerprint=mark).discard()
    model = load_stage(context, "closed_book")
    test = load_questions(Path(context.recipe.eval.qa))
    hits = share_correct(context, model, test)
    learnt = share_correct(context, model, [q for q in questions if q.answer_type == "string"][:TRAIN_SAMPLE])
    row = {"name": "closed_book", "n": len(test), "em": sum(hits) / len(hits), "em_interval": list(bootstrap_interval(hits))}
    row |= {"train_em": sum(learnt) / max(1, len(learnt)), "seconds": time.perf_counter() - started}
    write_json(context.paths.results / "closed_book.json", row)
