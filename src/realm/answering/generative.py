"""Answers written by a generative reader, with the evidence it read; and the reader of a stage, of either kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from realm.answering.answerer import Answerer, Confidence, cited
from realm.answering.records import Answer, Evidence
from realm.errors import RunError
from realm.models.types import TokenIds
from realm.search.blocks import BlockInputs
from realm.search.candidates import Candidates, Source
from realm.storage.layout import DAMAGED, RunPaths, stage_facts
from realm.storage.manifests import check_sealed

if TYPE_CHECKING:
    from realm.models.fusion import Passage
    from realm.models.model import RealmModel
    from realm.models.runtime.model import RuntimeModel

SEQ2SEQ_DIRECTORY = "seq2seq"  # directory of the generative reader in a published stage


class FusionAnswerer(Answerer):
    """Writes an answer, with its probability ``p``; ``p_span`` of a block is ``p`` if it contains the answer, else 0."""

    def _read(self, questions: list[str], tokens: list[TokenIds], found: Candidates, p_z: np.ndarray) -> list[Answer]:
        writer: Any = self.reader
        texts, log_p = writer.eval().generate(questions, passages_of(self.inputs, found.rows))
        answers = []
        for i, question in enumerate(questions):
            p = min(1.0, float(log_p[i].exp()))
            evidence = tuple(self._cited(int(row), float(p_z[i, j]), texts[i], p) for j, row in enumerate(found.rows[i]) if row >= 0)
            sure = None if self.confidence is None else self.confidence.of(p)
            answers.append(Answer(question, texts[i], p, evidence, self.versions, {}, sure, pooled=p))
        return answers

    def _cited(self, row: int, p_z: float, answer: str, p: float) -> Evidence:
        block = self.inputs.store.block(row)
        folded = block.text.lower()
        start = folded.find(answer.lower()) if answer and len(folded) == len(block.text) else -1
        first, last = (start, start + len(answer)) if start >= 0 else (0, 0)
        return cited(block, p_z, p if start >= 0 else 0.0, first, last)


def passages_of(inputs: BlockInputs, rows: np.ndarray) -> "list[list[Passage]]":
    """Title and text of the candidates of each question, [b, k] rows."""
    blocks = [[inputs.store.block(int(row)) for row in found if row >= 0] for found in rows]
    return [[(block.full_title, block.text) for block in found] for found in blocks]


@dataclass(frozen=True)
class StageReader:
    """The reader of a published stage, of either kind, in memory: it answers over any state of the corpus."""

    reader: Any
    confidence: Confidence | None  # fitted to it
    abstain_below: float = 0.0  # confidence, or p, below which answers are better not given; 0: not measured
    answers: type[Answerer] = Answerer

    def over(self, inputs: BlockInputs, source: Source, *, versions: dict[str, int]) -> Answerer:
        """Answerer over a corpus; arguments as for ``Answerer``. Reads nothing from the stage."""
        return self.answers(inputs, source, self.reader, versions=versions, confidence=self.confidence)


def load_reader(paths: RunPaths, stage: str, model: "RealmModel | RuntimeModel", *, device: Any = "cpu", bf16: bool) -> StageReader:
    """Load the reader of a published stage, whose networks are ``model``. Raises RunError: the stage has no reader."""
    facts = stage_facts(paths, stage)
    directory = paths.stage(stage) / SEQ2SEQ_DIRECTORY
    if directory.is_dir():
        check_sealed(directory.parent, DAMAGED, SEQ2SEQ_DIRECTORY)
        from realm.models.fusion import FusionReader

        reader = FusionReader.load(directory).to(device)
        return StageReader(reader, Confidence.stated(facts), facts.get("abstain_below", 0.0), FusionAnswerer)
    if not model.has("reader"):
        raise RunError(f"the stage '{stage}' has no reader", path=paths.stage(stage), cure="Run it again in a new directory.")
    return own_reader(model, facts, bf16=bf16)


def own_reader(model: "RealmModel | RuntimeModel", facts: Mapping[str, Any], *, bf16: bool) -> StageReader:
    """The reader of a model, calibrated by a stage's facts, or else as it came."""
    reader = model.reading(bf16=bf16)
    own = reader.spec
    confidence, below = Confidence.stated(facts) or Confidence.stated(vars(own)), facts.get("abstain_below", 0.0) or own.abstain_below
    return StageReader(reader, confidence, below)
