"""Closed book: the encoder alone answers, from its weights and from no document.

It reads as many wordpieces of masked sentences as REALM's encoder did, then learns the same questions: "[CLS] question [MASK] x 6 [SEP]
[SEP]", the answer in the first masks and [PAD] in the rest: as many masks as the answer has wordpieces would give its length away. An
answer counts in the references' spelling or in the tokenizer's, the only one in which it can write ("u. s." for "U.S.")."""

import dataclasses

import torch
from torch import Tensor

from realm.errors import DataError
from realm.evaluation.measures import is_correct
from realm.models.encoder import KnowledgeAugmentedEncoder, mask_slots
from realm.models.model import RealmModel
from realm.models.types import Question, Sequence, TokenIds
from realm.recipe.seeds import generator
from realm.storage.layout import stage_facts
from realm.text.tokenizer import TextTokenizer
from realm.training.context import StageContext, fingerprint, is_published, publish_stage, train
from realm.training.finetune.task import files_of, training_questions
from realm.training.loop.checkpoint import CheckpointDirectory
from realm.training.loop.distributed import on_first
from realm.training.loop.task import StepResult, Task
from realm.training.order import WHOLE, EpochOrder, Share, hold_out
from realm.training.pretrain.questions import pretraining_sentences
from realm.training.starting import new_model
from realm.training.warm import WarmTask, one_document_nll

LONGEST_ANSWER = 6
TRAIN_SAMPLE = 500
BATCH = 32
MIN_REMEMBERED = 0.8
"""Share of the training questions whose answers it can write that it must remember; with less, it is said that it has not learnt."""
SAMPLED_SENTENCES = 512
"""Sentences from which the wordpieces of a step are reckoned."""


def empty_joint(context: StageContext, query: TokenIds) -> Sequence:
    """The encoder's input with the null document."""
    return context.inputs.featurizer.joint(query, [])


class ClosedBookTask(Task):
    """Filling of masks without a document. ``example`` gives (wordpieces, mask positions, targets) of one drawn item."""

    def __init__(self, name: str, context: StageContext, model: RealmModel):
        self.name = name
        self.context = context
        self.model = model

    def example(self, position: int, item: int) -> tuple[TokenIds, list[int], TokenIds]:
        raise NotImplementedError

    def step(self, step: int, share: Share = WHOLE) -> StepResult:
        drawn = [self.example(position, item) for position, item in self.order.batch(step, BATCH, share)]
        where, what, known = mask_slots([p for _, p, _ in drawn], [t for _, _, t in drawn])
        sequences = [empty_joint(self.context, ids) for ids, _, _ in drawn]
        where, what, slots = (values.to(self.context.device) for values in (where, what, known))
        loss, valid = one_document_nll(self.model.encoder(sequences, where, what, known), slots)
        return StepResult(loss.sum(), valid.sum(), weight=float(known.sum()))

    order: EpochOrder


class SentencesTask(ClosedBookTask):
    """Pre-training on the masked sentences that REALM saw, without documents."""

    def __init__(self, context: StageContext, model: RealmModel):
        super().__init__("closed_book_pretrain", context, model)
        self.sentences = pretraining_sentences(context)
        _, self.training = hold_out(self.sentences.keys, context.recipe.pretrain.held_out)
        self.order = EpochOrder(len(self.training), self.name, context.seed)

    def example(self, position: int, item: int) -> tuple[TokenIds, list[int], TokenIds]:
        query = self.sentences.query(self.training[item], generator(self.name, self.context.seed, position))
        return query.ids, query.positions, query.targets


class QuestionsTask(ClosedBookTask):
    """Fine-tuning on questions: the first answer of at most six wordpieces is learnt; patterns and long answers are skipped and counted."""

    def __init__(self, context: StageContext, model: RealmModel, questions: list[Question]):
        super().__init__("closed_book", context, model)
        encode = context.store.tokenizer.encode
        self.items: list[tuple[TokenIds, TokenIds]] = []
        strings = written(questions)
        for question, ids in zip(strings, encode([q.text for q in strings]), strict=True):
            short = [answer for answer in encode(list(question.answers)) if fits(answer)]
            if short:
                self.items.append((ids[: room(context)], short[0]))
        if not self.items:
            raise DataError("no question has an answer of at most six wordpieces", path=files_of(context.recipe.train_files))
        self.skipped = {"patterns": len(questions) - len(strings), "too_long": len(strings) - len(self.items)}
        self.order = EpochOrder(len(self.items), self.name, context.seed)

    def example(self, position: int, item: int) -> tuple[TokenIds, list[int], TokenIds]:
        ids, answer = self.items[item]
        features = self.context.inputs.featurizer
        rest = [features.pad] * (LONGEST_ANSWER - len(answer))
        return with_masks(self.context, ids), list(range(len(ids), len(ids) + LONGEST_ANSWER)), [*answer, *rest]


def written(questions: list[Question]) -> list[Question]:
    """The questions whose answers can be written."""
    return [question for question in questions if question.answer_type == "string"]


def room(context: StageContext) -> int:
    """Wordpieces of a question that leave place for the masks."""
    return context.inputs.featurizer.query_length - 2 - LONGEST_ANSWER


def with_masks(context: StageContext, question: TokenIds) -> TokenIds:
    return [*question, *[context.inputs.featurizer.mask] * LONGEST_ANSWER]


@torch.inference_mode()
def answer_closed_book(context: StageContext, model: RealmModel, questions: list[Question]) -> list[str]:
    """The best filling of the six masks behind each question: one to six wordpieces, then [PAD]."""
    model.encoder.eval()
    tokenizer, pad = context.store.tokenizer, context.inputs.featurizer.pad
    tokens = [ids[: room(context)] for ids in tokenizer.encode([q.text for q in questions])]
    answers: list[str] = []
    for at in range(0, len(tokens), BATCH):
        batch = tokens[at : at + BATCH]
        where = torch.tensor([[len(ids) + 1 + i for i in range(LONGEST_ANSWER)] for ids in batch], device=context.device)
        log_probs = model.encoder.log_probs([empty_joint(context, with_masks(context, ids)) for ids in batch], where)
        lengths, filled = best_fillings(log_probs, pad)
        answers += [tokenizer.decode(ids[:length]) for ids, length in zip(filled.tolist(), lengths.tolist(), strict=True)]
    return answers


def best_fillings(log_probs: Tensor, pad: int) -> tuple[Tensor, Tensor]:
    """Lengths [b] and wordpieces [b, m] of the most probable "one or more wordpieces, then [PAD]", of log_probs [b, m, v]."""
    padding = log_probs[..., pad]
    values, filled = log_probs.index_fill(-1, torch.tensor([pad], device=log_probs.device), -torch.inf).max(-1)
    # Entry i: the answer ends with mask i, and what stands behind it is padding.
    totals = values.cumsum(1) + (padding.sum(1, keepdim=True) - padding.cumsum(1))
    return totals.argmax(1) + 1, filled


def share_correct(context: StageContext, model: RealmModel, questions: list[Question]) -> list[bool]:
    predictions = answer_closed_book(context, model, questions)
    return [is_correct(p, q) for p, q in zip(predictions, as_spelled(context.store.tokenizer, questions), strict=True)]


def as_spelled(tokenizer: TextTokenizer, questions: list[Question]) -> list[Question]:
    """The questions with the tokenizer's spelling of their answers beside the answers themselves; patterns as they are."""
    found = []
    for question in questions:
        spellings = [tokenizer.decode(ids) for ids in tokenizer.encode(list(question.answers))] if question.answer_type == "string" else []
        found.append(dataclasses.replace(question, answers=tuple(dict.fromkeys((*question.answers, *spellings)))))
    return found


def reachable(context: StageContext, questions: list[Question]) -> float:
    """Share of questions with an answer that it can write: a string of at most ``LONGEST_ANSWER`` known wordpieces."""
    encode, unknown = context.store.tokenizer.encode, context.store.tokenizer.special.unk
    written = [q.answer_type == "string" and any(fits(ids) and unknown not in ids for ids in encode(list(q.answers))) for q in questions]
    return sum(written) / max(1, len(written))


def fits(answer: TokenIds) -> bool:
    """Tell whether there are masks for an answer."""
    return 0 < len(answer) <= LONGEST_ANSWER


def wordpieces_a_step(task: SentencesTask) -> float:
    """Wordpieces of a step over masked sentences, reckoned from some."""
    drawn = [task.example(at, at % len(task.training))[0] for at in range(SAMPLED_SENTENCES)]
    return BATCH * sum(len(empty_joint(task.context, ids)) for ids in drawn) / SAMPLED_SENTENCES


def run_closed_book(context: StageContext) -> None:
    """Train the closed-book baseline, unless that is done."""
    mark = fingerprint(context, "closed_book", "pretrain")
    if is_published(context, "closed_book", mark):
        return
    model, questions, recipe = new_model(context, embeds=False), training_questions(context)[0], context.recipe
    if model.has("reader"):  # it points: its body gets a head that fills masks
        model = model.with_parts(encoder=KnowledgeAugmentedEncoder(model.reader.body), reader=None)
    model = model.to(context.device)
    sentences = SentencesTask(context, model)
    warm = stage_facts(context.paths, "warm")["steps"] if context.recipe.pretrain.from_warm else 0
    read = stage_facts(context.paths, "pretrain").get("encoded", 0)  # none of a run without a step
    read += warm * WarmTask(context, sentences.model).wordpieces_a_step() if warm else 0
    lr, steps = recipe.finetune.lr, max(1, round(read / wordpieces_a_step(sentences)))
    train(context, sentences, dataclasses.replace(recipe.warm, lr=lr, steps=steps, batch=BATCH), mark)
    encoded = round(steps * wordpieces_a_step(sentences))
    task = QuestionsTask(context, model, questions)
    if patterns := task.skipped["patterns"]:
        why = f"{patterns} with patterns, which cannot be written, and {task.skipped['too_long']} with answers of more than"
        why += f" {LONGEST_ANSWER} wordpieces"
        context.say(f"closed book: learns from {len(task.items)} questions; skipped are {why}")
    steps = max(1, recipe.eval.closed_book_epochs * len(written(questions)) // BATCH)
    steps = train(context, task, dataclasses.replace(recipe.warm, lr=lr, steps=steps, batch=BATCH), mark)
    facts = {"steps": steps, "encoded": encoded, "questions": len(task.items), "skipped": task.skipped}
    publish_stage(context, "closed_book", model, mark, facts)
    on_first(CheckpointDirectory(context.paths.checkpoints("closed_book_pretrain"), fingerprint=mark).discard)


def remembered(context: StageContext, model: RealmModel) -> float:
    """Exact match on the training questions; with too little of them the row says little, and a line says so."""
    sample = written(training_questions(context)[0])[:TRAIN_SAMPLE]
    share, writable = sum(share_correct(context, model, sample)) / max(1, len(sample)), reachable(context, sample)
    if share < MIN_REMEMBERED * writable:
        shown = f"{share:.0%} of its training questions, and could write {writable:.0%}"
        context.say(f"closed book: it remembers {shown}: its row says little. Raise eval.closed_book_epochs.")
    return share
