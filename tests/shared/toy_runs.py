"""Runs of seconds: trained without a word, opened for their stages, and what is compared of them."""

import shutil
from pathlib import Path

from small import tree

from realm.answering.opening import open_run
from realm.progress import Progress
from realm.recipe import load_recipe
from realm.runs.run import run_recipe
from realm.search.publishing.generation import open_generation
from realm.storage.layout import RunPaths, stage_facts
from realm.storage.metrics import TIMES, MetricsLog
from realm.training.beams import LiveSource
from realm.training.context import load_stage, open_context
from realm.training.finetune.task import ReadingTask, training_questions
from realm.training.pretrain.task import PretrainTask

PRETRAINING = ("corpus", "warm", "ict", "pretrain")


def train(recipe, out, stages=None):
    """What :func:`run_recipe` returns."""
    return run_recipe(recipe, out, stages=stages, progress=Progress(quiet=True))


def context_of(run, recipe=None, **sections):
    """A run for its stages, by its own recipe with other values section by section, or by another recipe."""
    return open_context(RunPaths(run), recipe or load_recipe(run / "config.toml", sections), lambda *_: None)


def pretraining_of(context):
    """Pre-training as it ended, over its last index."""
    task = PretrainTask(context, load_stage(context, "pretrain"))
    task.generation = open_generation(context.paths, context.inputs, stage_facts(context.paths, "pretrain")["generation"])
    return task


def reading_of(context, run):
    """Fine-tuning over the networks that a run ended with, nothing random in its steps."""
    opened = open_run(run)
    source = LiveSource(opened.source, opened.networks.finetuned.embedder)
    task = ReadingTask("finetune", context, source, opened.networks.finetuned.reader, *training_questions(context))
    task.model.eval()
    return task


def copy_without(run, to, *gone):
    copied = Path(shutil.copytree(run, to))
    for name in gone:
        shutil.rmtree(copied / name)
    return copied


UNTRAINED = ("stages/pretrain", "stages/finetune", "index", "params")
"""What pre-training and fine-tuning leave."""


def weights_of(run):
    return {name: data for name, data in tree(run / "stages").items() if name.endswith("model.safetensors")}


def rows_of(run, stage=None):
    """The log without times."""
    rows = [row for row in MetricsLog(run / "metrics.jsonl").rows() if stage in (None, row["stage"])]
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]
