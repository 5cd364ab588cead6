"""From TOML to a recipe and back, preset < published body < file < flags. Keys are checked here, values at their field."""

import dataclasses
import difflib
import tomllib
from pathlib import Path
from typing import Any, get_type_hints

import tomli_w

from realm.errors import ConfigError
from realm.recipe.sections import Recipe, check_recipe
from realm.recipe.values import read_value
from realm.storage.files import toml_values
from realm.storage.layout import is_realm_model

RUN_CONFIG, RUN_FILE = "config.toml", "run.json"
"""Files of a run directory: the recipe as it was resolved, and what says that it is a run."""
Values = dict[str, Any]
PRESETS = Path(__file__).with_name("presets")


def load_recipe(path: Path, overrides: Values | None = None) -> Recipe:
    """Read a recipe file on top of its preset; ``overrides`` are {section: {key: value}} and win. The ``config.toml`` of a run states every
    key: what its presets say today changes nothing. Raises ConfigError: missing file, bad TOML, unknown section, key or preset, or a value
    of the wrong type or out of range."""
    try:
        values = toml_values(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError("no such recipe", path=path, cure="Give the path of a .toml file; see recipes/ for examples.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not TOML: {error}", path=path) from error
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", path=path, cure="Give the path of a .toml file.") from error
    if path.name == RUN_CONFIG and (path.parent / RUN_FILE).is_file():
        return _recipe(_merge(values, overrides or {}), path)
    return build_recipe(values, path=path, overrides=overrides)


def build_recipe(values: Values, *, path: Path | None = None, overrides: Values | None = None) -> Recipe:
    """A recipe from nested values: preset, what suits ``model.body`` if there is one, then ``values``, then ``overrides``."""
    merged = _merge(values, overrides or {})
    model = merged.get("model", {})
    preset = model.get("preset", "tiny") if isinstance(model, dict) else "tiny"
    body = model.get("body", "") if isinstance(model, dict) else ""
    if preset not in preset_names():
        raise ConfigError(f"no preset '{preset}'", path=path, cure=f"Presets are: {', '.join(preset_names())}.")
    below = _merge(_read_preset(f"{preset}.toml"), _published(body, merged) if isinstance(body, str) else {})
    return _recipe(_merge(below, _with_finetune_preset(merged, path)), path)


def _recipe(merged: Values, path: Path | None) -> Recipe:
    """A recipe of these values, and of defaults where there are none."""
    sections = get_type_hints(Recipe)
    _known(merged, sections, path, "section")
    recipe = Recipe(**{name: _section(sections[name], name, section, path) for name, section in merged.items()})
    try:
        check_recipe(recipe)
    except ConfigError as error:
        raise ConfigError(error.problem, path=path, cure=error.cure) from None
    return recipe


def run_index_kind(config: Path) -> str:
    """The kind of index that the ``config.toml`` of a run names; "auto" where there is no such file. Raises ConfigError: see
    :func:`load_recipe`."""
    return load_recipe(config).index.kind if config.is_file() else "auto"


def preset_names(folder: str = "") -> list[str]:
    """The presets that exist: sizes of networks, or those of a ``folder`` beside them."""
    return sorted(p.name.removesuffix(".toml") for p in (PRESETS / folder).iterdir() if p.name.endswith(".toml"))


def dump_recipe(recipe: Recipe) -> str:
    """The recipe as TOML that :func:`load_recipe` reads back to the same recipe."""
    return tomli_w.dumps(dataclasses.asdict(recipe))


def _published(body: str, recipe: Values) -> Values:
    """Values for published weights: those of all of them, over these the body's own, and over these a pointer's where one learns, of which
    a body may have its own, too. A recipe that pre-trains has the encoder learn to read first, unless it points: a sentence embedder has no
    head that fills masks."""
    body = _started_from(body)
    if not body:
        return {}
    values = _read_preset("published/default.toml")
    section = recipe.get("pretrain", {})
    if isinstance(section, dict) and section.get("steps") and section.get("fill", "mlm") == "mlm":
        values = _merge(values, {"pretrain": {"from_warm": True}})
    own = _read_preset(f"published/{body}.toml") if body in preset_names("published") else {}
    pointing = own.pop("pointer", {})
    values = _merge(values, own)
    if isinstance(section, dict) and section.get("fill") == "pointer":
        values = _merge(_merge(values, _read_preset("pretrain/pointer.toml")), {"pretrain": pointing})
        if section.get("sentences"):
            values = _merge(values, {"pretrain": {"own_block": 0.0}})  # they stand in no block
        if section.get("reader") == "frozen":
            values = _merge(values, {"pretrain": {"own_block": 0.0, "reader_first": 0}})
    return values


def _started_from(body: str) -> str:
    """The published body that training began with, where ``body`` is a stage of a run; "": it began with none, or that is not recorded."""
    seen: set[str] = set()
    while body and is_realm_model(Path(body)):
        run = Path(body).resolve().parents[1]
        if body in seen or not (run / RUN_FILE).is_file():
            return ""
        seen.add(body)
        body = load_recipe(run / RUN_CONFIG).model.body
    return body


def _read_preset(name: str) -> Values:
    return tomllib.loads((PRESETS / name).read_text("utf-8"))


def _with_finetune_preset(values: Values, path: Path | None) -> Values:
    """``values`` over what ``finetune.preset`` names."""
    section = values.get("finetune", {})
    name = section.get("preset", "") if isinstance(section, dict) else ""
    known = preset_names("finetune")
    if name in known:
        return _merge({"finetune": _read_preset(f"finetune/{name}.toml")}, values)
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
        raise ConfigError(f"'{name}' is not a section", path=path, cure=f"Write [{name}] and its keys below.")
    hints = get_type_hints(kind, include_extras=True)
    _known(values, hints, path, f"key in [{name}]")
    return kind(**{key: read_value(hints[key], value, f"{name}.{key}", path) for key, value in values.items()})
