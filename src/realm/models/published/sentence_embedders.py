"""Directories of sentence-transformers as embedders, both ways: a body, a pooling, perhaps vectors of length 1. No code is read.

Bodies may be of any family known to transformers' AutoModel; other poolings than mean and [CLS], and layers after the pooling, are refused.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from realm.errors import ConfigError, DataError
from realm.models.networks import parameter_shapes
from realm.models.published.names import ImportPlan
from realm.models.spec import BodySpec, EmbedderSpec, ModelSpec
from realm.models.tensor_files import TensorFile
from realm.storage.files import read_json, write_json
from realm.storage.manifests import Errors, read_object

MODULES_FILE = "modules.json"
_CURE = "Name a sentence-transformers model of a transformer body with mean or [CLS] pooling."
CODE_KEYS = ("auto_map", "architectures", "transformers_version", "_name_or_path")
POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
BODY_PREFIX = "embedder.body.model."


def plan_sentence_embedder(directory: Path, values: Mapping[str, Any], file: TensorFile) -> tuple[ModelSpec, ImportPlan]:
    """Specification of a sentence embedder from ``modules.json`` and its body's ``config.json``, and the use of its tensors.

    Raises DataError: a module, a pooling or a tensor that does not fit; the message names it. Raises ConfigError: a body that transformers
    does not know."""
    pooling, head = _layout(directory)
    # Not what names code of the repository: bodies come from the installed transformers alone.
    body = BodySpec(config={key: value for key, value in values.items() if key not in CODE_KEYS}, pooling=pooling, segments=False)
    try:
        spec = ModelSpec(embedder=EmbedderSpec(body, head=head, projection=body.hidden, dropout=0.0))
        shapes = parameter_shapes(spec)
    except (ConfigError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        problem = getattr(error, "problem", f"{type(error).__name__} {error}")
        raise ConfigError(f"no body of this configuration: {problem}", path=directory / "config.json", cure=_CURE) from error
    prefixes = {name.partition(".")[0] for name in file.shapes}  # the body of a larger model that was saved whole
    taken: dict[str, str] = {}
    for ours, shape in shapes.items():
        name = ours.removeprefix(BODY_PREFIX)
        found = next((n for n in (name, *(f"{prefix}.{name}" for prefix in prefixes)) if n in file.shapes), None)
        if found is None:
            raise DataError(f"the tensor {name} is missing", path=file.path, cure="Fetch the model again.")
        if file.shapes[found] != shape:
            problem = f"the tensor {found} has the shape {list(file.shapes[found])}, and the configuration says {list(shape)}"
            raise DataError(problem, path=file.path, cure="Use the config.json that belongs to these weights.")
        taken[ours] = found
    used = set(taken.values())
    unused = {name: "the body reads no such tensor" for name in file.shapes if name not in used}
    return spec, ImportPlan(taken, {}, unused)


def is_sentence_embedder(spec: EmbedderSpec) -> bool:
    """True if sentence-transformers can hold this embedder: no projection, a known pooling, no second segment."""
    return spec.head != "projection" and spec.body.pooling in POOLINGS.values() and not spec.body.segments


def write_layout(directory: Path, spec: EmbedderSpec, *, max_length: int) -> None:
    """Write a sentence-transformers directory without tokenizer and weights, which keep the body's own tensor names.

    ``spec`` satisfies :func:`is_sentence_embedder`; inputs are cut at ``max_length`` wordpieces, special tokens counted."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if spec.head == "unit" else [])]
    places = ["", *(f"{n}_{kind}" for n, kind in enumerate(kinds[1:], 1))]
    for place in places[1:]:
        (directory / place).mkdir()
    pooling = {key: name == spec.body.pooling for key, name in POOLINGS.items()}
    modules = [
        {"idx": n, "name": str(n), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, place) in enumerate(zip(kinds, places, strict=True))
    ]
    write_json(directory / MODULES_FILE, modules)
    write_json(directory / places[1] / "config.json", {"word_embedding_dimension": spec.body.hidden, **pooling})
    write_json(directory / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    write_json(directory / "config.json", {key: value for key, value in spec.body.config.items() if key not in CODE_KEYS})


def _layout(directory: Path) -> tuple[str, str]:
    modules = read_json(directory / MODULES_FILE)
    if not isinstance(modules, list) or not all(isinstance(m, dict) for m in modules):
        raise DataError("not a list of modules", path=directory / MODULES_FILE, cure=_CURE)
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]) or modules[0].get("path", "") not in ("", "."):
        problem = f"the modules {', '.join(kinds) or 'none'} are not Transformer, Pooling and perhaps Normalize"
        raise DataError(problem, path=directory / MODULES_FILE, cure=_CURE)
    place = str(modules[1].get("path", ""))
    path = directory / Path(place).name / "config.json"  # a plain name: a path out of the directory finds nothing
    pooling = read_object(path, Errors.of(DataError, _CURE))
    wanted = [key for key, on in pooling.items() if key.startswith("pooling_mode_") and on]
    if len(wanted) != 1 or wanted[0] not in POOLINGS:
        raise DataError(f"the pooling {', '.join(wanted) or 'none'} is neither mean nor [CLS]", path=path, cure=_CURE)
    return POOLINGS[wanted[0]], "unit" if len(kinds) == 3 else "none"
