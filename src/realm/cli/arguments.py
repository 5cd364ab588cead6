"""Arguments that several verbs share, with their help, and help at the width of the terminal."""

import inspect
import io
import re
import shutil
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO, get_origin, get_type_hints

import tyro

from realm.storage.files import toml_values

UNSAID = ("", "''", "None", "none", "False", "True")  # defaults that mean "not given" or belong to a flag
SHORT_DEFAULT = tyro.conf.arg(help_behavior_hint=lambda default: "" if default in UNSAID else f"(default: {default})")
Word = Annotated[str, SHORT_DEFAULT]
Flag = Annotated[bool, SHORT_DEFAULT]


def helpful(verb: Callable[..., None]) -> Callable[..., None]:
    """``verb`` itself, with help that names only defaults that tell something and wraps at the terminal's width, not at the source's. The
    fields of dataclasses have types of their own for that (:data:`Word`)."""
    verb.__doc__ = re.sub(r"\n {12}(?=\S)", " ", verb.__doc__ or "")
    verb.__annotations__ = {name: Annotated[kind, SHORT_DEFAULT] for name, kind in verb.__annotations__.items() if name != "return"}
    return verb


Run = Annotated[Path, tyro.conf.arg(metavar="RUN", help="a run directory")]
Recipe = Annotated[Path, tyro.conf.arg(metavar="RECIPE")]
Places = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="PLACES")]
Corpus = Annotated[Path, tyro.conf.arg(metavar="CORPUS", help="the corpus directory; that of a run is RUN/corpus")]
Datastore = Annotated[Path, tyro.conf.arg(metavar="DATASTORE", help="a datastore made by realm knn build")]
Text = Annotated[str, tyro.conf.arg(metavar="TEXT")]
Names = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]
Columns = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, SHORT_DEFAULT, tyro.conf.arg(metavar="ROLE=NAME")]
Paths = Annotated[tuple[Path, ...], tyro.conf.UseAppendAction]
Settings = Annotated[
    tuple[str, ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(help="section.key=value over the recipe, such as --set pretrain.steps=100; may be repeated"),
]
Place = Annotated[Path | None, tyro.conf.arg(metavar="PATH")]
"""A path that may be left out."""
Workers = Annotated[int | None, tyro.conf.arg(metavar="INT", help="processes; if not given, one per available core")]
Device = Annotated[str, tyro.conf.arg(help="where the model runs: cpu or cuda")]
Json = Annotated[bool, tyro.conf.arg(help="print one JSON object as the last line")]


def optional_value(metavar: str, *, without: str) -> tyro.constructors.PrimitiveConstructorSpec[str | None]:
    """An option that takes one value or none: None where it is not given, and ``without`` where its value is not."""

    def value(given: list[str]) -> str:
        if len(given) > 1:
            raise ValueError("give one value at most; what is no option stands before it")
        return given[0] if given else without

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"[{metavar}]",
        instance_from_str=value,
        is_instance=lambda value: value is None or isinstance(value, str),
        str_from_instance=lambda value: [value or "none"],
    )


def options_first(verb: Callable[..., Any], arguments: list[str]) -> list[str]:
    """Arguments of a verb with its options before all else, so that they may stand between places and question; as they were where only the
    parser can tell how many values an option takes."""
    named = {name for name, parameter in inspect.signature(verb).parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}
    hints = {f"--{name.replace('_', '-')}": hint for name, hint in get_type_hints(verb, include_extras=True).items() if name in named}
    options, others, rest = [], [], list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            others.append(word)
            continue
        name, equals, _ = word.partition("=")
        count = _values_of(hints.get(name.replace("_", "-")))
        if count is None or (count > len(rest) and not equals):
            return arguments
        options += [word, *(rest.pop(0) for _ in range(0 if equals else count))]
    return options + others


def _values_of(hint: Any) -> int | None:
    """Number of values that an option of this type takes; None where that depends on what follows, or there is no such option."""
    if hint is None:
        return None
    kind, notes = hint.__origin__, hint.__metadata__  # every hint is annotated: ``helpful`` has seen to that
    varies = any(isinstance(note, tyro.constructors.PrimitiveConstructorSpec) for note in notes)
    several = get_origin(kind) is tuple and tyro.conf.UseAppendAction not in notes
    return None if varies or several or is_dataclass(kind) else int(kind is not bool)


def columns(named: tuple[str, ...], *roles: str) -> dict[str, str]:
    """Column names by role, from ``--column ROLE=NAME``. Raises ConfigError: no such role, or no name."""
    from realm.errors import ConfigError

    found = {role: name for role, _, name in (text.partition("=") for text in named)}
    if wrong := [role for role, name in found.items() if role not in roles or not name]:
        raise ConfigError(f"--column {wrong[0]}: no role of a column", cure=f"Write --column ROLE=NAME; roles are: {', '.join(roles)}.")
    return found


def overrides(settings: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """``section.key=value`` as nested values; a value that is no TOML is a string."""
    import tomllib

    from realm.errors import ConfigError

    values: dict[str, dict[str, Any]] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        section, dot, key = name.strip().partition(".")
        if not (equals and dot and section and key):
            raise ConfigError(f"--set {setting}: not a setting", cure="Write --set section.key=value, such as --set pretrain.steps=100.")
        try:
            value = toml_values(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text.strip()
        values.setdefault(section, {})[key] = value
    return values


COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class _Wrapping(io.TextIOBase):
    """Passes text on to ``stream`` with no line longer than ``width``; a terminal stays a terminal."""

    def __init__(self, stream: TextIO, width: int):
        self._stream, self._width = stream, width

    def write(self, text: str) -> int:
        self._stream.write("".join(self._wrapped(line) for line in text.splitlines(keepends=True)))
        return len(text)

    def _wrapped(self, line: str) -> str:
        if len(COLOURS.sub("", line.rstrip("\n"))) <= self._width:
            return line
        usage = COLOURS.sub("", line).startswith("usage:")
        indent = " " * 4 if usage else ""
        if usage:
            line = line.replace(",", ", ")  # the list of verbs is one word
        return textwrap.fill(line, self._width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) + "\n"

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """tyro draws its boxes where this can hold them."""
        return self._stream.encoding


@contextmanager
def wrapped_output() -> Iterator[None]:
    """Wrap what is written to standard output while the block lasts."""
    import sys

    with redirect_stdout(_Wrapping(sys.stdout, shutil.get_terminal_size().columns)):
        yield
