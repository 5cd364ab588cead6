"""A published model's directory as specification, tensors under our names, and tokenizer; nothing in it is executed. Directories of
sentence-transformers are embedders, both ways: a body, a pooling, perhaps vectors of length 1.

Names, shapes and sizes are checked before a network is built: no configuration can ask for more memory than the weights fill. Bodies may be
of any family known to transformers' AutoModel; other poolings than mean and [CLS], and layers after the pooling, are refused."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from realm.errors import ConfigError, DataError
from realm.models.networks import parameter_shapes
from realm.models.published.names import MODEL_CURE, ImportPlan, import_tensors, plan_import, published_kind, read_published_config
from realm.models.spec import BodySpec, EmbedderSpec, ModelSpec
from realm.models.tensor_files import TensorFile, open_weights
from realm.storage.files import read_json, write_json
from realm.storage.manifests import Errors, read_object
from realm.text.tokenizer import TextTokenizer, read_tokenizer

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


FAMILIES = ("realm", "bert")


@dataclass(frozen=True)
class Published:
    """One published model."""

    directory: Path
    kind: str  # of ``PUBLISHED_PARTS``, or "sentence-transformers"
    spec: ModelSpec
    file: TensorFile
    plan: ImportPlan  # use of each tensor of ``file``
    tokenizer: TextTokenizer
    imported: tuple[str, ...]  # names in the file that became parameters
    unused: dict[str, str]  # name in the file -> reason

    @property
    def fresh(self) -> tuple[str, ...]:
        """Our parameters that it lacks; they start at random."""
        return self.plan.fresh

    def tensors(self) -> dict[str, Tensor]:
        """Our parameters that it has. Raises DataError: numbers that are not finite, or tied tensors that differ."""
        return import_tensors(self.plan, self.file.read, path=self.file.path)


def load_published(directory: Path) -> Published:
    """Read one directory; :meth:`realm.models.model.RealmModel.from_published` builds its networks.

    Raises DataError: no weights, damaged ones, a missing tensor or one of a wrong shape, no tokenizer, or a directory of something else.
    Raises ConfigError: a configuration that does not fit the weights, or is not supported."""
    directory = Path(directory)
    if not directory.is_dir():
        raise DataError("no such directory", path=directory, cure=MODEL_CURE)
    if (directory / "config.toml").is_file():
        raise DataError("a run of this program, not a published model", path=directory, cure="Use it directly: it is a run already")
    if (directory / MODULES_FILE).is_file():
        return _sentence_embedder(directory)
    return _realm_or_bert(directory)


def _realm_or_bert(directory: Path) -> Published:
    file = open_weights(directory)
    values = read_config(directory)
    config = directory / "config.json"
    if values.get("model_type", "realm") not in FAMILIES:
        raise DataError(f"a model of the family '{values['model_type']}', neither REALM nor BERT", path=config, cure=MODEL_CURE)
    kind = published_kind(file.shapes, path=file.path)
    spec = read_published_config(values, kind, path=config)
    check_size(next(iter(spec.networks.values())).body.config, file, config)
    plan = plan_import(kind, spec, file.shapes, path=file.path)
    tokenizer = read_tokenizer(directory)
    check_vocabulary(tokenizer, spec, exact=True, path=directory)
    # A BERT's body becomes the embedder's and the encoder's: its tensors count once.
    taken = tuple(dict.fromkeys([*plan.taken.values(), *plan.repeats]))
    return Published(directory, kind, spec, file, plan, tokenizer, taken, plan.unused)


def _sentence_embedder(directory: Path) -> Published:
    file = open_weights(directory)
    values = read_config(directory)
    check_size(values, file, directory / "config.json")
    spec, plan = plan_sentence_embedder(directory, values, file)
    tokenizer = read_tokenizer(directory)
    check_vocabulary(tokenizer, spec, exact=False, path=directory)
    taken = tuple(plan.taken.values())
    return Published(directory, "sentence-transformers", spec, file, plan, tokenizer, taken, plan.unused)


def read_config(directory: Path) -> dict[str, Any]:
    """Parse ``config.json``. Raises DataError: it is missing, or no JSON object."""
    return read_object(directory / "config.json", Errors.of(DataError, MODEL_CURE))


def check_size(values: Mapping[str, Any], file: TensorFile, path: Path) -> None:
    """Refuse a configuration with more parameters than the weights hold. Raises ConfigError: it asks for more, or for no integer."""
    sizes = [values.get(name, 0) for name in ("vocab_size", "max_position_embeddings", "num_hidden_layers", "hidden_size")]
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise ConfigError("a size that is not a whole number", path=path, cure="Use the config.json that belongs to these weights.")
    vocabulary, positions, layers, hidden = sizes
    least = hidden * (vocabulary + positions + 4 * layers * hidden)  # of a layer only its attention: every family has that much
    held = sum(math.prod(shape) for shape in file.shapes.values())
    if least > held:
        problem = f"the configuration asks for at least {least:,} parameters, and {file.path.name} holds {held:,}"
        raise ConfigError(problem, path=path, cure="Use the config.json that belongs to these weights.")


def check_vocabulary(tokenizer: TextTokenizer, spec: ModelSpec, *, exact: bool, path: Path) -> None:
    """Refuse a tokenizer of another vocabulary than the weights'.

    Unless ``exact``, the weights may have rows to spare, as some families pad them. Raises DataError: the sizes do not fit."""
    for rows in {network.body.vocabulary for network in spec.networks.values()}:
        if tokenizer.vocab_size > rows or (exact and tokenizer.vocab_size != rows):
            problem = f"the tokenizer has {tokenizer.vocab_size} entries, and the weights have {rows}"
            raise DataError(problem, path=path, cure="Put the tokenizer of these very weights beside them.")
