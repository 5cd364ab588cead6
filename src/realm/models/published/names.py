"""Names and configurations of published checkpoints, and ours for them: pure functions of names, shapes and tensors.

For Hugging Face's ``google/realm-*`` classes (transformers up to 4.57 had them) and plain BERTs. An import is planned from names and
shapes before a tensor is read: every tensor is taken or listed as unused, and a missing one is an error before anything is allocated."""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from realm.errors import ConfigError, DataError
from realm.models.networks import parameter_shapes
from realm.models.spec import BodySpec, ModelSpec, one_body
from realm.models.tensor_files import Shape

MODEL_CURE = "Name a directory of google/realm-*, of a BERT, or of a sentence-transformers model."
NAME_TABLES: dict[str, dict[str, Any]] = tomllib.loads((files("realm.models.published") / "names.toml").read_text("utf-8"))
PUBLISHED_PARTS: dict[str, dict[str, str]] = NAME_TABLES["parts"]  # kind of checkpoint -> our parts in it, and the prefix of their names
BLOCK_EMBEDDINGS = "block_emb"  # 13 million in the open-QA checkpoint


@dataclass(frozen=True)
class ImportPlan:
    """Use of each tensor of a checkpoint."""

    taken: dict[str, str]  # our parameter's name -> the name in the file
    repeats: dict[str, str]  # a tied name in the file -> the name it must equal
    unused: dict[str, str]  # name in the file -> reason
    fresh: tuple[str, ...] = ()  # our parameters that keep their random start


def published_kind(names: Iterable[str], *, path: Path | None = None) -> str:
    """Kind of checkpoint by its tensors' names: a key of :data:`PUBLISHED_PARTS`. Raises DataError: it is none of them."""
    known = {_modern(name) for name in names}
    for kind, mark in NAME_TABLES["marks"]["of"]:
        if mark in known:
            return kind
    raise DataError("these tensors belong to no REALM or BERT model", path=path, cure=MODEL_CURE)


def plan_import(kind: str, spec: ModelSpec, shapes: Mapping[str, Shape], *, path: Path | None = None) -> ImportPlan:
    """Plan the use of every tensor by name and shape. Raises DataError: a tensor is missing or contradicts the configuration."""
    present = {_modern(name): name for name in shapes}
    # BertForPreTraining and BertForMaskedLM name the body bert; BertModel is one
    root = ("bert." if any(name.startswith("bert.") for name in present) else "") if kind == "bert" else "realm."
    taken: dict[str, str] = {}
    fresh: list[str] = []
    for ours, shape in parameter_shapes(spec).items():
        part, _, rest = ours.partition(".")
        theirs = published_names(part, rest, PUBLISHED_PARTS[kind][part], root)
        found = next((present[name] for name in theirs if name in present), None)
        if found is None:
            if not _may_be_fresh(kind, ours, present):
                raise DataError(f"the tensor {theirs[0]} is missing", path=path, cure="Fetch the checkpoint again.")
            fresh.append(ours)
        elif tuple(shapes[found]) != shape:
            problem = f"the tensor {found} has the shape {list(shapes[found])}, and the configuration says {list(shape)}"
            raise DataError(problem, path=path, cure="Use the config.json that belongs to these weights.")
        else:
            taken[ours] = found
    used = {*taken.values()}
    repeats, unused = _leftovers(kind, root, {new: old for new, old in present.items() if old not in used}, present, used)
    return ImportPlan(taken, repeats, unused, tuple(fresh))


def mask_head_name(theirs: str) -> str | None:
    """Our name, within an encoder's head, for a tensor of a BERT's MLM head; None for any other tensor."""
    name = _modern(theirs)
    for ours, prefix in (("dense.", "cls.predictions.transform.dense."), ("norm.", "cls.predictions.transform.LayerNorm.")):
        if name.startswith(prefix):
            return ours + name.removeprefix(prefix)
    return "bias" if name == "cls.predictions.bias" else None


def import_tensors(plan: ImportPlan, read: Callable[[str], Tensor], *, path: Path | None = None) -> dict[str, Tensor]:
    """Our state dictionary, to be loaded with ``strict=not plan.fresh``.

    ``read`` gives one tensor of the file by name, one at a time. Raises DataError: a tensor holds no floating-point or no finite numbers,
    or tied tensors differ."""
    for name, twin in plan.repeats.items():
        if not torch.equal(read(name), read(twin)):
            problem = f"the tensors {name} and {twin} differ, and the published models tie them"
            raise DataError(problem, path=path, cure="Use the checkpoint as it was published.")
    state: dict[str, Tensor] = {}
    for ours, theirs in plan.taken.items():
        tensor = read(theirs)
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise DataError(f"the tensor {theirs} holds no finite numbers", path=path, cure="Fetch the checkpoint again.")
        state[ours] = tensor
    return state


def published_names(part: str, rest: str, prefix: str, root: str) -> list[str]:
    """Published names of one of our parameters, the usual one first; ``root`` is the body's."""
    for ours, theirs in NAME_TABLES["own"][part].items():
        if rest.startswith(ours):
            name = theirs + rest[len(ours) :]
            twins = [twin for twin, original in NAME_TABLES["tied"].items() if original == name and part == "encoder"]
            return [prefix + (root + n[len("realm.") :] if n.startswith("realm.") else n) for n in (name, *twins)]
    raise ValueError(f"{part}.{rest} has no published name")


def _modern(name: str) -> str:
    return next((name[: -len(old)] + new for old, new in NAME_TABLES["old_suffixes"].items() if name.endswith(old)), name)


def _may_be_fresh(kind: str, ours: str, present: Mapping[str, str]) -> bool:
    """A BERT has no projection; it may lack the masked-language-model head, but not half of it."""
    if kind != "bert" or ".body." in ours:
        return False
    return ours.startswith("embedder.") or not any(name.startswith("cls.predictions.") for name in present)


def _leftovers(
    kind: str, root: str, left: Mapping[str, str], present: Mapping[str, str], used: set[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Tensors not taken: repeats of taken ones, and unused ones with the reason."""
    repeats: dict[str, str] = {}
    unused: dict[str, str] = {}
    for name, old in left.items():
        prefix = next((p for p in PUBLISHED_PARTS[kind].values() if p and name.startswith(p)), "")
        short = name.removeprefix(prefix)
        twin = NAME_TABLES["tied"].get(short, "").replace("realm.", root)
        if twin and present.get(prefix + twin) in used and "encoder" in PUBLISHED_PARTS[kind]:
            repeats[old] = present[prefix + twin]
        elif short.startswith(f"{root}pooler."):
            unused[old] = "only an embedder reads a pooler"
        elif short.startswith("cls.predictions."):
            unused[old] = "only the encoder reads a masked-language-model head"
        elif short.startswith("cls.seq_relationship."):
            unused[old] = "nothing here predicts the next sentence"
        elif short == BLOCK_EMBEDDINGS:
            unused[old] = "an index is made of your own documents"
        elif short.endswith("embeddings.position_ids"):
            unused[old] = "it counts positions and holds no weight"
        else:
            unused[old] = "it belongs to no network of REALM"
    return repeats, unused


ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh")
_SIZES: dict[str, int] = NAME_TABLES["sizes"]
_RATES: dict[str, float] = NAME_TABLES["rates"]
_HEAD_SIZES = {"projection": ("retriever_proj_size", 128), "span_hidden": ("span_hidden_size", 256), "max_span": ("max_span_width", 10)}
READER_EPS = 1e-3
MAX_SIZE = 2**24  # far above every published model: beyond it is damage or an attack


def read_published_config(values: Mapping[str, Any], kind: str, *, path: Path | None = None) -> ModelSpec:
    """Specification of a published model from its parsed ``config.json``, with the class's defaults.

    The special-token ids are not used: the published ones (padding 1) do not belong to the vocabulary, whose padding is 0. Raises
    ConfigError: a value has the wrong type, is out of range, or asks for an unsupported network."""
    sizes = {name: _size(values, name, default, path) for name, default in _SIZES.items()}
    rates = {name: _rate(values, name, default, path) for name, default in _RATES.items()}
    if sizes["hidden_size"] % sizes["num_attention_heads"]:
        raise _refused(f"hidden_size {sizes['hidden_size']} is not a multiple of num_attention_heads {sizes['num_attention_heads']}", path)
    if (positions := values.get("position_embedding_type", "absolute")) != "absolute":
        raise _refused(f"position_embedding_type '{positions}' is not supported; the published models have absolute positions", path)
    # A plain BERT's default is the exact GELU, a REALM's the approximation of the original code.
    activation = values.get("hidden_act", "gelu" if kind == "bert" else "gelu_new")
    if activation not in ACTIVATIONS:
        raise _refused(f"hidden_act '{activation}' is none of {', '.join(ACTIVATIONS)}", path)
    body = {"model_type": "bert", **sizes, **rates, "hidden_act": activation, "pad_token_id": 0}
    own: dict[str, Any] = {ours: _size(values, theirs, default, path) for ours, (theirs, default) in _HEAD_SIZES.items()}
    return one_body(
        BodySpec(config=body),
        layer_norm_eps=rates["layer_norm_eps"],
        dropout=rates["hidden_dropout_prob"],
        span_layer_norm_eps=_rate(values, "reader_layer_norm_eps", READER_EPS, path),
        parts=tuple(PUBLISHED_PARTS[kind]),
        **own,
    )


def _size(values: Mapping[str, Any], name: str, default: int, path: Path | None) -> int:
    value = values.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_SIZE:
        raise _refused(f"{name} = {value!r} is not a whole number from 1 to {MAX_SIZE}", path)
    return value


def _rate(values: Mapping[str, Any], name: str, default: float, path: Path | None) -> float:
    value = values.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
        raise _refused(f"{name} = {value!r} is not a number from 0 to 1", path)
    return float(value)


def _refused(problem: str, path: Path | None) -> ConfigError:
    return ConfigError(problem, path=path, cure="Use the config.json that belongs to the weights.")
