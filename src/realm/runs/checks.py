"""Checks before anything is trained: what would fail hours later fails in the first second, naming the file and the cure."""

import os
from dataclasses import replace
from pathlib import Path

import torch

from realm.answering.body_models import spec_of
from realm.documents.store.blocks import BlockStore
from realm.errors import ConfigError, CorpusError, DataError
from realm.evaluation.places import require_readable
from realm.evaluation.questions.loading import dataset_names, load_datasets, load_questions, pooled, shared
from realm.models.bodies.known import known_body, present_directory
from realm.models.model import RealmModel, part_sizes, published_spec
from realm.models.spec import PARTS
from realm.recipe import Recipe
from realm.storage.layout import RunPaths, is_realm_model
from realm.training.baselines.closed_book import written

MEMORY_TOLERANCE = 4
"""So many times this machine's memory may the count be wrong before a run is refused for it."""
BERT_VOCABULARY = 30_522
HEAD_WIDTH = 32
"""Width of an attention head where only a body's width is known; nothing counted depends on it."""
FLOAT_BYTES, BFLOAT16_BYTES = 4, 2
STATE_BYTES = 4 * FLOAT_BYTES
"""Bytes of a trained parameter: weight, gradient and the two moments of AdamW, in float32."""
ACTIVATION_NUMBERS = 17
"""Numbers of a layer kept for the backward pass, per token and hidden unit, without attention matrices (Korthikanti et al. 2022)."""


def meta_model(recipe: Recipe, vocabulary: int = BERT_VOCABULARY) -> RealmModel:
    """The recipe's networks without memory, reader included, of the body's sizes if it is known, with ``vocabulary`` if it brings none."""
    wanted, body = recipe.model, recipe.model.body
    directory, known = present_directory(body) if body else None, known_body(body)
    if known is not None:
        wanted = replace(wanted, hidden=known.width, layers=known.layers, heads=known.width // HEAD_WIDTH, intermediate=4 * known.width)
        wanted = replace(wanted, projection=wanted.projection or known.width)
    spec = spec_of(wanted, vocabulary, wanted.query_length + recipe.corpus.block_length - 1, PARTS)
    if directory is not None and not is_realm_model(directory):
        spec = published_spec(spec, directory)
    with torch.device("meta"):
        return RealmModel(spec)


def step_bytes(recipe: Recipe, model: RealmModel) -> int:
    """Bytes that the largest step holds with every input at its longest: the state of what learns, and activations."""
    query, block = recipe.model.query_length, recipe.corpus.block_length
    sizes, body = part_sizes(model), model.embedder.spec.body
    number = BFLOAT16_BYTES if recipe.run.bf16 else FLOAT_BYTES
    per_token = int(body.config["num_hidden_layers"]) * body.hidden * ACTIVATION_NUMBERS * number
    pretrain, finetune = recipe.pretrain, recipe.finetune
    candidates, read = pretrain.batch * pretrain.candidates, finetune.batch * finetune.read
    stages = [
        (recipe.warm.steps * pretrain.from_warm, (0, 0, recipe.warm.batch), sizes["encoder"]),
        (recipe.ict.steps * pretrain.from_ict, (recipe.ict.batch, recipe.ict.batch, 0), sizes["embedder"]),
        (pretrain.steps, (pretrain.batch, candidates, candidates), sizes["embedder"] + sizes["encoder"]),
        (finetune.steps, (finetune.batch, 0, read), sizes["embedder"] + sizes["reader"]),
    ]
    lengths = (query, block, query + block - 1)
    tokens = [sum(n * length for n, length in zip(work, lengths, strict=True)) for _, work, _ in stages]
    held = [learn * STATE_BYTES + each * per_token for (steps, _, learn), each in zip(stages, tokens, strict=True) if steps]
    return max(held, default=0)


def check_memory(recipe: Recipe) -> None:
    """Refuse a step several times larger than this machine. Raises ConfigError. Published networks have sizes that were run before."""
    if recipe.model.body:
        return
    needed = step_bytes(recipe, meta_model(recipe))
    memory = max(machine_memory(), *(torch.cuda.get_device_properties(n).total_memory for n in range(torch.cuda.device_count())), 0)
    if needed > MEMORY_TOLERANCE * memory:
        problem = f"a step of this recipe needs {needed / 1e9:,.0f} GB, and this machine has {memory / 1e9:,.0f}"
        raise ConfigError(problem, cure="Make [model] or a batch smaller; realm run RECIPE --plan shows the memory of a recipe")


def machine_memory() -> int:
    """Bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_questions(recipe: Recipe) -> None:
    """Refuse question files that cannot be read. Raises ConfigError: one is named twice; DataError: naming file and line."""
    for files in (recipe.train_files, recipe.dev_files, recipe.eval_files):
        dataset_names([Path(file) for file in files])
    for path in question_files(recipe):
        load_questions(path)


def shared_questions(recipe: Recipe) -> str:
    """A line that warns of dev questions that are asked in the evaluation, too; "" where there are none, or nothing is fine-tuned."""
    if not (recipe.train_files and recipe.dev_files and recipe.eval_files):
        return ""
    dev, test = (pooled(load_datasets(files)) for files in (recipe.dev_files, recipe.eval_files))
    if not (both := len(shared(dev, test))):
        return ""
    rest = f"the other {len(dev) - both}" if both < len(dev) else "no questions, so answers have p but no confidence"
    return (
        f"warning: {both} of {len(dev)} questions of finetune.dev are also in eval.qa, so the evaluation is biased, "
        f"and confidence is calibrated on {rest}. Name other questions in finetune.dev, such as some of finetune.train."
    )


def check_closed_book(recipe: Recipe) -> None:
    """Refuse a closed book that has nothing to write. Raises DataError: all answers are patterns."""
    if not any(written(load_questions(Path(name))) for name in recipe.train_files):
        cure = "Leave it out with --rows, or name questions with answers as strings, too."
        problem = "the closed-book baseline writes answers and cannot learn from patterns alone"
        raise DataError(problem, path=recipe.train_files[0], cure=cure)


def question_files(recipe: Recipe) -> list[Path]:
    """The question files that the recipe names, each once."""
    return [Path(name) for name in dict.fromkeys((*recipe.train_files, *recipe.dev_files, *recipe.eval_files))]


def check_corpus(paths: RunPaths, recipe: Recipe) -> None:
    """Refuse a corpus too small for the recipe (CorpusError), and answers longer than a block (DataError)."""
    store = BlockStore.open(paths.corpus)
    blocks = int(store.live.sum())
    # The origin block is excluded and the null document is a candidate: k candidates need k blocks, or one more without it.
    section = recipe.pretrain
    beside = int(section.exclude and not section.sentences) - int(section.null)
    wanted = {"pretrain.candidates": (section.candidates, beside)} if section.steps else {}
    wanted |= {"eval.read": (recipe.eval.read, 0)} if recipe.eval_files else {}
    wanted |= {"finetune.read": (recipe.finetune.read, 0)} if recipe.train_files else {}
    for key, (k, more) in wanted.items():
        if blocks < k + more:
            cure = (
                f"Add documents, or set {key} = {blocks - more}." if blocks > 1 else "Add documents: one block leaves nothing to retrieve."
            )
            place = ", ".join(map(str, recipe.corpus.sources)) or paths.corpus
            raise CorpusError(f"the corpus has {blocks} block{'s' * (blocks != 1)}, fewer than {key} = {k} needs", path=place, cure=cure)
    for path in question_files(recipe):
        require_readable(path, store)
