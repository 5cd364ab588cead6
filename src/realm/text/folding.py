"""One spelling of what Unicode and line ends write in several: the form that is searched and read. Texts are shown as they are written.

Accents are composed (NFC); ligatures, full width, fonts and presentation forms become plain letters; a line end inside a sentence is a
space, or nothing behind the hyphen of a word that continues. Raised and lowered figures keep their meaning: 10⁶ is 10^6, CO₂ is CO2, 1½ is
1 1/2. What is printable ASCII on one line is its own form."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import regex

from realm.text import deferred

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}々〆ー"
"""The letters of scripts that put no spaces between words, or glue particles to them, as the inside of a set of a pattern of ``regex``."""
Places = list[tuple[int, int]]
_RAISED, _LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "₀₁₂₃₄₅₆₇₈₉₊₋"
_FRACTION = rf"(?P<fraction>[\u00bc-\u00be\u2150-\u215f\u2189]|[{_RAISED[:10]}]+[/⁄][{_LOWERED[:10]}]+)|(?P<slash>⁄)"
_FIGURES = str.maketrans(_RAISED + _LOWERED, "0123456789+-" * 2)
# Where a form of Unicode may stand for plain letters; the decomposition of a character says whether it does.
_FORMS = (
    "\u00a0\u00b5\u0132\u0133\u017f\u01c4-\u01cc\u01f1-\u01f3\u03d0-\u03d6\u03f0-\u03f5\u2000-\u200a\u202f\u205f\u2100-\u2188\u3000\u3200-\u33ff"
    "\uf900-\ufaff\ufb00-\ufeff\uff01-\uffee\U0001d400-\U0001f2ff\U0002f800-\U0002fa1f"
)
_PLAIN_KINDS = r"\p{dt=wide}\p{dt=narrow}\p{dt=font}\p{dt=initial}\p{dt=medial}\p{dt=final}\p{dt=isolated}\p{dt=square}\p{Zs}"
# One fast search says of nearly every text that it holds nothing of what the slow patterns look for.
_SUSPECT = re.compile(f"[\n\u00ad\u200b\u2010\u2011\u2060\ufeff⁄¼-¾{_RAISED}{_LOWERED}{_FORMS}]")

# Compounds that keep their hyphen at a line end, by their first part or by their last; any other word was cut there.
_FIRST_PARTS = (
    "well|self|ex|half|long|short|high|low|full|hard|old|new|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|north|south|east|west"
)
_LAST_PARTS = (
    "based|born|built|by|free|friendly|in|law|known|led|like|made|old|related|sized|speaking|specific|style|term|time|to|type|up|wide|year"
)
MARGIN = r"(?:(?:>[ \t]?)++|(?://[/!]*+|[#%;]++|--|[!'])[ \t]++)"
"""Marks before a line of quoted mail, or of a comment in a program."""
REMARK = r"(?:@?(?i:rem)|::|dnl|\*>|NB\.|['.]?\\?\"|C(?=[ \t]{2}))"
"""Marks that may be words of a text too: of batch files, BASIC, m4, COBOL, J, manual pages, Vim and Fortran; told by the line before."""
WRAPPED = rf"(?:{MARGIN}|\*[ \t]++(?=[^\W\d]|[\"'(`<])|(?<=(?:\A|\n)[ \t]*{REMARK}[ \t][^\n]*\n[ \t]*){REMARK}[ \t]++)"
"""The same, or the star before a line of a long comment."""
_BREAK = rf"(?<![ \t])[ \t]*+\n[ \t]*+{WRAPPED}?+[ \t]*+"
_UNSPACED = rf"[[{UNSPACED}、，。]--\p{{Hangul}}]"
_LINES = "|".join(
    [
        rf"(?P<apart>(?<=\w)[-‐]{_BREAK}(?=(?:and|or|to|und|oder|et|ou)\b))",
        rf"(?P<kept>(?<=[\p{{L}}\p{{N}}])[-‐]{_BREAK}(?=[\p{{Lu}}\p{{N}}])"
        rf"|(?<=\b(?:{_FIRST_PARTS}|\p{{L}}|\w{{1,20}}-\w{{1,20}}))[-‐]{_BREAK}(?=\p{{Ll}}{{2}})"
        rf"|(?<=\p{{L}})(?<!\b(?i:re|un|mis))[-‐]{_BREAK}(?=(?:{_LAST_PARTS})\b))",
        rf"(?P<cut>(?<=[\p{{L}}\p{{M}}])[-‐]{_BREAK}(?=\p{{Ll}}))",
        rf"(?P<unspaced>(?<={_UNSPACED}){_BREAK}(?={_UNSPACED}))",
        rf"(?P<space>{_BREAK})",
    ]
)
_LINE_ENDS = deferred(_LINES, regex.V1)
_ODDITIES = "|".join(
    [
        _LINES,
        _FRACTION,
        rf"(?P<raised>[{_RAISED}]+)",
        rf"(?P<lowered>[{_LOWERED}]+)",
        r"(?P<invisible>[\u00ad\u200b\u2060\ufeff])",
        "(?P<hyphen>[‐‑])",
        rf"(?P<form>[[{_FORMS}]&&[{_PLAIN_KINDS}[\p{{dt=compat}}&&[\p{{L}}\p{{N}}\p{{So}}]]]][\uff9e\uff9f\p{{M}}]*)",
    ]
)
_COMPOSED = deferred(_ODDITIES, regex.V1)
_DECOMPOSED = deferred(
    rf"{_ODDITIES}|(?P<cluster>[^\s\p{{M}}]\p{{M}}+|[\u1100-\u115f][\u1160-\u11a7][\u11a8-\u11ff]*|\p{{dt=canonical}})", regex.V1
)
_STANDS_FOR = {"cut": "", "unspaced": "", "invisible": "", "space": " ", "apart": "- ", "kept": "-", "hyphen": "-", "slash": "/"}
_SHORT_UNIT = deferred(r"(?<!\p{L})\p{L}{1,2}\Z")
_BARE = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ŧ": "t", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th"})
"""Letters with strokes and double letters, which Unicode does not take apart."""
_ACCENTED = deferred(r"([\p{Latin}\p{Greek}\p{Cyrillic}\p{Arabic}\p{Hebrew}])\p{M}+")
_CLUSTERED = deferred(r"[\p{M}\u200d\p{Emoji_Modifier}]")
_CLUSTERS = deferred(r"\X")


@dataclass(frozen=True)
class Folded:
    """A text in its one spelling, and for each character of that its range in the text as ``written``; None where it is written so."""

    text: str
    ranges: Places | None
    written: str

    def places(self, ranges: Sequence[tuple[int, int]]) -> Places:
        """Ranges of the spelling as ranges of the written text, none of which ends inside of a character that is seen as one."""
        if self.ranges is not None:
            known = [*self.ranges, (len(self.written), len(self.written))]
            ranges = [(known[start][0], known[end - 1][1] if end > start else known[start][0]) for start, end in ranges]
        return _whole_clusters(self.written, ranges)


def folded(text: str) -> str:
    """The one spelling of a text. Idempotent."""
    pattern = _pattern_of(text)
    return text if pattern is None else pattern.sub(_plain, text)


def fold(text: str) -> Folded:
    """The one spelling of a text, and where it is written."""
    pattern = _pattern_of(text)
    if pattern is None:
        return Folded(text, None, text)
    parts: list[str] = []
    ranges: Places = []
    behind = 0
    for match in pattern.finditer(text):
        start, end = match.span()
        plain = _plain(match)
        parts += [text[behind:start], plain]
        ranges += [*((at, at + 1) for at in range(behind, start)), *[(start, end)] * len(plain)]
        behind = end
    ranges += [(at, at + 1) for at in range(behind, len(text))]
    return Folded("".join([*parts, text[behind:]]), ranges, text)


def unbroken(text: str, start: int = 0, end: int | None = None) -> str:
    """A range of a text on one line, as it is written: line ends become spaces, and words that they cut are whole."""
    return _LINE_ENDS.sub(_plain, text[:end], pos=start)[start:] if "\n" in text[start:end] else text[start:end]


def unaccented(text: str) -> str:
    """The folded text without case and without the accents of scripts that are also written without: what sparse search compares."""
    plain = folded(text).casefold().translate(_BARE)
    return plain if plain.isascii() else unicodedata.normalize("NFC", _ACCENTED.sub(r"\1", unicodedata.normalize("NFD", plain)))


def _pattern_of(text: str) -> "regex.Pattern[str] | None":
    """The pattern of what is spelled otherwise; None where the text is its own form."""
    if not unicodedata.is_normalized("NFC", text):
        return _DECOMPOSED
    return _COMPOSED if _SUSPECT.search(text) else None


def _plain(match: "regex.Match[str]") -> str:
    kind, found = str(match.lastgroup), match[0]
    if kind in _STANDS_FOR:
        return _STANDS_FOR[kind]
    if kind in ("form", "cluster"):
        return unicodedata.normalize("NFKC" if kind == "form" else "NFC", found)
    before = match.string[max(0, match.start() - 3) : match.start()]
    if kind == "fraction":
        return " " * before[-1:].isdigit() + unicodedata.normalize("NFKC", found).replace("⁄", "/")
    marked = before[-1:].isdigit() or (kind == "raised" and before[-1:].isalpha() and not _SHORT_UNIT.search(before)) or before[-1:] == ")"
    return ("^" if kind == "raised" else "_") * marked + found.translate(_FIGURES)


def _whole_clusters(text: str, ranges: Sequence[tuple[int, int]]) -> Places:
    """Ranges extended to whole grapheme clusters."""
    if text.isascii() or not _CLUSTERED.search(text):
        return list(ranges)
    clusters = [match.span() for match in _CLUSTERS.finditer(text)]
    border = list(chain.from_iterable([(start, end)] * (end - start) for start, end in clusters))
    border.append((len(text), len(text)))
    return [(border[start][0], border[end - 1][1] if end > start else border[start][0]) for start, end in ranges]
