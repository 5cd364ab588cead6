"""A published model's directory as specification, tensors under our names, and tokenizer; nothing in it is executed.

Names, shapes and sizes are checked before a network is built: no configuration can ask for more memory than the weights fill."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from realm.errors import ConfigError, DataError
from realm.models.published.names import MODEL_CURE, ImportPlan, import_tensors, plan_import, published_kind, read_published_config
from realm.models.published.sentence_embedders import MODULES_FILE, plan_sentence_embedder
from realm.models.spec import ModelSpec
from realm.models.tensor_files import TensorFile, open_weights
from realm.storage.manifests import Errors, read_object
from realm.text.tokenizer import TextTokenizer, read_tokenizer

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
