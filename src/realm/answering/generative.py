"""Answers that a generative reader writes, with the evidence it read: the same object as the span reader's answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from realm.answering.answerer import Answerer, Confidence
from realm.answering.records import Answer, Evidence
from realm.errors import RunError
from realm.models.bodies.precision import rounded_once
from realm.models.fusion import FusionReader, Passage
from realm.models.model import RealmModel
from realm.models.types import TokenIds
from realm.search.blocks import BlockInputs
from realm.search.candidates import Candidates, Source
from realm.storage.paths import RunPaths
from realm.storage.sealed import check_sealed
from realm.storage.stages import DAMAGED, stage_facts

SEQ2SEQ = "seq2seq"
"""Directory of the generative reader in a published stage."""


class FusionAnswerer(Answerer):
    """Writes an answer from the best blocks of each question.

    ``p`` is the probability of the written wordpieces together; ``p_span`` of a block is ``p`` if it contains the answer, else 0; start
    and end are where it stands, 0 and 0 where it does not.
    """

    def _read(self, questions: list[str], tokens: list[TokenIds], found: Candidates, p_z: Tensor) -> list[Answer]:
        assert isinstance(self.reader, FusionReader)
        texts, log_p = self.reader.generate(questions, passages_of(self.inputs, found.rows))
        answers = []
        for i, question in enumerate(questions):
            p = min(1.0, float(log_p[i].exp()))
            evidence = tuple(self._cited(int(row), float(p_z[i, j]), texts[i], p) for j, row in enumerate(found.rows[i]) if row >= 0)
            sure = None if self.confidence is None else self.confidence.of(p)
            answers.append(Answer(question, texts[i], p, evidence, self.versions, {}, sure))
        return answers

    def _cited(self, row: int, p_z: float, answer: str, p: float) -> Evidence:
        block = self.inputs.store.block(row)
        folded = block.text.lower()
        start = folded.find(answer.lower()) if answer and len(folded) == len(block.text) else -1
        first, last = (start, start + len(answer)) if start >= 0 else (0, 0)
        return Evidence(
            block.doc_id, block.block_id, block.title, block.text, p_z, p if start >= 0 else 0.0,
            block.text[first:last], first, last, block.char_start, media=block.media,
        )  # fmt: skip


def passages_of(inputs: BlockInputs, rows: np.ndarray) -> list[list[Passage]]:
    """Title and text of the candidates of each question, [b, k] rows."""
    blocks = [[inputs.store.block(int(row)) for row in found if row >= 0] for found in rows]
    return [[(block.title, block.text) for block in found] for found in blocks]


@dataclass(frozen=True)
class StageReader:
    """The reader of a published stage, of whichever kind it is, in memory: what answers over any state of the corpus.

    Attributes:
        reader: its network.
        confidence: that was fitted to it; None where none was.
        abstain_below: confidence (p where none was fitted) below which its answers are better not given; 0: not measured.
        bf16, rounded: as for ``Answerer``.
    """

    reader: nn.Module
    confidence: Confidence | None
    abstain_below: float = 0.0
    bf16: bool = False
    rounded: nn.Module | None = None

    def over(self, inputs: BlockInputs, source: Source, *, versions: dict[str, int]) -> Answerer:
        """Its answerer; arguments as for ``Answerer``. Reads nothing from the stage."""
        if isinstance(self.reader, FusionReader):
            return FusionAnswerer(inputs, source, self.reader, versions=versions, confidence=self.confidence)
        rounded, confidence = self.rounded, self.confidence
        return Answerer(inputs, source, self.reader, versions=versions, confidence=confidence, bf16=self.bf16, rounded=rounded)


def load_reader(paths: RunPaths, stage: str, model: RealmModel, *, device: torch.device, bf16: bool) -> StageReader:
    """The reader of a published stage.

    Args:
        paths: of the run.
        stage: name of the stage.
        model: the stage's networks.
        device: for a reader that is not one of them.
        bf16: as for ``Answerer``.

    Raises:
        RunError: the stage has no reader.
    """
    facts = stage_facts(paths, stage)
    directory = paths.stage(stage) / SEQ2SEQ
    if directory.is_dir():
        check_sealed(directory.parent, DAMAGED, SEQ2SEQ)
        return StageReader(FusionReader.load(directory).to(device), Confidence.stated(facts), facts.get("abstain_below", 0.0))
    if not model.has("reader"):
        raise RunError(f"the stage '{stage}' has no reader", path=paths.stage(stage), cure="Run it again in a new directory.")
    return own_reader(model, facts, device=device, bf16=bf16)


def own_reader(model: RealmModel, facts: Mapping[str, Any], *, device: torch.device, bf16: bool) -> StageReader:
    """The reader of a model with what a stage fitted to it, or else with what it came with.

    Args:
        facts: of the stage; empty where there was none.
        device, bf16: as for ``load_reader``.
    """
    own = model.reader.spec
    confidence, below = Confidence.stated(facts) or Confidence.stated(vars(own)), facts.get("abstain_below", 0.0) or own.abstain_below
    return StageReader(model.reader, confidence, below, bf16, rounded_once(model.reader, device.type) if bf16 else None)
