"""The few templates that carry prose or values inside sentences; every other template is dropped.

Names are those of large Wikipedias. A writer gets the positional and the named arguments, already cleaned of nested brackets.
"""

import re
from collections.abc import Callable

from realm.corpus.wiki.values import as_of, century, convert, coordinates, dash_year, date, fraction, grouped, height, hour, unit, value

Arguments = tuple[list[str], dict[str, str]]
Writer = Callable[[list[str], dict[str, str]], str]

_NAMED = re.compile(r"\s*([\w .\-]{1,40}?)\s*=(.*)", re.DOTALL)
# French: {{XXe siècle}}, {{1re}}, {{84e|congrès}}.
_ORDINAL = re.compile(r"(?:[ivxl]+e|ier) siècle|\d{1,3}(?:e|re|er)|[ivxl]{1,7}e|i(?:er|re)")
# {{USA}}: a flag and the country's name, which is not known here; the code stands for it.
_COUNTRY = re.compile(r"[A-Z]{3}")
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


def _bare_title(positional: list[str], named: dict[str, str]) -> str:
    """French ``{{souverain2|Joseph II (empereur)}}``: a title without what tells it from others."""
    return positional[0].partition(" (")[0] if positional else ""


def _first_two(positional: list[str], named: dict[str, str]) -> str:
    return " ".join(positional[:2])


def _nihongo(positional: list[str], named: dict[str, str]) -> str:
    first, *rest = [part for part in positional if part] or [""]
    return f"{first} ({', '.join(rest[:2])})" if rest else first


def _ordinal(name: str) -> Writer:
    return lambda positional, named: " ".join([name, *positional[:1]])


def _accidental(positional: list[str], named: dict[str, str]) -> str:
    return {"flat": "♭", "sharp": "♯", "natural": "♮"}.get(positional[0].lower() if positional else "", "")


def _table(*rows: tuple[str, Writer]) -> dict[str, Writer]:
    return {name.strip(): writer for names, writer in rows for name in names.split(",")}


_WRITERS: dict[str, Writer] = _table(
    (
        "nowrap,nobr,nobreak,j,nowraplinks,small,smaller,big,larger,large,midsize,em,strong,abbr,abbrv,tooltip,math,mvar,var,nobold",
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
    ("ill,interlanguage link,iw,ill-wd2,link-interwiki,red link,link,仮リンク,internal link helper,le,lien-de", _argument(0, "lt")),
    ("tsl", _argument(2)),
    ("sup", lambda positional, named: f"<sup>{positional[0]}</sup>" if positional else ""),
    ("sub", lambda positional, named: f"<sub>{positional[0]}</sub>" if positional else ""),
    ("coord,coordinates", coordinates),
    ("höhe", height),
    ("souverain,souverain2,souverain-", _bare_title),
    ("carbon", _before("C")),
    ("hydrogen", _before("H")),
    ("oxygen", _before("O")),
    ("nitrogen", _before("N")),
    ("us patent", _before("U.S. Patent ")),
    ("convert,cvt,conv", convert),
    ("unité,unit,maßeinheit", unit),
    ("start date,end date,film date,start-date,date,dts,birth date,death date,birth-date,death-date,start date and age", date),
    ("birth date and age,bda,birth year,dob", date),
    ("as of,asof", as_of),
    ("date-,date de naissance,date de décès,naissance,décès,date de naissance-,date de décès-", date),
    ("nombre,tmp,currency,format price", _joined(" ")),
    ("heure", hour),
    ("railgauge,track gauge,vr,latin,x,anglais,allemand,nihongo4,tq2,ipaslink,ipalink,ipablink,nq,script/arabic", _argument(0)),
    ("incise", lambda positional, named: f"– {positional[0]} –" if positional else ""),
    ("née", _before("née ")),
    ("né", _before("né ")),
    ("dash year", dash_year),
    ("music", _accidental),
    ("eqm", _text("⇌")),
    ('-",\'"', _text('"')),
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
    ("mv", _before("MV ")),
    ("uscgc", _before("USCGC ")),
    ("hmas", _before("HMAS ")),
    ("hmcs", _before("HMCS ")),
    ("bibleref,bibleverse,bibleref2,oldstyledate,oldstyledatedy,ship,barca,sclass,sclass2,sortname,hnd", _first_two),
    ("frac,sfrac,fraction,fract", fraction),
    ("nihongo,nihongo2,nihongo3", _nihongo),
    ("zh,zh-cn,ko,ja-hepburn", _argument(0, "t", "s", "c", "hangul")),
    ("val", value),
    ("s,s-,sp,s mini,siècle", century),
    ("gaps,chem", _joined("")),
    ("sort,sorting,resize,en langue,indication de langue", _argument(1)),
    ("e,esp", _before("×10^")),
    ("-1", _text("−1")),
    ("spaces,nbsp,space,spc,thinsp,thin space,hair space,\u00a0,zwsp", _text(" ")),
    ("snd,snds,spaced ndash,spaced en dash,spnd,dash,–", _text(" – ")),
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
    "formatnum": grouped,
    "lc": str.lower,
    "uc": str.upper,
    "ucfirst": lambda text: text[:1].upper() + text[1:],
    "lcfirst": lambda text: text[:1].lower() + text[1:],
}
