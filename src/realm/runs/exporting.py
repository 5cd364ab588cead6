"""``realm export``: the embedders of a run as directories that sentence-transformers loads.

embedder/    the documents' embedder, which made the index
questions/   the questions' embedder, where it is another one"""

from pathlib import Path
from typing import Any

from realm.answering.opening import read_run_recipe
from realm.errors import ConfigError, RunError
from realm.models.hub import model_card
from realm.models.model import RealmModel, part_sizes
from realm.models.published.sentence_embedders import BODY_PREFIX, is_sentence_embedder, write_layout
from realm.models.tensor_files import save_tensors
from realm.storage.files import publish_directory, write_atomic
from realm.storage.paths import RunPaths
from realm.storage.stages import has_stage
from realm.text.tokenizer import TextTokenizer

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
