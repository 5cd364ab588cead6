"""The few templates that carry prose or values inside sentences; every other template is dropped.

Names are those of large Wikipedias. A writer gets the positional and the named arguments, already cleaned of nested brackets.
"""

import re
from collections.abc import Callable

Arguments = tuple[list[str], dict[str, str]]
Writer = Callable[[list[str], dict[str, str]], str]

_MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"]
_NAMED = re.compile(r"\s*([\w .\-]{1,40}?)\s*=(.*)", re.DOTALL)
# French: {{XXe siècle}}, {{1re}}, {{84e|congrès}}.
_ORDINAL = re.compile(r"(?:[ivxl]+e|ier) siècle|\d{1,3}(?:e|re|er)|[ivxl]{1,7}e")
_UNITS = {"sqkm": "km²", "sqmi": "sq mi", "C": "°C", "F": "°F", "sqft": "sq ft", "m2": "m²", "km2": "km²", "km²": "km²", "m²": "m²"}
_RANGES = {"to": " to ", "-": "–", "–": "–", "and": " and ", "or": " or ", "x": " × ", "by": " by ", "x ": " × ", "to(-)": " to "}


def template_writer(name: str) -> Callable[[str], str] | None:
    """What writes the template of this name, given its rendered content; None where it is to be dropped."""
    title = name.replace("_", " ")
    name = title.lower()
    writer = _WRITERS.get(name)
    if writer is None and ":" in name:
        name, _, _ = name.partition(":")
        function = _FUNCTIONS.get(name.strip())
        return None if function is None else lambda content: function(content.partition(":")[2].partition("|")[0].strip())
    if writer is None and name.startswith(("lang-", "vol-")):  # lang-fr; the Latgalian name of the same
        writer = _argument(0)
    if writer is None and _ORDINAL.fullmatch(name):
        writer = _ordinal(title)
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


def _convert(positional: list[str], named: dict[str, str]) -> str:
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


def _unit(positional: list[str], named: dict[str, str]) -> str:
    """French ``{{unité|892|km|2}}``: units with their powers."""
    return " ".join(positional[:2]) + "".join(part.replace("2", "²").replace("3", "³") for part in positional[2:3] if part in ("2", "3"))


def _date(positional: list[str], named: dict[str, str]) -> str:
    """Year, month and day as numbers, written out: 5 May 2001, or May 5, 2001 with ``mf``."""
    if not all(part.isdigit() for part in positional[:3] if part):  # in words, as in French: 11|novembre|1866
        return " ".join(part for part in positional[:3] if part)
    numbers = [part for part in positional[:3] if part]
    if not numbers or (len(numbers) > 1 and not 1 <= int(numbers[1]) <= 12):
        return positional[0] if positional else ""
    if len(numbers) == 1:
        return numbers[0]
    month = _MONTHS[int(numbers[1]) - 1]
    if len(numbers) == 2:
        return f"{month} {numbers[0]}"
    day = str(int(numbers[2]))
    return f"{month} {day}, {numbers[0]}" if named.get("mf", "n")[:1] == "y" else f"{day} {month} {numbers[0]}"


def _as_of(positional: list[str], named: dict[str, str]) -> str:
    since = "since" in named
    words = ("Since " if since else "As of ") if named.get("lc", "n")[:1] != "y" else ("since " if since else "as of ")
    return named.get("alt") or words + _date(positional, named)


def _fraction(positional: list[str], named: dict[str, str]) -> str:
    match positional:
        case [whole, above, below, *_]:
            return f"{whole} {above}/{below}"
        case [above, below]:
            return f"{above}/{below}"
    return f"1/{positional[0]}" if positional else "/"


def _first_two(positional: list[str], named: dict[str, str]) -> str:
    return " ".join(positional[:2])


def _nihongo(positional: list[str], named: dict[str, str]) -> str:
    first, *rest = [part for part in positional if part] or [""]
    return f"{first} ({', '.join(rest[:2])})" if rest else first


def _value(positional: list[str], named: dict[str, str]) -> str:
    power = f" × 10^{named['e']}" if named.get("e") else ""
    unit = named.get("u") or named.get("ul") or ""
    return (positional[0] if positional else "") + power + (f" {unit}" if unit else "")


def _century(positional: list[str], named: dict[str, str]) -> str:
    """French: ``{{s|XIX|e}}``."""
    return "".join(positional[:2]) + " siècle" if positional else ""


def _ordinal(name: str) -> Writer:
    return lambda positional, named: " ".join([name, *positional[:1]])


def _dash_year(positional: list[str], named: dict[str, str]) -> str:
    return "–".join(positional[:2])


def _accidental(positional: list[str], named: dict[str, str]) -> str:
    return {"flat": "♭", "sharp": "♯", "natural": "♮"}.get(positional[0].lower() if positional else "", "")


def _hour(positional: list[str], named: dict[str, str]) -> str:
    return " h ".join(part for part in positional[:2] if part) + (" h" if len(positional) == 1 else "")


def _grouped(number: str) -> str:
    """``{{formatnum:1234567}}``: thousands grouped."""
    plain = number.replace(",", "")
    return f"{int(plain):,}" if plain.isascii() and plain.isdigit() and len(plain) < 40 else number


def _table(*rows: tuple[str, Writer]) -> dict[str, Writer]:
    return {name.strip(): writer for names, writer in rows for name in names.split(",")}


_WRITERS: dict[str, Writer] = _table(
    (
        "nowrap,nobr,nobreak,j,nowraplinks,small,smaller,big,larger,em,strong,sup,sub,abbr,abbrv,tooltip,math,mvar,var,nobold",
        _argument(0, "1"),
    ),
    ("noitalic,normal,italics,bold,smallcaps,sc,smallcaps2,strikethrough,underline,sic,as written,not a typo,proper name", _argument(0)),
    ("flag,flagcountry,flagu,visible anchor,vanchor,linktext,keypress,tq,angle bracket,bracket,pad,sortname first,angbr", _argument(0)),
    (
        "quote,blockquote,cquote,quotation,centered pull quote,rquote,quote box,zitat,cita,citation bloc,цитата",
        _argument(0, "text", "quote"),
    ),
    ("citation,« »,guil,guillemets,lien,unité/2", _argument(0, "fr", "texte")),
    ("lang,transl,transliteration,langx,langue,lang-x,citation étrangère,foreign,script,rtl-lang,lang-rtl", _argument(1, "text")),
    ("ill,interlanguage link,iw,ill-wd2,link-interwiki,red link,link", _argument(0, "lt")),
    ("convert,cvt,conv", _convert),
    ("unité,unit,maßeinheit", _unit),
    ("start date,end date,film date,start-date,date,dts,birth date,death date,birth-date,death-date,start date and age", _date),
    ("birth date and age,bda,birth year,dob", _date),
    ("as of,asof", _as_of),
    ("date-,date de naissance,date de décès,naissance,décès,date de naissance-,date de décès-", _date),
    ("nombre,tmp,currency,format price", _joined(" ")),
    ("heure", _hour),
    ("railgauge,track gauge,vr,latin,x,anglais,allemand,nihongo4,tq2", _argument(0)),
    ("en langue,indication de langue", _argument(1)),
    ("incise", lambda positional, named: f"– {positional[0]} –" if positional else ""),
    ("née", _before("née ")),
    ("né", _before("né ")),
    ("dash year", _dash_year),
    ("music", _accidental),
    ("eqm", _text("⇌")),
    ("' \"", _text('&#39;"')),
    ("etc.", _text(", etc.")),
    ('"', lambda positional, named: f"„{positional[0]}“" if positional else ""),
    ("circa,c.,ca.", _before("c. ")),
    ("floruit,fl.", _before("fl. ")),
    ("us$,usd,u.s. dollar", _before("US$")),
    ("gbp,£,pound sterling", _before("£")),
    ("€,eur,euro", _before("€")),
    ("inr,indian rupee", _before("₹")),
    ("a$,aud", _before("A$")),
    ("c$,cad", _before("C$")),
    ("hms", _before("HMS ")),
    ("uss", _before("USS ")),
    ("ss", _before("SS ")),
    ("rms", _before("RMS ")),
    ("ship,barca,sclass,sclass2", _first_two),
    ("frac,sfrac,fraction,fract", _fraction),
    ("nihongo,nihongo2,nihongo3", _nihongo),
    ("zh,zh-cn,ko,ja-hepburn", _argument(0, "t", "s", "c", "hangul")),
    ("val", _value),
    ("s,s-,sp,s mini,siècle", _century),
    ("gaps,chem", _joined("")),
    ("sortname,hnd", _first_two),
    ("sort,sorting", _argument(1)),
    ("e,esp", _before("×10^")),
    ("-1", _text("−1")),
    ("spaces,nbsp,space,spc,thinsp,thin space,hair space,\u00a0,zwsp", _text(" ")),
    ("snd,spaced ndash,spaced en dash,spnd,dash,–", _text(" – ")),
    ("ndash,en dash,endash", _text("–")),
    ("mdash,em dash,mdashb,emdash,—", _text("—")),
    ("!", _text("&#124;")),
    ("=", _text("=")),
    ("'", _text("&#39;")),
    ("'s", _text("&#39;s")),  # never bare: the quotes of italics may stand before it
    ("okina,ʻ", _text("ʻ")),
    ("pi", _text("π")),
    ("times", _text("×")),
    ("dot,middot,·", _text(" · ")),
)

_FUNCTIONS: dict[str, Callable[[str], str]] = {
    "formatnum": _grouped,
    "lc": str.lower,
    "uc": str.upper,
    "ucfirst": lambda text: text[:1].upper() + text[1:],
    "lcfirst": lambda text: text[:1].lower() + text[1:],
}
