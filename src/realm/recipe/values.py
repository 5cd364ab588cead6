"""One value of a recipe against the type, choices and range of its field; the kinds of values that several fields take; largest sizes."""

import math
from contextlib import suppress
from operator import ge, gt, le
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Interval

from realm.errors import ConfigError

MAX_WIDTH, MAX_LAYERS = 65_536, 1_024
MAX_PIECES = 65_536
"""Wordpieces of one text."""


RELATIVE_TO_RECIPE = "relative paths count from the recipe's directory"

Count = Annotated[int, Ge(0)]
Positive = Annotated[int, Ge(1)]
Width = Annotated[int, Interval(ge=8, le=MAX_WIDTH)]
Share = Annotated[float, Interval(ge=0, le=1)]
File = Annotated[str, RELATIVE_TO_RECIPE]
FileList = Annotated[tuple[str, ...], RELATIVE_TO_RECIPE]
Files = Annotated[str | tuple[str, ...], RELATIVE_TO_RECIPE]
Published = Literal["last", "best", "better"]


def read_value(hint: Any, value: Any, key: str, path: Path | None) -> Any:
    """``value`` as a field of type ``hint`` holds it: an int serves as a float, a list as a tuple, a path counts from ``path``.

    Raises ConfigError, which names ``key``: another type, none of the choices, not finite or out of range."""
    try:
        found = _fitting(hint, tuple(value) if isinstance(value, list) else value)
    except (TypeError, ValueError) as error:
        outside = isinstance(error, ValueError)
        problem = f"'{key}' {'is' if outside else 'cannot be'} {value!r}"
        raise ConfigError(problem, path=path, cure=f"It {_range(hint) if outside else _kind(hint)}.") from None
    if path is None or RELATIVE_TO_RECIPE not in get_args(hint):
        return found
    return tuple(_absolute(name, path.parent) for name in found) if isinstance(found, tuple) else _absolute(found, path.parent)


RULES = {"gt": gt, "ge": ge, "le": le, "min_length": lambda value, least: len(value) >= least}  # of annotated_types, by attribute


def _fitting(hint: Any, value: Any) -> Any:
    """The value as a field of this type holds it. Raises TypeError: it is of another type; ValueError: out of range."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        value = _fitting(parts[0], value)
        limits = [(holds, getattr(rule, name, None)) for rule in parts[1:] for name, holds in RULES.items()]
        if not all(limit is None or holds(value, limit) for holds, limit in limits):
            raise ValueError
        return value
    if origin in (Union, UnionType):
        for part in parts:
            with suppress(TypeError):
                return _fitting(part, value)
    elif origin is tuple and isinstance(value, tuple):
        return tuple(_fitting(parts[0], one) for one in value)
    elif hint is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    elif type(value) is hint is not float or (origin is Literal and value in parts and type(value) in map(type, parts)):
        return value
    raise TypeError


def _absolute(name: str, base: Path) -> str:
    return str((base / Path(name).expanduser()).resolve()) if name else name


TYPES = {int: "a whole number", float: "a number", bool: "true or false", str: "text", tuple: "a list"}
"""Types of fields, in words."""


def _kind(hint: Any) -> str:
    """In words: the field's choices, or else its type."""
    base = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    parts = (base, *get_args(base))
    choices = [str(choice) for part in parts if get_origin(part) is Literal for choice in get_args(part)]
    if choices:
        return f"is one of: {', '.join(choices + ['true', 'false'] * (bool in parts) + ['a number'] * (float in parts))}"
    return f"is {TYPES.get(base if isinstance(base, type) else get_origin(base), base)}"


def _range(hint: Any) -> str:
    """In words: the range of the field, or of each of its values."""
    base, *rules = get_args(hint)
    if get_origin(base) is tuple:
        return f"is one number or more, and each {_range(get_args(base)[0])}"
    words = {"gt": "above", "ge": "at least", "le": "at most"}
    limits = [f"{words[name]} {limit}" for rule in rules for name in words if (limit := getattr(rule, name, None)) is not None]
    return "is between 0 and 1" if hint == Share else f"is {' and '.join(limits)}"


def named(files: str | tuple[str, ...]) -> tuple[str, ...]:
    """The files that one name or a list of names gives; an empty name is none."""
    return tuple(name for name in ((files,) if isinstance(files, str) else files) if name)
