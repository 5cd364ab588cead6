"""The published models' parameter names and ours, both ways: pure functions of names, shapes and tensors.

Hugging Face's ``google/realm-*`` classes (transformers up to 4.57 had them) and plain BERT checkpoints. A file's names and shapes are
planned first, without reading a tensor: everything in it is taken or named as unused, and what is missing or of another shape is an
error before anything is allocated. The configuration's side is in :mod:`realm.models.published.config`.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from realm.errors import DataError
from realm.models.networks import parameter_shapes
from realm.models.spec import ModelSpec

Shape = tuple[int, ...]

TABLES: dict[str, dict[str, Any]] = tomllib.loads((files("realm.models.published") / "names.toml").read_text("utf-8"))
PUBLISHED_PARTS: dict[str, dict[str, str]] = TABLES["parts"]
"""Kind of checkpoint -> our parts in it and the prefix of each one's names."""
BLOCK_EMBEDDINGS = "block_emb"
"""The open-QA checkpoint carries the embeddings of its 13 million blocks: they become a snapshot, not a parameter."""


@dataclass(frozen=True)
class ImportPlan:
    """What becomes of each tensor of a checkpoint.

    Args:
        taken: our parameter's name -> the name in the file.
        repeats: a tied name in the file -> the name it must equal.
        unused: name in the file -> why nothing here takes it.
        fresh: our parameters that no such checkpoint holds; they keep their random start.
        block_embeddings: the name of the blocks' embeddings [n, d], if the file has them.
    """

    taken: dict[str, str]
    repeats: dict[str, str]
    unused: dict[str, str]
    fresh: tuple[str, ...] = ()
    block_embeddings: str | None = None


def published_kind(names: Iterable[str]) -> str:
    """The kind of checkpoint, from the names of its tensors: a key of :data:`PUBLISHED_PARTS`.

    Raises:
        DataError: it is none of them.
    """
    known = {_modern(name) for name in names}
    for kind, mark in TABLES["marks"]["of"]:
        if mark in known:
            return kind
    raise DataError("these tensors belong to no REALM or BERT model", cure="Name a directory of google/realm-* or of a BERT.")


def plan_import(kind: str, spec: ModelSpec, shapes: Mapping[str, Shape], *, path: Path | None = None) -> ImportPlan:
    """Account for every tensor of a checkpoint.

    Args:
        kind: of :data:`PUBLISHED_PARTS`.
        spec: what the checkpoint's configuration says.
        shapes: name -> shape of every tensor in the file.
        path: the file, for messages.

    Raises:
        DataError: a tensor is missing, or has another shape than the configuration says; the message names it.
    """
    present = {_modern(name): name for name in shapes}
    root = _bert_root(present) if kind == "bert" else "realm."
    taken: dict[str, str] = {}
    fresh: list[str] = []
    for ours, shape in parameter_shapes(spec).items():
        part, _, rest = ours.partition(".")
        theirs = _theirs(part, rest, PUBLISHED_PARTS[kind][part], root)
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
    blocks = present.get(BLOCK_EMBEDDINGS) if kind == "openqa" else None
    width = spec.embedder.projection if spec.embedder else 0
    if blocks is not None and (len(shapes[blocks]) != 2 or shapes[blocks][1] != width):
        problem = f"the tensor {blocks} has the shape {list(shapes[blocks])}, and the configuration says [blocks, {width}]"
        raise DataError(problem, path=path, cure="Use the config.json that belongs to these weights.")
    used = {*taken.values(), *([blocks] if blocks else [])}
    repeats, unused = _leftovers(kind, root, {new: old for new, old in present.items() if old not in used}, present, used)
    return ImportPlan(taken, repeats, unused, tuple(fresh), blocks)


def mask_head_name(theirs: str) -> str | None:
    """Our name, within an encoder's head, of a tensor of a BERT's head for masked wordpieces; None for any other tensor."""
    name = _modern(theirs)
    for ours, prefix in (("dense.", "cls.predictions.transform.dense."), ("norm.", "cls.predictions.transform.LayerNorm.")):
        if name.startswith(prefix):
            return ours + name.removeprefix(prefix)
    return "bias" if name == "cls.predictions.bias" else None


def import_tensors(plan: ImportPlan, read: Callable[[str], Tensor], *, path: Path | None = None) -> dict[str, Tensor]:
    """Our state dictionary, to be loaded with ``strict=not plan.fresh``. The blocks' embeddings are not in it.

    Args:
        plan: from :func:`plan_import`.
        read: gives one tensor of the file by name; each is read when it is its turn.

    Raises:
        DataError: a tensor holds no floating-point or no finite numbers, or tied tensors differ.
    """
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


def export_tensors(kind: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our state dictionary under the published names: the exact inverse of :func:`import_tensors`.

    Heads and poolers that nothing reads are not written, nor is the null document's offset, which the published classes do not have; tied
    tensors are written once, as transformers itself does.

    Args:
        kind: of :data:`PUBLISHED_PARTS`, not "bert". The parts that it lacks are left out.
        state: of a model that has the kind's parts; a scorer without a document embedder is written with the one embedder twice.

    Raises:
        DataError: the model lacks a part of this kind.
    """
    exported: dict[str, Tensor] = {}
    for part, prefix in PUBLISHED_PARTS[kind].items():
        source = "embedder" if part == "document_embedder" and not any(n.startswith("document_embedder.") for n in state) else part
        own = {name.removeprefix(f"{source}."): tensor for name, tensor in state.items() if name.startswith(f"{source}.")}
        if not own:
            raise DataError(f"the model has no {part}, and a published {kind} has one", cure="Export a stage that has it.")
        own.pop("null_offset", None)
        for rest, tensor in own.items():
            exported[_theirs(part, rest, prefix, "realm.")[0]] = tensor
    return exported


def _theirs(part: str, rest: str, prefix: str, root: str) -> list[str]:
    """The published names of one of our parameters, the usual one first; ``root`` is the body's."""
    for ours, theirs in TABLES["own"][part].items():
        if rest.startswith(ours):
            name = theirs + rest[len(ours) :]
            twins = [twin for twin, original in TABLES["tied"].items() if original == name and part == "encoder"]
            return [prefix + (root + n[len("realm.") :] if n.startswith("realm.") else n) for n in (name, *twins)]
    raise ValueError(f"{part}.{rest} has no published name")


def _modern(name: str) -> str:
    """The name as today's modules call it."""
    return next((name[: -len(old)] + new for old, new in TABLES["old_suffixes"].items() if name.endswith(old)), name)


def _bert_root(present: Mapping[str, str]) -> str:
    """How the body's names begin: BertModel writes them bare, BertForPreTraining and BertForMaskedLM below "bert."."""
    return "bert." if any(name.startswith("bert.") for name in present) else ""


def _may_be_fresh(kind: str, ours: str, present: Mapping[str, str]) -> bool:
    """A BERT has no projection; it may lack the masked-language-model head, but not half of it."""
    if kind != "bert" or ".body." in ours:
        return False
    return ours.startswith("embedder.") or not any(name.startswith("cls.predictions.") for name in present)


def _leftovers(
    kind: str, root: str, left: Mapping[str, str], present: Mapping[str, str], used: set[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Tensors that nothing took: those that repeat a taken one, and those that are unused with the reason."""
    repeats: dict[str, str] = {}
    unused: dict[str, str] = {}
    for name, old in left.items():
        prefix = next((p for p in PUBLISHED_PARTS[kind].values() if p and name.startswith(p)), "")
        short = name.removeprefix(prefix)
        twin = TABLES["tied"].get(short, "").replace("realm.", root)
        if twin and present.get(prefix + twin) in used and "encoder" in PUBLISHED_PARTS[kind]:
            repeats[old] = present[prefix + twin]
        elif short.startswith(f"{root}pooler."):
            unused[old] = "only an embedder reads a pooler"
        elif short.startswith("cls.predictions."):
            unused[old] = "only the encoder reads a masked-language-model head"
        elif short.startswith("cls.seq_relationship."):
            unused[old] = "nothing here predicts the next sentence"
        elif short.endswith("embeddings.position_ids"):
            unused[old] = "it counts positions and holds no weight"
        else:
            unused[old] = "it belongs to no network of REALM"
    return repeats, unused
