"""The stage "finetune": retriever loss over a wide beam, reader loss over the best few (ORQA, section 4); documents stay frozen."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from realm.answering.generative import SEQ2SEQ_DIRECTORY
from realm.models.fusion import FusionReader
from realm.models.model import RealmModel
from realm.search.publishing.generation import Generation
from realm.storage.layout import stage_facts
from realm.training.beams import LiveSource
from realm.training.context import StageContext, fingerprint, is_published, load_stage, publish_stage, source_over, stage_generation
from realm.training.finetune.given import finetune_given
from realm.training.finetune.task import GeneratingTask, ReadingTask, training_questions
from realm.training.finetune.training import train_reader
from realm.training.starting import with_new_reader

UNFITTED: dict[str, Any] = {"slope": None, "bias": 0.0, "pooled": False, "abstain_below": 0.0}
"""Confidence of a reader for which none was fitted: what its start had was another reader's."""


def run_finetune(context: StageContext) -> None:
    """Fork the embedder, turn the encoder into a reader, fine-tune, publish questions' side, documents' side and reader."""
    mark = fingerprint(context, "finetune", "pretrain")
    if is_published(context, "finetune", mark):
        return
    if context.recipe.finetune.seq2seq:
        _finetune_generative(context, mark)
        return
    if context.recipe.finetune.passages == "given":
        model = with_new_reader(context, load_stage(context, "pretrain").fork_document_embedder(), pointer=True, titles=True)
        facts = finetune_given(context, model.to(context.device), mark)
        _publish(context, model, mark, {**facts, "generation": stage_facts(context.paths, "pretrain")["generation"]})
        return
    points = context.recipe.finetune.presence > 0
    model = with_new_reader(context, load_stage(context, "pretrain").fork_document_embedder(), pointer=points).to(context.device)
    source, generation = _source(context, model)
    task = ReadingTask("finetune", context, source, model.reader, *training_questions(context))
    facts = train_reader(context, task, mark)
    _publish(context, model, mark, {**facts, **task.calibration(), "generation": generation.number})


def _publish(context: StageContext, model: RealmModel, mark: str, facts: dict[str, Any]) -> None:
    model.reader.spec = replace(model.reader.spec, taught=True, **UNFITTED)
    publish_stage(context, "finetune", model, mark, facts)


def _finetune_generative(context: StageContext, mark: str) -> None:
    """Fine-tune with a reader that writes: REALM's encoder is not used, its retriever learns as always."""
    fusion = FusionReader.load(Path(context.recipe.finetune.seq2seq)).to(context.device)
    model = load_stage(context, "pretrain").fork_document_embedder().with_parts(encoder=None, reader=None).to(context.device)
    source, generation = _source(context, model)
    task = GeneratingTask(context, source, fusion, *training_questions(context))
    facts = train_reader(context, task, mark) | task.calibration() | {"generation": generation.number}
    publish_stage(context, "finetune", model, mark, facts, lambda directory: fusion.save(directory / SEQ2SEQ_DIRECTORY))


def _source(context: StageContext, model: RealmModel) -> tuple[LiveSource, Generation]:
    """The live question embedder over the index that pre-training left, with sparse search where the recipe asks for it."""
    generation = stage_generation(context, "pretrain")
    return LiveSource(source_over(context, model.embedder, generation), model.embedder), generation
