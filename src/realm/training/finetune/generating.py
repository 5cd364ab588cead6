"""Fine-tuning with a generative reader: the same retriever loss over the beam, and -log p(answer) of a model that reads the best blocks."""

import numpy as np
import torch

from realm.answering.answerer import Answerer, ReadBlocks
from realm.answering.generative import FusionAnswerer, passages_of
from realm.models import losses
from realm.models.fusion import FusionReader
from realm.models.types import Question, TokenIds
from realm.recipe.seeds import generator
from realm.search.candidates import Candidates, Source
from realm.training.context import StageContext
from realm.training.finetune.task import ReadingTask


class GeneratingTask(ReadingTask):
    """As ``ReadingTask`` with a reader that writes. It learns from every question with strings, whether or not an answer occurs in a block,
    and from one with patterns where a block that is read shows what to write.

    Args:
        (all): as for ``ReadingTask``.
    """

    def __init__(self, context: StageContext, source: Source, reader: FusionReader, questions: list[Question], dev: list[Question]):
        super().__init__("finetune", context, source, reader, questions, dev)
        self.fusion = reader

    def reading(self, positions: list[int], items: list[int], tokens: list[TokenIds], read: Candidates) -> losses.Loss:
        answers = [self._answer(item, position, rows) for item, position, rows in zip(items, positions, read.rows, strict=True)]
        learnt = [i for i, answer in enumerate(answers) if answer]
        loss = torch.zeros(len(items), device=read.scores.device)
        if learnt:
            texts, passages = [self.questions[items[i]].text for i in learnt], passages_of(self.context.inputs, read.rows[learnt])
            kept = torch.tensor(learnt, device=loss.device)
            loss = loss.index_put((kept,), self.fusion.loss(texts, passages, [answers[i] for i in learnt]))
        return loss, torch.tensor([bool(answer) for answer in answers], device=loss.device)

    def _answer(self, item: int, position: int, rows: np.ndarray) -> str:
        """What is to be written: one of a question's answers, or of what its patterns match in the blocks that are read; "" for nothing."""
        question = self.questions[item]
        answers = question.answers if question.answer_type == "string" else self._matched(item, rows)
        place = int(generator("answer", self.name, self.context.seed, position).integers(2**31))
        return answers[place % len(answers)] if answers else ""

    def _matched(self, item: int, rows: np.ndarray) -> tuple[str, ...]:
        """The texts that a question's patterns match in some blocks, as these spell them, if they are short enough for an answer."""
        read, longest = ReadBlocks(self.context.inputs), self.context.recipe.model.max_span
        spans = [(row, start, end) for row in rows.tolist() for start, end in self.answers[item].get(row, []) if end - start <= longest]
        texts = (read.block(row).text[slice(*read.characters(row, start, end))] for row, start, end in spans)
        return tuple(dict.fromkeys(texts))

    @property
    def answerer(self) -> Answerer:
        return FusionAnswerer(self.context.inputs, self.source, self.fusion, versions={})
