"""From TOML to a recipe and back: preset < file < flags, every value checked; relative paths count from the file."""

import dataclasses
import difflib
import math
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any, get_type_hints

import tomli_w

from realm.config.recipe import Recipe
from realm.errors import ConfigError
from realm.paths import HUB_PREFIX

PATH_FIELDS = {
    "corpus": ("sources", "gazetteer"),
    "pretrain": ("sentences",),
    "refresher": ("replay",),
    "finetune": ("train", "dev", "seq2seq"),
    "eval": ("qa",),
}
"""Fields that hold paths: relative ones count from the recipe's directory."""

REMOVED = {("refresher", "budget"): 1.0, ("refresher", "first"): "oldest"}
"""Keys of earlier versions, and the values at which they changed nothing: a finished run's ``config.toml`` may still hold them."""

Values = dict[str, Any]


def load_recipe(path: Path, overrides: Values | None = None) -> Recipe:
    """Read a recipe file on top of its preset; ``overrides`` are {section: {key: value}} and win.

    Raises:
        ConfigError: missing file, bad TOML, unknown section, key or preset, or a value of the wrong type or out of range.
    """
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError("no such recipe", path=path, cure="Give the path of a .toml file; see recipes/ for examples.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not TOML: {error}", path=path) from error
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", path=path) from error
    return build_recipe(values, path=path, overrides=overrides)


def build_recipe(values: Values, *, path: Path | None = None, overrides: Values | None = None) -> Recipe:
    """A recipe from nested values: preset, then ``values``, then ``overrides``."""
    merged = _merge(values, overrides or {})
    model = merged.get("model", {})
    preset = model.get("preset", "tiny") if isinstance(model, dict) else "tiny"
    merged = _merge(_preset(preset, path), _with_finetune_preset(merged, path))
    sections = {f.name: get_type_hints(Recipe)[f.name] for f in dataclasses.fields(Recipe)}
    _known(merged, sections, path, "section")
    built = {name: _section(sections[name], name, section, path) for name, section in merged.items()}
    recipe = Recipe(**built)
    _check(recipe, path)
    return _resolve_paths(recipe, path.parent) if path is not None else recipe


def run_index_kind(config: Path) -> str:
    """The kind of index that the ``config.toml`` of a run names; "auto" where there is no such file.

    Raises:
        ConfigError: see :func:`load_recipe`.
    """
    return load_recipe(config).index.kind if config.is_file() else "auto"


def preset_names() -> list[str]:
    """The presets that exist."""
    return sorted(p.name.removesuffix(".toml") for p in (files("realm") / "presets").iterdir() if p.name.endswith(".toml"))


def dump_recipe(recipe: Recipe) -> str:
    """The recipe as TOML that :func:`load_recipe` reads back to the same recipe."""
    return tomli_w.dumps(dataclasses.asdict(recipe))


def _preset(name: Any, path: Path | None) -> Values:
    if name not in preset_names():
        known = ", ".join(preset_names())
        raise ConfigError(f"no preset '{name}'", path=path, cure=f"Presets are: {known}.")
    return tomllib.loads((files("realm") / "presets" / f"{name}.toml").read_text("utf-8"))


def _with_finetune_preset(values: Values, path: Path | None) -> Values:
    """``values`` over what ``finetune.preset`` names."""
    section = values.get("finetune", {})
    name = section.get("preset", "") if isinstance(section, dict) else ""
    folder = files("realm") / "presets" / "finetune"
    known = sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml"))
    if name in known:
        return _merge({"finetune": tomllib.loads((folder / f"{name}.toml").read_text("utf-8"))}, values)
    if name:
        raise ConfigError(f"'finetune.preset' cannot be {name!r}", path=path, cure=f"It is empty or one of: {', '.join(known)}.")
    return values


def _merge(below: Values, above: Values) -> Values:
    """``above`` over ``below``, section by section."""
    merged = dict(below)
    for name, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = {**merged[name], **value} if both else value
    return merged


def _known(values: Values, allowed: Any, path: Path | None, what: str) -> None:
    for name in values:
        if name not in allowed:
            near = difflib.get_close_matches(name, list(allowed), n=1)
            cure = f"Did you mean '{near[0]}'?" if near else f"Known: {', '.join(allowed)}."
            raise ConfigError(f"unknown {what} '{name}'", path=path, cure=cure)


def _section(kind: type, name: str, values: Any, path: Path | None) -> Any:
    if not isinstance(values, dict):
        raise ConfigError(f"'{name}' is no section", path=path, cure=f"Write [{name}] and its keys below.")
    hints = get_type_hints(kind)
    values = _without_removed(name, values, path)
    _known(values, hints, path, f"key in [{name}]")
    return kind(**{key: _typed(hints[key], value, f"{name}.{key}", path) for key, value in values.items()})


def _without_removed(name: str, values: Values, path: Path | None) -> Values:
    """A section without keys of earlier versions that say what every run does now."""
    for key in [key for key in values if (name, key) in REMOVED]:
        if values[key] != REMOVED[name, key]:
            raise ConfigError(f"'{name}.{key}' is no longer there", path=path, cure="Leave it out: a refresh embeds every block.")
    return {key: value for key, value in values.items() if (name, key) not in REMOVED}


def _typed(hint: Any, value: Any, key: str, path: Path | None) -> Any:
    """``value`` as the field's type; an int serves as a float, a list as a tuple."""
    wrong = ConfigError(f"'{key}' cannot be {value!r}", path=path, cure=f"It takes {getattr(hint, '__name__', str(hint))}.")
    if hint == str | tuple[str, ...]:
        hint = str if isinstance(value, str) else tuple[str, ...]
    if hint in (tuple[str, ...], tuple[int, ...]):
        item = str if hint == tuple[str, ...] else int
        if not isinstance(value, list | tuple) or not all(isinstance(v, item) and not isinstance(v, bool) for v in value):
            raise wrong
        return tuple(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint not in (bool, bool | str)):
        raise wrong
    if hint is float and not math.isfinite(value):
        raise wrong
    return value


CHOICES = {
    ("run", "device"): ("auto", "cpu", "cuda"),
    ("run", "optimizer"): ("adamw", "bert"),
    ("run", "schedule"): ("linear", "cosine"),
    ("run", "tensorboard"): ("auto", True, False),
    ("index", "kind"): ("auto", "exact", "compressed", "clustered", "faiss-flat", "faiss-ivf", "faiss-ivfpq"),
    ("model", "pooling"): ("pooler", "cls", "mean"),
    ("pretrain", "marginal"): ("token", "joint"),
    ("warm", "masking"): ("salient", "pmi", "spans", "tokens"),
    ("pretrain", "masking"): ("salient", "stated", "pmi", "spans", "tokens"),
    ("pretrain", "objective"): ("marginal", "emdr2", "distill"),
    ("pretrain", "refresh"): ("process", "inline", "external", "frozen"),
    **{(stage, "publish"): ("last", "best") for stage in ("pretrain", "finetune")},
    ("finetune", "reader"): ("span", "generative"),
    ("finetune", "objective"): ("marginal", "hard-em"),
    ("finetune", "documents"): ("frozen", "trained"),
    **{(stage, "match"): ("wordpiece", "raw", "normalised") for stage in ("finetune", "eval")},
}
MINIMUM = {
    ("run", "threads"): 1,
    ("run", "checkpoint_every"): 0,
    ("run", "rank_timeout"): 1,
    ("corpus", "vocab_size"): 200,
    ("corpus", "block_length"): 16,
    ("model", "hidden"): 8,
    ("model", "layers"): 1,
    ("model", "heads"): 1,
    ("model", "intermediate"): 1,
    ("model", "projection"): 8,
    ("model", "span_hidden"): 1,
    ("model", "query_length"): 8,
    ("model", "max_span"): 1,
    ("ict", "batch"): 2,
    ("warm", "batch"): 1,
    ("warm", "check_every"): 1,
    ("pretrain", "batch"): 1,
    ("pretrain", "candidates"): 2,
    ("pretrain", "spans"): 1,
    ("pretrain", "exclude_overlap"): 0,
    ("pretrain", "refresh_every"): 1,
    ("pretrain", "held_out"): 0,
    ("pretrain", "eval_every"): 1,
    ("refresher", "threads"): 1,
    ("refresher", "workers"): 1,
    ("refresher", "nice"): 0,
    ("refresher", "staleness_limit"): 0,
    ("refresher", "deadline"): 1,
    ("finetune", "batch"): 1,
    ("finetune", "read"): 1,
    ("finetune", "beam"): 1,
    ("finetune", "eval_every"): 1,
    ("finetune", "refresh_every"): 1,
    ("finetune", "patience"): 0,
    ("eval", "read"): 0,
    ("eval", "closed_book_epochs"): 0,
    **{(stage, key): least for stage in ("ict", "warm", "pretrain", "finetune") for key, least in (("warmup", 0), ("accumulate", 1))},
}
SHARES = (
    ("model", "dropout"),
    ("model", "attention_dropout"),
    ("ict", "keep_rate"),
    ("warm", "accuracy"),
    ("warm", "hide_rate"),
    ("warm", "partner_rate"),
    ("pretrain", "retriever_rate"),
    ("finetune", "rename_rate"),
    ("finetune", "retriever_rate"),
)


def _check(recipe: Recipe, path: Path | None) -> None:
    """Values that the types allow and the mathematics does not."""
    for (section, key), choices in CHOICES.items():
        value = getattr(getattr(recipe, section), key)
        if value not in choices:
            known = ", ".join(str(choice).lower() for choice in choices)
            raise ConfigError(f"'{section}.{key}' cannot be '{value}'", path=path, cure=f"It is one of: {known}.")
    for (section, key), least in MINIMUM.items():
        value = getattr(getattr(recipe, section), key)
        if value < least:
            raise ConfigError(f"'{section}.{key}' is {value}", path=path, cure=f"It is at least {least}.")
    for section, key in SHARES:
        value = getattr(getattr(recipe, section), key)
        if not 0 <= value <= 1:
            raise ConfigError(f"'{section}.{key}' is {value}", path=path, cure="It is between 0 and 1.")
    if not recipe.eval.k or min(recipe.eval.k) < 1:
        raise ConfigError(f"'eval.k' is {list(recipe.eval.k)}", path=path, cure="It names depths of at least 1.")
    for section in ("ict", "warm", "pretrain", "finetune"):
        stage = getattr(recipe, section)
        if stage.steps < 0 or stage.lr <= 0:
            raise ConfigError(f"[{section}] needs steps >= 0 and lr > 0", path=path)
        if stage.batch % stage.accumulate:
            problem = f"'{section}.batch' is {stage.batch}, no multiple of {section}.accumulate = {stage.accumulate}"
            raise ConfigError(problem, path=path, cure="A batch is computed in equal parts.")
    _check_pretrain(recipe, path)
    if recipe.model.hidden % recipe.model.heads:
        raise ConfigError("'model.hidden' is no multiple of 'model.heads'", path=path)
    _check_finetune(recipe, path)


def _check_finetune(recipe: Recipe, path: Path | None) -> None:
    section = recipe.finetune
    if recipe.train_files and not section.beam >= section.read:
        raise ConfigError("'finetune.beam' is smaller than 'finetune.read'", path=path, cure="The reader reads the best of the beam.")
    if section.patience and not recipe.dev_files and section.publish == "last":
        cure = 'Name questions in finetune.dev, or set finetune.publish = "best", which holds some of train out.'
        raise ConfigError("'finetune.patience' is given, and there is no dev to watch", path=path, cure=cure)
    if (section.reader == "generative") != bool(section.seq2seq):
        cure = 'Set finetune.reader = "generative" and finetune.seq2seq to a model\'s directory, or neither.'
        raise ConfigError("'finetune.reader' and 'finetune.seq2seq' do not go together", path=path, cure=cure)
    if section.reader == "generative" and section.documents == "trained":
        raise ConfigError("a generative reader learns with frozen documents only", path=path, cure='Set finetune.documents = "frozen".')


def _check_pretrain(recipe: Recipe, path: Path | None) -> None:
    section = recipe.pretrain
    if section.publish == "best" and not section.held_out:
        cure = "Without held-out sentences nothing says which weights are the best: set pretrain.held_out, or publish the last."
        raise ConfigError("'pretrain.publish' is 'best' and 'pretrain.held_out' is 0", path=path, cure=cure)
    if section.temperature <= 0:
        raise ConfigError(f"'pretrain.temperature' is {section.temperature}", path=path, cure="It is above 0.")
    if section.exclude_overlap and not section.exclude:
        cure = "Leave one of them out."
        raise ConfigError("'pretrain.exclude_overlap' is given and 'pretrain.exclude' is false", path=path, cure=cure)
    if not section.from_warm and not section.force:
        cure = "Set pretrain.force = true to see what happens."
        raise ConfigError("'pretrain.from_warm' is false: the encoder would start without having learnt to read", path=path, cure=cure)


def _resolve_paths(recipe: Recipe, base: Path) -> Recipe:
    def absolute(value: str) -> str:
        if not value or value.startswith(HUB_PREFIX):
            return value
        return str((base / Path(value).expanduser()).resolve())

    changed: dict[str, Any] = {}
    for section, names in PATH_FIELDS.items():
        values = getattr(recipe, section)
        updates = {n: tuple(map(absolute, v)) if isinstance(v := getattr(values, n), tuple) else absolute(v) for n in names}
        changed[section] = dataclasses.replace(values, **updates)
    return dataclasses.replace(recipe, **changed)
