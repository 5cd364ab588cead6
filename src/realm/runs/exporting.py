"""``realm export``: the networks of a run in the layout of the published models, one directory for each form that the run has; ONNX graphs.

    embedder/   the documents' embedder as pre-training left it      RealmEmbedder, or SentenceTransformer
    encoder/    the encoder of pre-training                          RealmKnowledgeAugEncoder
    openqa/     the questions' embedder, the reader, the index       RealmForOpenQA, with block_records.npy
    reader/     a reader without an embedder                         RealmReader
    scorer/     two different embedders without a reader             RealmScorer
    questions/  the questions' embedder, where it is another one     SentenceTransformer

An embedder that is pooled and perhaps scaled to length 1, as published sentence embedders are, is written for sentence-transformers; the
questions' one then stands beside the reader instead of in one form with it. What was imported comes out with the same bits. The published
layout has no place for titles and document ids."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from realm.answering.opening import OpenRun, open_run, read_run_recipe
from realm.documents.sources.record_file import write_record_file
from realm.errors import MissingExtra, RunError
from realm.models.bodies.body import TokenInputs
from realm.models.embedder import Embedder
from realm.models.hub import model_card
from realm.models.model import RealmModel, part_sizes
from realm.models.published.models import RECORDS_FILE
from realm.models.published.names import BLOCK_EMBEDDINGS, export_tensors, published_config
from realm.models.published.sentence_embedders import BODY_PREFIX, is_sentence_embedder, write_layout
from realm.models.reader import Reader
from realm.models.spec import ModelSpec
from realm.models.tensor_files import save_tensors
from realm.storage.files import publish_directory, write_atomic, write_json
from realm.storage.paths import RunPaths
from realm.storage.stages import has_stage
from realm.text.tokenizer import TextTokenizer

INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")
OPSET = 18


class _Graph(nn.Module):
    """A network over plain tensors, as torch's exporter wants it."""

    def __init__(self, network: Embedder | Reader):
        super().__init__()
        self.network = network

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        inputs, network = TokenInputs(input_ids, attention_mask.bool(), token_type_ids), self.network
        return network.head(network.body.pooled(inputs)) if isinstance(network, Embedder) else network.span_logits(network.body(inputs))


def export_onnx(network: Embedder | Reader, path: Path) -> None:
    """Write one network, left in evaluation mode, as an ``.onnx`` file. Raises MissingExtra: onnx and onnxscript are not installed."""
    try:
        import onnxscript  # noqa: F401  torch's exporter needs it and says so in many lines
    except ImportError:
        raise MissingExtra("the ONNX export", "onnx") from None
    name = "projected" if isinstance(network, Embedder) else "span_logits"
    ids = torch.arange(24).view(2, 12) % 7
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 9:] = 0  # with padding, so that the mask is part of the graph
    sizes: Any = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", min=2)}
    with _quiet():
        torch.onnx.export(
            _Graph(network).eval(),
            (ids, mask, torch.zeros_like(ids)),
            path,
            input_names=list(INPUT_NAMES),
            output_names=[name],
            dynamic_shapes=(sizes, sizes, sizes),
            opset_version=OPSET,
            external_data=False,
            dynamo=True,
            verbose=False,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's remarks on packages that are not installed and on names it chose."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


_STAGE_OF_FORM = {"embedder": "pretrain", "encoder": "pretrain", "scorer": "pretrain", "openqa": "finetune", "reader": "finetune"}
"""Form -> the stage that it comes from; the questions' embedder comes from the last."""
LOAD = """```
pip install realm-qa
realm import THIS_DIRECTORY --out RUN
```

The layout is that of Hugging Face's REALM classes (transformers up to 4.57)."""
LOAD_SENTENCES = """```python
from sentence_transformers import SentenceTransformer
model = SentenceTransformer("this directory or hub name")
documents = model.encode([f"{title} [SEP] {text}"])
```

"[SEP]" stands for the tokenizer's separator."""


def export_run(run: Path, out: Path, *, onnx: bool = False) -> dict[str, Any]:
    """Write every published form of a run below ``out``, which must not exist; with ``onnx`` also ``onnx/PART.onnx``.

    Returns {"out", "forms": {form: {"tensors": number, "blocks": rows of the index in it}}, "onnx": [file names]}.

    Raises MissingExtra: no extra onnx; RunError: nothing published, or ``out`` exists; ConfigError: networks that no published class can
    hold."""
    paths, out = RunPaths(Path(run)), Path(out)
    recipe = read_run_recipe(paths)
    if out.exists():
        raise RunError("there is something here already, and it was not changed", path=out, cure="Choose another --out.")
    models = {stage: RealmModel.from_pretrained(paths.stage(stage)) for stage in ("pretrain", "finetune") if has_stage(paths, stage)}
    forms = _forms(models)
    if not forms:
        raise RunError("nothing here to publish: pre-training has not ended", path=paths.root, cure=f"Run it: realm run {paths.root}")
    sentences = {form: model for form, model in forms.items() if _sentence_embedder(model)}
    # Before anything is written: a body of another family is refused.
    configs = {form: published_config(form, model.spec) for form, model in forms.items() if form not in sentences}
    written: dict[str, dict[str, int]] = {}
    with publish_directory(out) as staging:
        for form, model in sentences.items():
            tokenizer = TextTokenizer.load(paths.stage(list(models)[-1]))
            length = max(recipe.corpus.block_length, recipe.model.query_length)
            (staging / form).mkdir()
            written[form] = _write_sentence_embedder(staging / form, model, tokenizer, length)
        for form, config in configs.items():
            tokenizer = TextTokenizer.load(paths.stage(_STAGE_OF_FORM[form]))
            opened = open_run(paths.root) if form == "openqa" and paths.corpus.is_dir() else None
            (staging / form).mkdir()
            written[form] = _write_form(staging / form, form, config, forms[form], tokenizer, opened)
        graphs = _write_graphs(staging / "onnx", list(models.values())[-1]) if onnx else []
    return {"out": str(out), "forms": written, "onnx": graphs}


def _write_graphs(directory: Path, model: RealmModel) -> list[str]:
    directory.mkdir()
    parts = [part for part in ("embedder", "document_embedder", "reader") if part in model.spec.parts]
    for part in parts:
        export_onnx(getattr(model, part), directory / f"{part}.onnx")
    return [f"onnx/{part}.onnx" for part in parts]


def _forms(models: dict[str, RealmModel]) -> dict[str, RealmModel]:
    """The published forms that the stages make: the networks of each."""
    forms: dict[str, RealmModel] = {}
    before, tuned = models.get("pretrain"), models.get("finetune")
    last = list(models.values())[-1] if models else RealmModel(ModelSpec())
    sentences = _sentence_embedder(last)
    if sentences and last.has("document_embedder"):
        forms["questions"] = last.only("embedder")
    if before is not None and before.has("embedder"):
        # Beside a reader the documents' embedder is what its index needs; the questions' is in the open-QA form.
        if before.has("document_embedder") and tuned is None and not sentences:
            forms["scorer"] = before.only("embedder", "document_embedder")
        else:
            forms["embedder"] = before.only().with_parts(embedder=before.documents)
    if before is not None and before.has("encoder"):
        forms["encoder"] = before.only("encoder")
    if tuned is not None and tuned.has("reader"):
        if tuned.has("embedder") and not sentences:
            forms["openqa"] = tuned.only("embedder", "reader")
        else:
            forms["reader"] = tuned.only("reader")
    return forms


def _sentence_embedder(model: RealmModel) -> bool:
    return model.has("embedder") and is_sentence_embedder(model.embedder.spec)


def _write_sentence_embedder(directory: Path, model: RealmModel, tokenizer: TextTokenizer, max_length: int) -> dict[str, int]:
    """One directory that sentence-transformers loads. A learned scale of relevance has no place there, nor has the null document."""
    state = model.only("embedder").state_dict()
    tensors = {name.removeprefix(BODY_PREFIX): tensor.contiguous().cpu() for name, tensor in state.items() if name.startswith(BODY_PREFIX)}
    save_tensors(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    write_layout(directory, model.embedder.spec, max_length=max_length)
    tokenizer.save(directory)
    card = model_card(part_sizes(model), {"class": "SentenceTransformer"}, load=LOAD_SENTENCES)
    write_atomic(directory / "README.md", card)
    return {"tensors": len(tensors), "blocks": 0}


def _write_form(
    directory: Path, form: str, config: dict[str, Any], model: RealmModel, tokenizer: TextTokenizer, opened: OpenRun | None
) -> dict[str, int]:
    tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in export_tensors(form, model.state_dict()).items()}
    blocks = 0
    if opened is not None:
        rows, vectors = _searchable(opened)
        blocks = len(rows)
        tensors[BLOCK_EMBEDDINGS] = torch.from_numpy(vectors)
        store = opened.inputs.store
        write_record_file(directory / RECORDS_FILE, blocks, (store.block(int(row)).text.encode("utf-8") for row in rows))
        config = {**config, "num_block_records": blocks, "searcher_beam_size": min(blocks, 5000)}
    save_tensors(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    write_json(directory / "config.json", config)
    tokenizer.save(directory)
    write_atomic(directory / "vocab.txt", "".join(f"{entry}\n" for entry in _entries(tokenizer)))
    write_atomic(directory / "README.md", model_card(part_sizes(model), {"class": config["architectures"][0], "blocks": blocks}, load=LOAD))
    return {"tensors": len(tensors), "blocks": blocks}


def _searchable(opened: OpenRun) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the live blocks in the index, and their embeddings float32 [n, d]."""
    snapshot, store = opened.generation.snapshot, opened.inputs.store
    known = np.isin(snapshot.block_ids, np.asarray(store.block_ids))
    rows = store.rows_of(snapshot.block_ids[known])
    live = store.live[rows]
    vectors = snapshot.vectors if known.all() and live.all() else snapshot.vectors[np.flatnonzero(known)[live]]
    return rows[live], np.asarray(vectors)


def _entries(tokenizer: TextTokenizer) -> Iterator[str]:
    """The vocabulary in the order of its ids; a number without an entry is written as an unused one."""
    for number in range(tokenizer.vocab_size):
        try:
            yield tokenizer.token(number)
        except KeyError:
            yield f"[unused-{number}]"
