"""Fine-tuning with a generative reader: the same retriever loss over the beam, and -log p(answer) of a model that reads the best blocks."""

import torch

from realm import losses
from realm.answerer import Answerer
from realm.candidates import Candidates, Source
from realm.data.loader import generator
from realm.data.types import Question, TokenIds
from realm.generative import FusionAnswerer, passages_of
from realm.nn.fusion import FusionReader
from realm.recipes.context import StageContext
from realm.recipes.reading import ReadingTask


class GeneratingTask(ReadingTask):
    """As ``ReadingTask`` with a reader that writes. It learns from every question, whether or not an answer stands in a block.

    Args:
        (all): as for ``ReadingTask``.
    """

    def __init__(self, context: StageContext, source: Source, reader: FusionReader, questions: list[Question], dev: list[Question]):
        super().__init__("finetune", context, source, reader, questions, dev)
        self.fusion = reader

    def reading(self, positions: list[int], items: list[int], tokens: list[TokenIds], read: Candidates) -> losses.Loss:
        questions = [self.questions[item] for item in items]
        drawn = [int(generator("answer", self.name, self.context.seed, at).integers(2**31)) for at in positions]
        answers = [question.answers[place % len(question.answers)] for question, place in zip(questions, drawn, strict=True)]
        loss = self.fusion.loss([q.text for q in questions], passages_of(self.context.inputs, read.rows), answers)
        return loss, torch.ones(len(items), dtype=torch.bool, device=loss.device)

    @property
    def answerer(self) -> Answerer:
        return FusionAnswerer(self.context.inputs, self.source, self.fusion, versions={})
