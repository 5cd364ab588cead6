"""``realm import`` and ``realm export``: published models become a run that answers, searches, explains, and can be trained further; the
embedders of a run become directories that sentence-transformers loads.

One directory or several that belong together are imported. The run appears whole or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from realm.answering.opening import read_run_recipe
from realm.documents.ingest.builder import build_corpus
from realm.errors import ConfigError, DataError, RunError
from realm.models.hub import model_card
from realm.models.model import RealmModel, part_sizes, state_sha256
from realm.models.published.models import BODY_PREFIX, Published, is_sentence_embedder, load_published, write_layout
from realm.models.spec import PARTS, EmbedderSpec, ModelSpec, ReaderSpec
from realm.models.tensor_files import save_tensors
from realm.progress import Progress
from realm.recipe import Recipe, build_recipe, dump_recipe
from realm.search.blocks import open_inputs
from realm.search.publishing.refresher import refresh_index
from realm.storage.files import publish_directory, write_atomic, write_json
from realm.storage.layout import RUN_FORMAT, STAGE_FILE, RunPaths, has_stage, write_run_format
from realm.storage.manifests import seal
from realm.text.tokenizer import TextTokenizer

GENERATION = 1
BLOCK_LENGTH, QUERY_LENGTH = 288, 64
"""Of the published models; smaller where a body has fewer positions."""
NEEDS_DOCUMENTS = "Give documents to index: realm import DIR --out RUN --documents FILE"
PEAK_RATES = {"ict": {"lr": 1e-4}, "pretrain": {"lr": 3e-5}, "finetune": {"lr": 1e-5, "rename_rate": 0.0}}
"""The paper's rates, for training published weights further. The defaults are for random weights."""


@dataclass(frozen=True)
class _Assembled:
    """Parts of several directories together."""

    model: RealmModel
    tokenizer: TextTokenizer
    account: list[dict[str, Any]]
    notes: list[str]


def import_published(
    directories: Sequence[Path], out: Path, *, documents: Sequence[Path] = (), progress: Progress | None = None
) -> dict[str, Any]:
    """Make a run ``out``, which must not exist, of published models that belong together, over ``documents``.

    Returns {"run", "parts": {name: parameters}, "blocks": number in the index, "models": [{"directory", "kind", "imported": number of
    tensors, "unused": {name: reason}, "fresh": [our names]}], "notes"}.

    Raises RunError: ``out`` exists; RealmError: a directory or the documents cannot be used; nothing is left behind."""
    out, quiet = Path(out), progress or Progress(quiet=True)
    if out.exists():
        raise RunError("there is something here already, and it was not changed", path=out, cure="Choose another --out.")
    if not directories:
        raise ConfigError("no model to import", cure="Name the directory of a published model.")
    assembled = _assemble([load_published(Path(directory)) for directory in directories])
    recipe = _recipe(assembled.model.spec)
    with publish_directory(out) as staging:
        paths = RunPaths(staging)
        blocks = _corpus(assembled, paths, recipe, [Path(d) for d in documents], quiet)
        write_atomic(paths.config, dump_recipe(recipe))
        from realm import __version__

        write_run_format(paths, __version__)
        _stages(assembled, paths)
        result = {
            "run": str(out),
            "parts": part_sizes(assembled.model),
            "blocks": blocks,
            "models": assembled.account,
            "notes": assembled.notes,
        }
        write_json(staging / "imported.json", result)
    return result


def _assemble(found: list[Published]) -> _Assembled:
    """One model of all directories: the questions' embedder, the documents' embedder, encoder and reader."""
    owners: dict[str, Published] = {}
    parts: dict[str, torch.nn.Module | None] = dict.fromkeys(PARTS)
    has_openqa = any(one.kind == "openqa" for one in found)
    for one in found:
        _check_same_body(found[0], one)
        model = RealmModel.from_published(one)
        for name in one.spec.parts:
            # Beside an open-QA model a lone embedder is the one that made its block embeddings.
            role = "document_embedder" if has_openqa and one.kind == "embedder" else name
            if role in owners:
                problem = f"{owners[role].directory} and this directory both hold the {role.replace('_', ' ')}"
                raise DataError(problem, path=one.directory, cure="Import one of them.")
            owners[role], parts[role] = one, getattr(model, name)
    notes = []
    if has_openqa and parts["document_embedder"] is None:
        notes.append(
            "An open-QA model holds the questions' embedder alone, so documents added later are embedded by that one; "
            "name the directory of the pre-trained embedder as well if you have it."
        )
    model = _without_twin(RealmModel(ModelSpec()).with_parts(**parts))
    return _Assembled(model, found[0].tokenizer, [_account(one) for one in found], notes)


def _check_same_body(first: Published, other: Published) -> None:
    """The networks of an import have one kind of body, of which its recipe can speak, and one vocabulary."""
    ours, theirs = (next(iter(one.spec.networks.values())).body.config for one in (first, other))
    for key, value in ours.items():
        if not key.endswith("_prob") and theirs.get(key) != value:
            problem = f"{key} is {theirs.get(key)}, and {value} in {first.directory}"
            raise ConfigError(problem, path=other.directory / "config.json", cure="Import models that belong together.")
    if not first.tokenizer.same_wordpieces(other.tokenizer):
        problem = f"its vocabulary is not that of {first.directory}"
        raise DataError(problem, path=other.directory, cure="Import models that belong together.")


def _without_twin(model: RealmModel) -> RealmModel:
    """The published scorers hold one embedder twice; a run then has one."""
    if not model.has("document_embedder") or not model.has("embedder"):
        return model
    if state_sha256(model.document_embedder) == state_sha256(model.embedder):
        return model.with_parts(document_embedder=None)
    model.document_embedder.requires_grad_(False)
    return model


def _account(one: Published) -> dict[str, Any]:
    """Every tensor of one directory."""
    tensors = {"imported": len(one.imported), "unused": one.unused, "fresh": list(one.fresh)}
    return {"directory": str(one.directory), "kind": one.kind, **tensors}


def _recipe(spec: ModelSpec) -> Recipe:
    """The recipe of an imported run: its sizes, and rates for training published weights further."""
    body = next(iter(spec.networks.values())).body
    embedder, reader = spec.embedder or spec.document_embedder or EmbedderSpec(body), spec.reader or ReaderSpec(body)
    config = body.config
    positions = int(config.get("max_position_embeddings", BLOCK_LENGTH + QUERY_LENGTH))
    block_length = min(BLOCK_LENGTH, 3 * positions // 4)
    model = {
        "hidden": body.hidden,
        "layers": config.get("num_hidden_layers", 1),
        "heads": config.get("num_attention_heads", 1),
        "intermediate": config.get("intermediate_size", 1),
        "projection": embedder.projection,
        "pooling": body.pooling,
        "segments": body.segments,
        "dropout": embedder.dropout,
        "span_hidden": reader.span_hidden,
        "max_span": reader.max_span,
        "query_length": min(QUERY_LENGTH, positions - block_length),
    }
    return build_recipe({"model": model, "corpus": {"block_length": block_length}, **PEAK_RATES})


def _corpus(assembled: _Assembled, paths: RunPaths, recipe: Recipe, documents: Sequence[Path], progress: Progress) -> int:
    """Blocks and index of the run. Returns how many blocks there are."""
    model, length = assembled.model, recipe.corpus.block_length
    if documents and not model.has("embedder"):
        raise ConfigError("documents need an embedder, and none is among the models", cure="Name the directory of the embedder as well.")
    if not documents:
        assembled.notes.append(f"There is nothing to search in it yet. {NEEDS_DOCUMENTS}")
        return 0
    build_corpus(documents, paths.corpus, tokenizer=assembled.tokenizer, block_length=length, progress=progress.counting("corpus"))
    inputs = open_inputs(paths.corpus, recipe.model.query_length)
    refresh_index(model, inputs, paths, step=0, progress=partial(progress.count, "index: blocks"))
    return len(inputs.store)


def _stages(assembled: _Assembled, paths: RunPaths) -> None:
    """Publish the networks where training would have left them."""
    stages = {"pretrain": assembled.model}
    if assembled.model.has("reader"):
        # Before fine-tuning there was the documents' embedder alone; fine-tuning made the questions' of it.
        documents = None if not assembled.model.has("embedder") else assembled.model.documents
        stages["pretrain"] = assembled.model.with_parts(embedder=documents, document_embedder=None, reader=None)
        stages["finetune"] = assembled.model.with_parts(encoder=None)
    for stage, networks in stages.items():
        if not networks.spec.parts:
            continue
        facts = {"models": ", ".join(one["directory"] for one in assembled.account), "steps": 0, "generation": GENERATION}
        with publish_directory(paths.stage(stage)) as staging:
            networks.save_pretrained(staging, tokenizer=assembled.tokenizer, card={"stage": stage, **facts})
            mark = f"imported-{state_sha256(networks)[:16]}"
            write_json(staging / STAGE_FILE, {"format": RUN_FORMAT, "stage": stage, "fingerprint": mark, **facts})
            seal(staging)


LOAD = """```python
from sentence_transformers import SentenceTransformer
model = SentenceTransformer("this directory or hub name")
documents = model.encode([f"{title} [SEP] {text}"])
```

"[SEP]" stands for the tokenizer's separator; behind the title stand the headings of the text, as in "title: heading"."""


def export_run(run: Path, out: Path) -> dict[str, Any]:
    """Write the embedders of a run below ``out``, which must not exist.

    Returns {"out", "forms": {name: number of tensors}}. Raises RunError: nothing published, or ``out`` exists; ConfigError: an embedder
    that sentence-transformers cannot hold."""
    paths, out = RunPaths(Path(run)), Path(out)
    recipe = read_run_recipe(paths)
    if out.exists():
        raise RunError("there is something here already, and it was not changed", path=out, cure="Choose another --out.")
    stage = next((paths.stage(stage) for stage in ("finetune", "pretrain") if has_stage(paths, stage)), None)
    if stage is None:
        raise RunError("nothing here to publish: pre-training has not ended", path=paths.root, cure=f"Run it: realm run {paths.root}")
    model = RealmModel.from_pretrained(stage)
    if not model.has("embedder") or not is_sentence_embedder(model.embedder.spec):
        cure = "Load its stage with RealmModel.from_pretrained."
        raise ConfigError(
            "sentence-transformers holds embedders of published bodies with mean or [CLS] pooling only", path=stage, cure=cure
        )
    forms = {"embedder": model.only().with_parts(embedder=model.documents)}
    if model.has("document_embedder"):
        forms["questions"] = model.only("embedder")
    length, written = max(recipe.corpus.block_length, recipe.model.query_length), {}
    with publish_directory(out) as staging:
        for form, one in forms.items():
            (staging / form).mkdir()
            written[form] = _write(staging / form, one, TextTokenizer.load(stage), length)
    return {"out": str(out), "forms": written}


def _write(directory: Path, model: RealmModel, tokenizer: TextTokenizer, max_length: int) -> int:
    """One directory; a learned scale of relevance has no place there, nor has the null document. Returns the number of tensors."""
    state = model.only("embedder").state_dict()
    tensors = {name.removeprefix(BODY_PREFIX): tensor.contiguous().cpu() for name, tensor in state.items() if name.startswith(BODY_PREFIX)}
    save_tensors(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    write_layout(directory, model.embedder.spec, max_length=max_length)
    tokenizer.save(directory)
    write_atomic(directory / "README.md", model_card(part_sizes(model), {"class": "SentenceTransformer"}, load=LOAD))
    return len(tensors)
