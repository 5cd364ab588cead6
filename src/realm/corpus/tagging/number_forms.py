"""How numbers and quantities are written, in digits and in words, and which digits are only labels ("chapter 5", "Boeing 747")."""

import re

import regex

from realm.corpus.tagging.spans import TaggedSpan

# Atomic: half a number is no number, and there is nothing to try again.
_NUMBER = r"(?>(?:\d{1,3}(?:,\d{3})++|\d{1,3}(?:[ \u00a0\u202f]\d{3})++(?!\s\d)|\d++)(?:\.\d++)?)"
_MAGNITUDE = (
    r"(?:hundred|thousand|million|billion|trillion|dozen|lakh|crore"
    r"|Millionen|Milliarden|millions|milliards|millones|milhões|milioni|miliardi)"
)
_LENGTHS = [
    stem + ending
    for stem in ("kilomet", "centimet", "millimet", "met") for ending in ("re", "res", "er", "ers")
] + ["mile", "miles", "yard", "yards", "foot", "feet", "inch", "inches", "light-years"]  # fmt: skip
_UNIT_WORDS = """kilogram kilograms milligrams gram grams tonne tonnes ton tons pound pounds ounce ounces acre acres hectare hectares
    liter liters litre litres milliliters millilitres gallon gallons barrel barrels watt watts kilowatts megawatts gigawatts volts hertz
    kilohertz megahertz gigahertz bytes kilobytes megabytes gigabytes terabytes knots horsepower carat carats calories pixels degrees
    dollar dollars cents euro euros Euro Euros pence yen yuan rupee rupees ruble rubles rouble roubles franc francs peso pesos
    second seconds minute minutes hour hours day days week weeks month months year years decade decades century centuries
    km km/h km/s km² km2 km³ kmh m m/s m/s² m² m2 m³ cm cm² cm³ mm nm µm μm ha kg mg µg μg g lb lbs oz ft yd mi mph kph l L ml mL dl cl hl
    kW kWh MW MWh GW GWh TW TWh W kV mV V Hz kHz MHz GHz J kJ MJ kcal Pa hPa kPa MPa bar psi dB eV keV MeV GeV kN hp bhp rpm
    night nights Stunden Tage Tagen Wochen Monate Jahre Jahren Minuten Sekunden Metern Kilometern Prozent
    heures jours semaines mois ans années mètres kilomètres horas días semanas meses años metros kilómetros
    dias anos quilômetros quilómetros giorni settimane mesi anni metri chilometri
    kB KB MB GB TB PB kbit/s Mbit/s Gbit/s kbps Mbps Gbps ppm hr hrs min mins ms AU ly fps dpi px °C °F K"""
# Written out as a set, which is looked up, because a pattern of two hundred branches would try one after the other.
UNITS = [
    *_LENGTHS, *(f"{kind} {length}" for kind in ("square", "cubic", "nautical") for length in _LENGTHS),
    *_UNIT_WORDS.split(),
    "metric tons", "metric tonnes", "sq mi", "sq km", "sq ft", "sq m", "pounds sterling", "degrees Celsius", "degrees Fahrenheit",
    "percentage points", "US dollars", "U.S. dollars", "Australian dollars", "Canadian dollars", "° C", "° F",
]  # fmt: skip
_PER = (
    r"(?:\sper\s(?:second|minute|hour|day|week|month|year|capita|person|gallon"
    r"|lit(?:re|er)|(?:square|cubic)\s(?:mile|(?:kilo)?met(?:re|er)))(?!\p{L}))?"
)
_UNIT = rf"\L<units>(?![\p{{L}}\p{{N}}]){_PER}"
_SMALLER = r"(?:\s\d{1,2}\s?(?:in|inches|oz|ounces)(?!\p{L}))?"
_PERCENT = r"\s?%|\sper\s?cent(?!\p{L})|\spct(?!\p{L})"
_CURRENCY = r"(?:(?:US|AU?|CA?|HK|NZ)?\$|[£€¥₹₩₽])\s?|(?:USD|EUR|GBP|CHF)\s|Rs\.?\s"
_SHORT_MAGNITUDE = r"(?:bn|mn|tn|[mkMBK])(?!\p{L})"
_HYPHENED = (
    r"(?:inch|foot|mile|yard|met(?:re|er)|kilomet(?:re|er)|gallon|pound|ton|tonne|mm|cm|km|m"
    r"|second|minute|hour|day|week|month|year(?:-olds?)?)(?![\p{L}-])"
)

QUANTITY = (
    rf"{_NUMBER}(?=[\s%°–-]|\p{{L}})(?:[–-]{_NUMBER})?"
    rf"(?:{_PERCENT}|\s{_MAGNITUDE}(?!\p{{L}})(?:\s{_UNIT})?|\s?{_UNIT}{_SMALLER}|-{_HYPHENED})"
)
# Quantities that begin with a currency or a sign.
LED_QUANTITY = rf"(?:{_CURRENCY}){_NUMBER}(?:\s?{_SHORT_MAGNITUDE}|\s{_MAGNITUDE}(?!\p{{L}}))?|[−-]{QUANTITY}"
_STREET = r"(?:Street|Avenue|Road|Lane|Drive|Boulevard|Square|Place|Terrace|St\.|Ave\.|Rd\.|Blvd\.)"
NO_STREET = rf"(?!\s(?:\p{{Lu}}\p{{L}}+\s){{0,2}}{_STREET})"
# The number of a chess move: "34... Qxh2", "1. e4".
_NO_MOVE = r"(?!\.(?:\.\.)?\s?(?:[KQRBN]?[a-h1-8]?x?[a-h][1-8]|O-O)(?![\p{L}\p{N}]))"
# A plain number stands alone: no further digits beside it, no leading zero, no long run of digits.
PLAIN = rf"(?<!\p{{N}}\s)(?:\d{{1,3}}(?:st|nd|rd|th)|(?!0\d)(?!\d{{7}}){_NUMBER}(?!\s?\p{{N}})(?!\]){_NO_MOVE})"
# What may stand before the first digit of a quantity; read backwards.
BEFORE = rf"{_CURRENCY}|(?<![^\s(])[−-]"

# Words whose number names something and counts nothing.
_LABEL_WORDS = """act apartment appendix area art article asteroid book box building bus category channel chapter class clause
    code column disc disk district division edition episode eq equation error exercise exhibit exit fig figs
    figure figures flat flight floor footnote gate grade group highway id isbn issn issue item kapitel lane
    layer level line lines lot mark model no nos note nr number op opus p page pages para paragraph part phase
    phone pin plate platform point port pp problem psalm question release resolution room route row rule scene
    season section sector seite series sheet signal size slide sonnet square stage status step suite table tel
    telephone track type unit v ver verse version vol vols volume ward zip zone §"""
_LABELS = frozenset(_LABEL_WORDS.split())
# Those of them whose number is no year even where it could be one. ("Act 1911" holds a year.)
_NEVER_YEARS = frozenset(
    ["asteroid", "box", "flight", "isbn", "no", "nr", "number", "p", "page", "pages", "pp", "resolution", "rfc", "room"]
)
# Capitalised words at the start of a sentence after which a number counts.
_OPENING_WORDS = """about above after all almost among an and another around as at before below between both but by despite during each
    every exactly few for from had has have here if in including it its just less like many more most nearly no of on only
    or other our out over per since so some still such than that the their then there these they this those to total under
    until up was we were when where while with within"""
_OPENERS = frozenset(_OPENING_WORDS.split())
_WORD_BEFORE = re.compile(r"(?:^|[\s\"“‘'(\[—–])([^\s\"“‘'(\[—–]+)\s$")


def is_label(text: str, start: int, end: int) -> bool:
    """Whether the plain number ``text[start:end]`` names something: a chapter, a product, a list item, a reference."""
    following = text[end : end + 1]
    if start == 0 and following in (".", ")") and end < len(text) - 1:
        return True
    before = text[start - 1 : start]
    if before in ("[", "(") and following in ("]", ")", ",") and end - start < 4:
        return True
    if before != " ":
        return False
    match = _WORD_BEFORE.search(text, max(0, start - 40), start)
    if match is None:
        return False
    word = match.group(1)
    small = word.rstrip(".").lower()
    if small in _LABELS:
        return True
    if word == small or word.islower():
        return False
    return match.start(1) > 1 or not (small in _OPENERS or small.endswith(("ly", "ed")))


def is_never_year(text: str, start: int) -> bool:
    """Whether the word before ``start`` says that a number from 1000 to 2099 there is no year: "PO Box 1234"."""
    word = text[text.rfind(" ", 0, max(0, start - 1)) + 1 : start]
    return word[-1:] == " " and word[:-1].rstrip(".").lower() in _NEVER_YEARS


_ONES = r"[Oo]ne|[Tt]wo|[Tt]hree|[Ff]our|[Ff]ive|[Ss]ix|[Ss]even|[Ee]ight|[Nn]ine"
_TEENS = r"[Ee]leven|[Tt]welve|(?:[Tt]hir|[Ff]our|[Ff]if|[Ss]ix|[Ss]even|[Ee]igh|[Nn]ine)teen"
_TENS = r"(?:[Tt]wen|[Tt]hir|[Ff]or|[Ff]if|[Ss]ix|[Ss]even|[Ee]igh|[Nn]ine)ty"
_BELOW_100 = rf"(?:(?:{_TENS})(?:[-\s](?:{_ONES}))?|{_TEENS}|[Tt]en|{_ONES})"
_BELOW_1000 = rf"(?:{_BELOW_100}\shundred(?:\s(?:and\s)?{_BELOW_100})?|{_BELOW_100})"
_SPELLED = rf"{_BELOW_1000}(?:\s(?:thousand|million|billion|trillion|dozen)(?:,?\s(?:and\s)?{_BELOW_1000})?)*+"
_ORDINALS = (
    r"(?:twenty-)?(?:[Ff]irst|[Ss]econd|[Tt]hird)|[Ff]ourth|[Ff]ifth|[Ss]ixth|[Ss]eventh|[Ee]ighth|[Nn]inth|[Tt]enth|[Ee]leventh|[Tt]welfth"
    r"|(?:[Tt]hir|[Ff]our|[Ff]if|[Ss]ix|[Ss]even|[Ee]igh|[Nn]ine)teenth|[Tt]wentieth"
)
_PART = r"(?:half|third|quarter|fifth|sixth|seventh|eighth|ninth|tenth)"
_FRACTION = (
    rf"(?:[Oo]ne(?:-{_PART}|\s{_PART}(?=\sof\s|[,.;)]))|(?:[Tt]wo|[Tt]hree|[Ff]our|[Ff]ive|[Ss]even|[Nn]ine)[-\s](?:halves|{_PART}s))"
)
_WORDS = regex.compile(
    rf"(?<![\p{{L}}\p{{N}}\-_])(?:(?P<date>(?:{_ORDINALS})[\s-](?:centur(?:y|ies)|millenni(?:um|a))(?:\s(?:BCE|BC|CE|AD))?)"
    rf"|(?P<fraction>{_FRACTION})|(?P<number>{_SPELLED})(?P<unit>\s{_UNIT}|\spercent|\sper\scent)?)(?![\p{{L}}\p{{N}}_])(?!-\p{{L}})",
    units=UNITS,
)
# Where such a span may begin: a word's edge and the beginning of a number. Cheap to find, because no whole words are tried.
_HINT = re.compile(
    r"[ (\[\"“‘'—–-](?:[tT](?:w(?:o[ -]|el|en)|h(?:ree[ -]|ir)|en )|[fF](?:our[ t-]|i(?:ve[ -]|f|rst[ -][cm])|or)|[sS](?:ix[ t]|even|ec)"
    r"|[eE](?:ight|lev)|[nN]in|[oO]ne[ -][htmbqf])"
)
_ALONE = re.compile(r"(?:[Oo]ne|[Tt]wo|[Tt]hree|[Ff]our|[Ff]ive|[Ss]ix|[Ss]even|[Ee]ight|[Nn]ine|[Tt]en)$")


def spelled(text: str) -> list[TaggedSpan]:
    """Centuries and numbers written in words: from eleven on, or with a unit from two on; in order."""
    spans: list[TaggedSpan] = []
    for hint in _HINT.finditer(" " + text):
        match = _WORDS.match(text, hint.start())  # one further than the edge, one less than in the text
        if match is None or (spans and match.start() < spans[-1].end):
            continue
        if match["date"]:
            spans.append(TaggedSpan(match.start(), match.end(), "date"))
        elif match["fraction"] or _ALONE.match(match["number"]) is None or (match["unit"] and match["number"].lower() != "one"):
            spans.append(TaggedSpan(match.start(), match.end(), "number"))
    return spans
