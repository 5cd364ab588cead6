"""The few templates that carry prose or values inside sentences; every other template is dropped.

Names are those of large Wikipedias. A writer gets the positional and the named arguments, already cleaned of nested brackets.
"""

import re
import tomllib
from collections.abc import Callable
from importlib.resources import files

from realm.corpus.wiki.values import as_of, century, convert, coordinates, dash_year, date, fraction, grouped, height, hour, unit, value

Arguments = tuple[list[str], dict[str, str]]
Writer = Callable[[list[str], dict[str, str]], str]

_NAMED = re.compile(r"\s*([\w .\-]{1,40}?)\s*=(.*)", re.DOTALL)
# French: {{XXe siècle}}, {{1re}}, {{84e|congrès}}.
_ORDINAL = re.compile(r"(?:[ivxl]+e|ier) siècle|\d{1,3}(?:e|re|er)|[ivxl]{1,7}e|i(?:er|re)")
# {{USA}}: a flag and the country's name, which is not known here; the code stands for it.
_COUNTRY = re.compile(r"[A-Z]{3}")
_ACCIDENTALS = {"flat": "♭", "sharp": "♯", "natural": "♮"}
_NO_COUNTRIES = frozenset(["TOC", "CLR", "KIA", "WIA", "MIA", "POW", "NPO", "FAC"])


def template_writer(name: str) -> Callable[[str], str] | None:
    """What writes the template of this name, given its rendered content; None where it is to be dropped."""
    title = name.replace("_", " ")
    name = title.lower()
    writer = _WRITERS.get(name)
    if writer is None and ":" in name:
        name, _, _ = name.partition(":")
        function = _FUNCTIONS.get(name.strip())
        return None if function is None else lambda content: function(content.partition(":")[2].partition("|")[0].strip())
    if writer is None and name.startswith(("lang-", "vol-", "link-")):  # lang-fr; the Latgalian name of the same; a link to another wiki
        writer = _argument(0)
    if writer is None and _ORDINAL.fullmatch(name):
        writer = _ordinal(title)
    if writer is None and _COUNTRY.fullmatch(title) and title not in _NO_COUNTRIES:
        return lambda content: "" if "|" in content else title
    return None if writer is None else lambda content: writer(*_arguments(content))


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


def _text(text: str) -> Writer:
    return lambda positional, named: text


def _before(prefix: str) -> Writer:
    return lambda positional, named: prefix + (positional[0] if positional else "")


def _joined(separator: str) -> Writer:
    return lambda positional, named: separator.join(part for part in positional if part)


def _nihongo(positional: list[str], named: dict[str, str]) -> str:
    first, *rest = [part for part in positional if part] or [""]
    return f"{first} ({', '.join(rest[:2])})" if rest else first


def _ordinal(name: str) -> Writer:
    return lambda positional, named: " ".join([name, *positional[:1]])


def _by_name(names: str, writer: Writer) -> dict[str, Writer]:
    return {name.strip(): writer for name in names.split(",")}


def _listed_writers() -> dict[str, Writer]:
    """The writers of ``templates.toml``."""
    tables = tomllib.loads((files("realm.corpus.wiki") / "templates.toml").read_text("utf-8"))
    writers: dict[str, Writer] = {}
    for text, names in tables["text"].items():
        writers |= _by_name(names, _text(text))
    for prefix, names in tables["before"].items():
        writers |= _by_name(names, _before(prefix))
    for place, names in tables["argument"].items():
        number, *named = place.split()
        writers |= _by_name(names, _argument(int(number), *named))
    return writers


_WRITERS: dict[str, Writer] = {
    **_listed_writers(),
    **_by_name("sup", lambda positional, named: f"<sup>{positional[0]}</sup>" if positional else ""),
    **_by_name("sub", lambda positional, named: f"<sub>{positional[0]}</sub>" if positional else ""),
    **_by_name("incise", lambda positional, named: f"– {positional[0]} –" if positional else ""),
    **_by_name('"', lambda positional, named: f"„{positional[0]}“" if positional else ""),
    **_by_name("coord,coordinates", coordinates),
    **_by_name("höhe", height),
    # {{souverain2|Joseph II (empereur)}}: a title without what tells it from others.
    **_by_name("souverain,souverain2,souverain-", lambda positional, named: "".join(positional[:1]).partition(" (")[0]),
    **_by_name("convert,cvt,conv", convert),
    **_by_name("unité,unit,maßeinheit", unit),
    **_by_name("start date,end date,film date,start-date,date,dts,birth date,death date,birth-date,death-date,start date and age", date),
    **_by_name("birth date and age,bda,birth year,dob", date),
    **_by_name("date-,date de naissance,date de décès,naissance,décès,date de naissance-,date de décès-", date),
    **_by_name("as of,asof", as_of),
    **_by_name("nombre,tmp,currency,format price", _joined(" ")),
    **_by_name("gaps,chem", _joined("")),
    **_by_name("heure", hour),
    **_by_name("dash year", dash_year),
    **_by_name("music", lambda positional, named: _ACCIDENTALS.get("".join(positional[:1]).lower(), "")),
    **_by_name(
        "bibleref,bibleverse,bibleref2,oldstyledate,oldstyledatedy,ship,barca,sclass,sclass2,sortname,hnd",
        lambda positional, named: " ".join(positional[:2]),
    ),
    **_by_name("frac,sfrac,fraction,fract", fraction),
    **_by_name("nihongo,nihongo2,nihongo3", _nihongo),
    **_by_name("val", value),
    **_by_name("s,s-,sp,s mini,siècle", century),
}

_FUNCTIONS: dict[str, Callable[[str], str]] = {
    "formatnum": grouped,
    "lc": str.lower,
    "uc": str.upper,
    "ucfirst": lambda text: text[:1].upper() + text[1:],
    "lcfirst": lambda text: text[:1].lower() + text[1:],
}
