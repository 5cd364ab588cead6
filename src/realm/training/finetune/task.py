"""Tasks of open-domain QA fine-tuning (ORQA, section 4): retriever loss over a wide beam, reader loss over the best.

The document side is frozen; the question embedder and the reader learn. Each term counts only if something correct was found."""

from collections import defaultdict
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from realm.answering.answerer import Answerer, ReadBlocks
from realm.answering.generative import FusionAnswerer, passages_of
from realm.answering.pointing import read_candidates
from realm.documents.store.blocks import BlockStore
from realm.errors import DataError
from realm.evaluation.calibration import calibrate
from realm.evaluation.evaluate import rank
from realm.evaluation.measures import Relevance, exact_match_share, recall_at
from realm.evaluation.places import Spans
from realm.evaluation.questions.loading import Datasets, load_datasets, pooled, shared
from realm.models import losses
from realm.models.fusion import FusionReader
from realm.models.reader import Reader, ReadingNetwork, SpanScores
from realm.models.types import Question, TokenIds
from realm.recipe.seeds import generator
from realm.training.beams import Beam, LearningSource
from realm.training.context import StageContext
from realm.training.finetune.located import Subjects, blocks_read, locate_answers, presence_scores
from realm.training.loop.distributed import on_first
from realm.training.loop.task import Measured, Metrics, StepResult, Task
from realm.training.order import WHOLE, EpochOrder, Share


class Renaming:
    """Permutations of wordpieces that mostly stand inside salient spans: first pieces with first pieces, digits with digits."""

    def __init__(self, store: BlockStore):
        self.size = store.tokenizer.vocab_size
        total, inside = np.zeros(self.size, np.int64), np.zeros(self.size, np.int64)
        for row in np.flatnonzero(store.live).tolist():
            ids, named = np.asarray(store.token_ids(row), np.int64), np.zeros(len(store.token_ids(row)), bool)
            for start, end in store.spans(row).tokens.tolist():
                named[start:end] = True
            total += np.bincount(ids, minlength=self.size)
            inside += np.bincount(ids[named], minlength=self.size)
        like: dict[tuple[bool, bool], list[int]] = defaultdict(list)
        for wordpiece in np.flatnonzero(2 * inside > total).tolist():
            text = store.tokenizer.token(wordpiece)
            like[text.startswith("##"), any(c.isdigit() for c in text)].append(wordpiece)
        self.groups = [np.asarray(group) for _, group in sorted(like.items())]

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A permutation of the vocabulary, int64 [v]: entry w is the wordpiece that stands for w."""
        renamed = np.arange(self.size)
        for group in self.groups:
            renamed[group] = rng.permutation(group)
        return renamed


DEV_QUESTIONS = 200
DEV_DEPTH = 20
"""Blocks among which an answer to a dev question is looked for: recall at 20."""
MIN_DEV_FOR_GAIN = 100
"""Dev questions from which on a change of their recall is told: of fewer it would be chance."""
DEV_EVERY = 4
"""Every fourth question is dev where the best weights are wanted and no dev is named."""
PATTERN_CURE = "Correct the patterns: realm eval counts the invalid ones."


class ReadingTask(Task):
    """Fine-tuning of a reader on the candidates of a source that learns, too: the same task for REALM and its baselines.

    Questions that have only invalid patterns are left out; ``dev`` is watched every ``eval_every`` steps and may be empty."""

    span_loss = staticmethod(losses.span_marginal)

    def __init__(
        self, name: str, context: StageContext, source: LearningSource, reader: nn.Module, questions: list[Question], dev: list[Question]
    ):
        self.name = name
        self.context = context
        self.section = context.recipe.finetune
        self.model = nn.ModuleDict({"source": source, "reader": reader})
        self.source, self.reader = source, reader
        located = locate_answers(context, questions)
        self.questions, self.skipped = located.questions, located.skipped
        self.answers, self.elsewhere, self.named = located.spans, located.elsewhere, located.named
        if not self.questions:
            raise DataError("no valid pattern among the answers", path=files_of(context.recipe.train_files), cure=PATTERN_CURE)
        self.dev = dev[:DEV_QUESTIONS]
        self.fitting = self._own(dev)[:DEV_QUESTIONS]
        self.tokens = context.store.tokenizer.encode([q.text for q in self.questions])
        self.order = EpochOrder(len(self.questions), name, context.seed)
        self.rates = {"source": self.section.retriever_rate}
        self.best_by = "dev_em" if self.section.publish == "best" else ""
        self._highest, self._evaluated_since = -1.0, 0
        self.recall_before = 0.0

    @cached_property
    def renaming(self) -> Renaming:
        """Counted over the corpus when the first example needs it: never at a rate of 0."""
        return Renaming(self.context.store)

    @cached_property
    def subjects(self) -> Subjects:
        """Looked up when presence is learnt."""
        return Subjects(self.context.store, self.questions)

    def step(self, step: int, share: Share = WHOLE) -> StepResult:
        """Retriever loss over the wide beam plus reader loss over the best few; a batch is averaged over its questions."""
        drawn = self.order.batch(step, self.section.batch, share)
        items = [item for _, item in drawn]
        tokens = [self.tokens[i] for i in items]
        wide, correct = self.wide(items, tokens)
        retrieval, found = losses.retriever_marginal(wide.scores, correct.to(wide.scores.device), self.judged(items, wide, correct))
        # The best block of a named document is read however far down it is; a string that happens to be an answer's is no reason.
        named = torch.tensor([[self.named[item]] for item in items])
        read = wide.best_with(correct & named, self.section.read)
        reading, readable = self.reading([position for position, _ in drawn], items, tokens, read)
        loss = (retrieval + reading).sum()
        metrics: Measured = {
            "retriever_loss": retrieval.detach().sum() / found.sum().clamp(min=1),
            "reader_loss": reading.detach().sum() / readable.sum().clamp(min=1),
            "found": found.float().mean(),
            "readable": readable.float().mean(),
        }
        return StepResult(loss, (found | readable).sum(), metrics, len(items))

    def reading(self, positions: list[int], items: list[int], tokens: list[TokenIds], read: Beam) -> losses.Loss:
        """The reader's loss [b] over the blocks that are read, and where there was something to learn [b].

        Questions without an answer in them are not read, unless presence is learnt (one is, if none has any: each network gets a gradient).
        """
        assert isinstance(self.reader, Reader)
        holding = _held(self.answers, items, read.rows)
        presence = self.section.presence if self.reader.spec.pointer else 0.0
        some = np.arange(len(items)) if presence else np.flatnonzero(holding.any(1).numpy())
        some = some if len(some) else np.array([0])
        chosen, rows = [items[i] for i in some], read.rows[some]
        renamings = [self._renaming(positions[i]) for i in some]
        inputs, queries = self.context.inputs, [tokens[i] for i in some]
        spans = read_candidates(self.reader, inputs, queries, rows, read.scores[some], renamings=renamings)
        gold = self._at(self.answers, chosen, rows, spans)
        valid = spans.valid & ~self._at(self.elsewhere, chosen, rows, spans)
        loss, found = self.span_loss(spans.logits.flatten(1), gold.flatten(1), valid.flatten(1))
        if presence:
            held = holding[some]
            told = torch.from_numpy(self.subjects.known(chosen, rows)) & ~(~held & _held(self.elsewhere, chosen, rows))
            scores = presence_scores(spans, read.scores[some])
            telling, known = losses.presence_nll(*scores, held.to(loss.device), told.to(loss.device) & blocks_read(spans))
            loss, found = loss + presence * telling, found | known
        everyone, places = torch.zeros(len(items), device=loss.device, dtype=loss.dtype), torch.from_numpy(some).to(loss.device)
        return everyone.index_add(0, places, loss), everyone.bool().index_put((places,), found)

    def wide(self, items: list[int], tokens: list[TokenIds]) -> tuple[Beam, Tensor]:
        """The wide beam of b questions, and which of its blocks hold an answer that counts, [b, c]."""
        wide = self.source([self.questions[i].text for i in items], tokens, max(self.section.beam, self.section.read))
        return wide, _held(self.answers, items, wide.rows)

    def judged(self, items: list[int], wide: Beam, correct: Tensor) -> Tensor:
        """The blocks of the beam that are either right or wrong, [b, c]."""
        return wide.valid & (correct | ~_held(self.elsewhere, items, wide.rows)).to(wide.scores.device)

    def _renaming(self, position: int) -> np.ndarray | None:
        """Substitutes for each wordpiece in the example at ``position``; None if the names are left alone."""
        rng = generator("rename", self.name, self.context.seed, position)
        return self.renaming.draw(rng) if rng.random() < self.section.rename_rate else None

    def _at(self, places: list[Spans], items: list[int], rows: np.ndarray, spans: SpanScores) -> Tensor:
        """Places of each question's answers among the spans, bool [b, k, t, w]."""
        gold = torch.zeros(spans.valid.shape, dtype=torch.bool)  # many small writes: not on an accelerator
        _, _, longest, widest = gold.shape
        for i, item in enumerate(items):
            for j, row in enumerate(rows[i].tolist()):
                for start, end in places[item].get(row, []):
                    if end <= longest and end - start <= widest:
                        gold[i, j, start, end - start - 1] = True
        return gold.to(spans.valid.device)

    @property
    def answerer(self) -> Answerer:
        """Answerer with the networks as they are now."""
        assert isinstance(self.reader, Reader)
        reading = ReadingNetwork(self.reader, bf16=self.context.recipe.run.bf16)
        return Answerer(self.context.inputs, self.source, reading, versions={})

    def between(self, step: int) -> Metrics | None:
        if not self.dev or (step % self.section.eval_every and step != self.section.steps):
            return None
        return self._evaluated(step)

    def _evaluated(self, step: int) -> Metrics:
        """Recall and exact match on the dev questions after so many steps."""
        recall = self.dev_recall()
        if step == 0:
            self.recall_before = recall
            return {"dev_recall": recall}
        score = self.dev_em()
        self._evaluated_since = 0 if score > self._highest else self._evaluated_since + 1
        self._highest = max(self._highest, score)
        gain = {"dev_recall_gain": recall - self.recall_before} if len(self.dev) >= MIN_DEV_FOR_GAIN else {}
        return {"dev_em": score, "dev_recall": recall, **gain}

    @cached_property
    def _relevance(self) -> Relevance:
        return Relevance(self.context.store)

    def dev_recall(self) -> float:
        """Share of dev questions with an answer among the ``DEV_DEPTH`` best blocks, as the question side is now."""

        def measure() -> float:
            rankings = rank(self.source, self._relevance, self.dev, DEV_DEPTH)
            return recall_at([ranking.by_answer for ranking in rankings], [DEV_DEPTH])[str(DEV_DEPTH)]

        return on_first(measure)

    def dev_em(self) -> float:
        """Exact match on the dev questions, as the networks are now."""
        return on_first(lambda: exact_match_share(self.answerer.answer(q_texts(self.dev), k=self.section.read), self.dev))

    @property
    def retriever_learns(self) -> bool:
        """Tell whether the stage changes what finds blocks."""
        return bool(self.section.retriever_rate) and any(parameter.requires_grad for parameter in self.source.parameters())

    def finished(self, step: int) -> bool:
        return bool(self.section.patience) and self._evaluated_since >= self.section.patience

    def _own(self, dev: list[Question]) -> list[Question]:
        """The dev questions that evaluation does not ask: what is fitted to those it does would be measured on what it was fitted to."""
        if not dev or not self.context.recipe.eval_files:
            return dev
        asked = {id(question) for question in shared(dev, pooled(load_datasets(self.context.recipe.eval_files)))}
        return [question for question in dev if id(question) not in asked]

    def calibration(self) -> dict[str, Any]:
        """The calibration of p, fitted on dev questions that evaluation does not ask."""
        return on_first(lambda: calibrate(self.answerer, self.fitting, self.section.read)) if self.fitting else {}

    def state(self) -> dict[str, Any]:
        return {"highest": self._highest, "evaluated_since": self._evaluated_since, "recall_before": self.recall_before}

    def restore(self, state: dict[str, Any]) -> None:
        self._highest, self._evaluated_since, self.recall_before = state["highest"], state["evaluated_since"], state["recall_before"]


def _held(places: list[Spans], items: list[int], rows: np.ndarray) -> Tensor:
    """Blocks [b, c] that hold one of the places of their question, bool [b, c]."""
    return torch.from_numpy(np.stack([np.isin(found, places[i].rows) for i, found in zip(items, rows, strict=True)]))


def q_texts(questions: list[Question]) -> list[str]:
    return [q.text for q in questions]


def files_of(names: tuple[str, ...]) -> str:
    """Question files as an error names them."""
    return ", ".join(names)


def training_questions(context: StageContext) -> tuple[list[Question], list[Question]]:
    """Questions to learn from and to watch; see ``DEV_EVERY``. Raises DataError: too few to hold some out."""
    recipe = context.recipe
    questions = pooled(load_datasets(recipe.train_files))
    if recipe.dev_files:
        return questions, in_turn(load_datasets(recipe.dev_files))
    if recipe.finetune.publish != "best":
        return questions, []
    if len(questions) < DEV_EVERY:
        problem = f"{len(questions)} questions are too few to hold some out for choosing the best weights"
        raise DataError(problem, path=files_of(recipe.train_files), cure='Name others in finetune.dev, or set finetune.publish = "last".')
    return [q for n, q in enumerate(questions, 1) if n % DEV_EVERY], questions[DEV_EVERY - 1 :: DEV_EVERY]


def in_turn(datasets: Datasets) -> list[Question]:
    """The questions of several datasets by turns, so that the first few are of all of them."""
    return [question for drawn in zip_longest(*datasets.values()) for question in drawn if question is not None]


class GeneratingTask(ReadingTask):
    """A reader that writes: it learns from strings wherever they occur, and from patterns if a block that is read shows the text."""

    def __init__(self, context: StageContext, source: LearningSource, reader: FusionReader, questions: list[Question], dev: list[Question]):
        super().__init__("finetune", context, source, reader, questions, dev)
        self.fusion = reader

    def reading(self, positions: list[int], items: list[int], tokens: list[TokenIds], read: Beam) -> losses.Loss:
        answers = [self._answer(item, position, rows) for item, position, rows in zip(items, positions, read.rows, strict=True)]
        learnt = [i for i, answer in enumerate(answers) if answer]
        loss = torch.zeros(len(items), device=read.scores.device)
        if learnt:
            texts, passages = [self.questions[items[i]].text for i in learnt], passages_of(self.context.inputs, read.rows[learnt])
            kept = torch.tensor(learnt, device=loss.device)
            loss = loss.index_put((kept,), self.fusion.loss(texts, passages, [answers[i] for i in learnt]))
        return loss, torch.tensor([bool(answer) for answer in answers], device=loss.device)

    def _answer(self, item: int, position: int, rows: np.ndarray) -> str:
        """One of a question's answers, or of its patterns' matches in the blocks that are read, to be written; "" for none."""
        question = self.questions[item]
        answers = question.answers if question.answer_type == "string" else self._matched(item, rows)
        place = int(generator("answer", self.name, self.context.seed, position).integers(2**31))
        return answers[place % len(answers)] if answers else ""

    def _matched(self, item: int, rows: np.ndarray) -> tuple[str, ...]:
        """The texts that a question's patterns match in some blocks, as these spell them, if they are short enough for an answer."""
        read, longest = ReadBlocks(self.context.inputs), self.context.recipe.model.max_span
        spans = [(row, start, end) for row in rows.tolist() for start, end in self.answers[item].get(row, []) if end - start <= longest]
        texts = (found.text[found.start : found.end] for found in (read.span(*place) for place in spans))
        return tuple(dict.fromkeys(texts))

    @property
    def answerer(self) -> Answerer:
        return FusionAnswerer(self.context.inputs, self.source, self.fusion, versions={})
