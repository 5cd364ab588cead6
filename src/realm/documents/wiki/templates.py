"""The few templates that carry prose or values inside sentences; every other template is dropped.

Names are those of large Wikipedias. A writer gets the positional and the named arguments, already cleaned of nested brackets."""

import re
import tomllib
from collections.abc import Callable
from importlib.resources import files

from realm.documents.wiki.elements import APART, BREAK, ROW, captioned
from realm.text.words import FULL_MONTHS

_UNITS = {"sqkm": "km²", "sqmi": "sq mi", "C": "°C", "F": "°F", "sqft": "sq ft", "m2": "m²", "km2": "km²", "km²": "km²", "m²": "m²"}
_RANGES = {"to": " to ", "-": "–", "–": "–", "and": " and ", "or": " or ", "x": " × ", "by": " by ", "x ": " × ", "to(-)": " to "}


def convert(positional: list[str], named: dict[str, str]) -> str:
    """``{{convert|10|to|20|km|mi}}``: the values as given, with their unit."""
    if len(positional) < 2:
        return "".join(positional)
    text, at = positional[0], 1
    while at + 1 < len(positional) and positional[at] in _RANGES:
        text += _RANGES[positional[at]] + positional[at + 1]
        at += 2
    if at < len(positional) and re.fullmatch(r"[\d.,]+", positional[at]):  # {{convert|5|ft|6|in}} has its second value later
        at += 1
    unit = positional[at] if at < len(positional) else ""
    text += " " + _UNITS.get(unit, unit)
    if at + 2 < len(positional) and unit in ("ft", "lb", "st", "mi", "yd") and re.fullmatch(r"\d[\d.]*", positional[at + 1]):
        text += f" {positional[at + 1]} {positional[at + 2]}"
    return text


def unit(positional: list[str], named: dict[str, str]) -> str:
    """French ``{{unité|892|km|2}}``: units with their powers."""
    return " ".join(positional[:2]) + "".join(part.replace("2", "²").replace("3", "³") for part in positional[2:3] if part in ("2", "3"))


def date(positional: list[str], named: dict[str, str]) -> str:
    """Year, month and day as numbers, written out: 5 May 2001, or May 5, 2001 with ``mf``."""
    if not all(part.isdigit() for part in positional[:3] if part):  # in words, as in French: 11|novembre|1866
        return " ".join(part for part in positional[:3] if part)
    numbers = [part for part in positional[:3] if part]
    if not numbers or (len(numbers) > 1 and not 1 <= int(numbers[1]) <= 12):
        return positional[0] if positional else ""
    if len(numbers) == 1:
        return numbers[0]
    month = FULL_MONTHS[int(numbers[1]) - 1]
    if len(numbers) == 2:
        return f"{month} {numbers[0]}"
    day = str(int(numbers[2]))
    return f"{month} {day}, {numbers[0]}" if named.get("mf", "n")[:1] == "y" else f"{day} {month} {numbers[0]}"


def as_of(positional: list[str], named: dict[str, str]) -> str:
    since = "since" in named
    words = ("Since " if since else "As of ") if named.get("lc", "n")[:1] != "y" else ("since " if since else "as of ")
    return named.get("alt") or words + date(positional, named)


def fraction(positional: list[str], named: dict[str, str]) -> str:
    match positional:
        case [whole, above, below, *_]:
            return f"{whole} {above}/{below}"
        case [above, below]:
            return f"{APART}{above}/{below}"
    return f"{APART}1/{positional[0]}" if positional else "/"


def coordinates(positional: list[str], named: dict[str, str]) -> str:
    """``{{coord|13|19|N|169|9|W}}`` inside a sentence: 13°19′N 169°9′W. In the margin, with ``display=title``, nothing."""
    if "inline" not in named.get("display", "inline"):
        return ""
    if all(re.fullmatch(r"-?\d+\.\d+", part) for part in positional[:2]):
        return ", ".join(positional[:2])
    text, signs = "", iter("°′″")
    for part in positional[:8]:
        if part in ("N", "S", "E", "W"):
            text, signs = text + part + " ", iter("°′″")
        elif re.fullmatch(r"-?\d+(?:\.\d+)?", part):
            text += part + next(signs, "")
        else:
            break
    return text.strip()


def value(positional: list[str], named: dict[str, str]) -> str:
    power = f" × 10^{named['e']}" if named.get("e") else ""
    unit = named.get("u") or named.get("ul") or ""
    return (positional[0] if positional else "") + power + (f" {unit}" if unit else "")


def century(positional: list[str], named: dict[str, str]) -> str:
    """French: ``{{s|XIX|e}}``, or ``{{s-|XIX}}`` for the same."""
    return positional[0] + (positional[1:] or ["e"])[0] + " siècle" if positional else ""


def hour(positional: list[str], named: dict[str, str]) -> str:
    return " h ".join(part for part in positional[:2] if part) + (" h" if len(positional) == 1 else "")


def grouped(number: str) -> str:
    """``{{formatnum:1234567}}``: thousands grouped."""
    plain = number.replace(",", "")
    return f"{int(plain):,}" if plain.isascii() and plain.isdigit() and len(plain) < 40 else number


def captions(positional: list[str], named: dict[str, str]) -> str:
    """``{{multiple image|image1=a.jpg|caption1=Its weir}}``, ``{{gallery|a.jpg|Its weir}}``: what stands under the pictures."""
    return "".join(map(captioned, [*positional[1::2], *(said for name, said in named.items() if _UNDER_PICTURES.fullmatch(name))]))


Arguments = tuple[list[str], dict[str, str]]
Writer = Callable[[list[str], dict[str, str]], str]

_NAMED = re.compile(r"\s*([\w .\-]{1,40}?)\s*=(.*)", re.DOTALL)
# French: {{XXe siècle}}, {{1re}}, {{84e|congrès}}.
_ORDINAL = re.compile(r"(?:[ivxl]+e|ier) siècle|\d{1,3}(?:e|re|er)|[ivxl]{1,7}e|i(?:er|re)")
_INFOBOX = re.compile(tomllib.loads((files("realm.documents.wiki") / "templates.toml").read_text("utf-8"))["infobox"].strip())
_LOOKS = re.compile(r"image|logo|(?:^|_)(?:map|flag|icon|alt|style|width|size|colou?r|class|zoom|website)(?:_|\d*$)|pushpin|bild|upright")
_UNDER_PICTURES = re.compile(r"(?:caption|header|footer|title)\d*")
_FILE = re.compile(r"\.(?:jpe?g|png|svg|gif|tiff?|ogg|webp)\b", re.IGNORECASE)
# {{USA}}: a flag and the country's name, which is not known here; the code stands for it.
_COUNTRY = re.compile(r"[A-Z]{3}")
_NO_COUNTRIES = frozenset(["TOC", "CLR", "KIA", "WIA", "MIA", "POW", "NPO", "FAC"])


def template_writer(name: str) -> Callable[[str], str] | None:
    """Writer of the template of this name from its rendered content; None where it is to be dropped."""
    title = name.replace("_", " ")
    name = title.lower()
    writer = _WRITERS.get(name)
    if writer is None and _INFOBOX.search(name):
        return infobox
    if writer is None and ":" in name:
        name, _, _ = name.partition(":")
        function = _FUNCTIONS.get(name.strip())
        return None if function is None else lambda content: function(content.partition(":")[2].partition("|")[0].strip())
    if writer is None and name.startswith(("lang-", "vol-", "link-")):  # lang-fr; the Latgalian name of the same; a link to another wiki
        writer = _argument(0)
    if writer is None and _ORDINAL.fullmatch(name):
        writer = _written(_KINDS["numbered"], title)
    if writer is None and _COUNTRY.fullmatch(title) and title not in _NO_COUNTRIES:
        return lambda content: "" if "|" in content else title
    return None if writer is None else lambda content: writer(*_arguments(content))


def infobox(content: str) -> str:
    """The values of an infobox, each behind its name on a line of its own, without pictures and what only says how it looks."""
    named, rows = _arguments(BREAK.sub(", ", content))[1], list[str]()
    naming = {before: after for after in named for before in _of_name(after) if before in named}
    heads = {after: named[before] for before, after in naming.items()}
    for key, value in named.items():
        name = "" if key in naming else heads.get(key, key)
        said = ", ".join(filter(None, (line.strip(f"*#:; {ROW}") for line in value.split("\n"))))
        if name and any(map(str.isalnum, said)) and (name.endswith("caption") or not _LOOKS.search(name)) and not _FILE.search(said):
            rows.append(f"{ROW}{name.replace('_', ' ')}: {said}\n")
    return f"\n\n{''.join(rows)}\n"


def _of_name(key: str) -> list[str]:
    """Keys that may hold the name under which the value of a key is shown: label3 of data3, leader_title of leader_name."""
    if key.startswith("data") and key[4:].isdigit():
        return [f"label{key[4:]}"]
    return [key.replace("name", kind) for kind in ("title", "type")] if "name" in key else []


def _arguments(content: str) -> Arguments:
    positional: list[str] = []
    named: dict[str, str] = {}
    for argument in content.split("|")[1:]:
        match = _NAMED.fullmatch(argument) if "=" in argument else None
        if match and match[1].isdigit():
            named[match[1]] = match[2].strip()
        elif match:
            named[match[1].lower()] = match[2].strip()
        else:
            positional.append(argument.strip())
    for number in range(len(positional) + 1, 10):  # {{quote|1=text}}
        if str(number) not in named:
            break
        positional.append(named[str(number)])
    return positional, named


def _argument(number: int, *names: str) -> Writer:
    """The argument at ``number`` from 0, or the first of the named ones."""

    def write(positional: list[str], named: dict[str, str]) -> str:
        for name in names:
            if named.get(name):
                return named[name]
        return positional[number] if number < len(positional) else ""

    return write


def nihongo(positional: list[str], named: dict[str, str]) -> str:
    first, *rest = [part for part in positional if part] or [""]
    return f"{first} ({', '.join(rest[:2])})" if rest else first


def accidental(positional: list[str], named: dict[str, str]) -> str:
    return {"flat": "♭", "sharp": "♯", "natural": "♮"}.get("".join(positional[:1]).lower(), "")


_OURS = (coordinates, convert, unit, date, as_of, hour, accidental, fraction, nihongo, captions, value, century)
"""Writers that the table calls by their names."""
_KINDS: dict[str, Callable[[str, list[str]], str]] = {
    "text": lambda text, given: text,
    "before": lambda prefix, given: prefix + "".join(given[:1]),
    "around": lambda pattern, given: pattern.format(given[0]) if given else "",
    "between": lambda separator, given: separator.join(filter(None, given)),
    "numbered": lambda name, given: " ".join([name, *given[:1]]),
    "between_two": lambda separator, given: separator.join(given[:2]),
    "until": lambda separator, given: "".join(given[:1]).partition(separator)[0],
}
"""Of a text in the table and what a template is given, what is written."""


def _written(write: Callable[[str, list[str]], str], text: str) -> Writer:
    return lambda positional, named: write(text, positional)


def _by_name(names: str, writer: Writer) -> dict[str, Writer]:
    return {name.strip(): writer for name in names.split(",")}


def _listed_writers() -> dict[str, Writer]:
    tables = tomllib.loads((files("realm.documents.wiki") / "templates.toml").read_text("utf-8"))
    writers: dict[str, Writer] = {}
    for kind, write in _KINDS.items():
        for text, names in tables.get(kind, {}).items():
            writers |= _by_name(names, _written(write, text))
    for place, names in tables["argument"].items():
        number, *named = place.split()
        writers |= _by_name(names, _argument(int(number), *named))
    for writer in _OURS:
        writers |= _by_name(tables["ours"][writer.__name__], writer)
    return writers


_WRITERS = _listed_writers()
_FUNCTIONS: dict[str, Callable[[str], str]] = {
    "formatnum": grouped,
    "lc": str.lower,
    "uc": str.upper,
    "ucfirst": lambda text: text[:1].upper() + text[1:],
    "lcfirst": lambda text: text[:1].lower() + text[1:],
}
