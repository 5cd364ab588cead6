"""Quantities, dates, numbers and coordinates as templates give them: what such a template writes into the sentence.

Each takes the positional and the named arguments of a template (templates.py).
"""

import re

from realm.corpus.wiki.elements import APART
from realm.text.months import FULL_MONTHS

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


def height(positional: list[str], named: dict[str, str]) -> str:
    """German: ``{{Höhe|115|DE-NHN}}``."""
    return f"{positional[0]} m" if positional else ""


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


def dash_year(positional: list[str], named: dict[str, str]) -> str:
    return "–".join(positional[:2])
