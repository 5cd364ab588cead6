"""How numbers and quantities are written, in digits and in words, and which digits are only labels ("chapter 5", "Boeing 747")."""

import re

import regex

from realm.corpus.tagging import TaggedSpan

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?!\s\d)|\d+)(?:\.\d+)?"
_MAGNITUDE = r"(?:hundred|thousand|million|billion|trillion|dozen|lakh|crore)"
_LENGTH = r"kilomet(?:re|er)|centimet(?:re|er)|millimet(?:re|er)|met(?:re|er)|mile|yard|foot|feet|inche?|light-year"
_WORD_UNITS = (
    rf"(?:(?:square|cubic|nautical)\s)?(?:{_LENGTH})s?|kilograms?|milligrams?|grams?|tonnes?|tons?|pounds(?:\ssterling)?|ounces?|acres?|hectares?"
    r"|(?:milli)?lit(?:re|er)s?|gallons?|barrels?|(?:kilo|mega|giga)?watts?|volts?|(?:kilo|mega|giga)hertz|(?:kilo|mega|giga|tera)?bytes"
    r"|knots|horsepower|carats?|calories|pixels|degrees(?:\s(?:Celsius|Fahrenheit))?|percentage\spoints"
    r"|(?:US\s)?dollars?|cents|[Ee]uros?|pence|yen|yuan|rupees?|rou?bles?|francs?|pesos?"
)
_DURATIONS = r"(?:second|minute|hour|day|week|month|year|decade)s|hour|day|week|month|year|centuries"
_SHORT_UNITS = (
    r"km/h|km²|km2|kmh?|m(?:/s²?|²|2|³)?|cm³?|cm²|mm|nm|µm|μm|ha|kg|mg|µg|μg|g|lbs?|oz|ft|yd|mi|mph|kph|sq\s(?:mi|km|ft|m)|[mdc]?[lL]|hl"
    r"|kWh?|MWh?|GWh?|TWh?|W|kV|mV|V|[kMG]?Hz|[kM]?J|kcal|[hkM]?Pa|bar|psi|dB|[kMG]?eV|kN|hp|bhp|rpm|[kKMGTP]B|[kMG]bit/s|[kMG]bps|ppm"
    r"|hrs?|mins?|ms|AU|ly|fps|dpi|px|°\s?[CF]|K"
)
_UNIT = rf"(?:{_WORD_UNITS}|{_DURATIONS}|{_SHORT_UNITS})(?![\p{{L}}\p{{N}}])"
_INCHES = r"(?:\s\d{1,2}\s?(?:in|inches)(?!\p{L}))?"
_PERCENT = r"\s?%|\sper\s?cent(?!\p{L})|\spct(?!\p{L})"
_CURRENCY = r"(?:(?:US|AU?|CA?|HK|NZ)?\$|[£€¥₹₩₽])\s?|(?:USD|EUR|GBP|CHF)\s|Rs\.?\s"
_SHORT_MAGNITUDE = r"(?:bn|mn|tn|[mkMBK])(?!\p{L})"
_HYPHENED = r"(?:inch|foot|mile|yard|met(?:re|er)|kilomet(?:re|er)|gallon|pound|ton|tonne|mm|cm|km|m)(?![\p{L}-])"

QUANTITY = "|".join(
    [
        rf"(?:{_CURRENCY}){_NUMBER}(?:\s?{_SHORT_MAGNITUDE}|\s{_MAGNITUDE}(?!\p{{L}}))?",
        rf"[−-]?{_NUMBER}(?:[–-]{_NUMBER})?(?:{_PERCENT}|\s?{_UNIT}{_INCHES}|\s{_MAGNITUDE}(?!\p{{L}})(?:\s{_UNIT})?)",
        rf"{_NUMBER}-{_HYPHENED}",
    ]
)
_STREET = r"(?:Street|Avenue|Road|Lane|Drive|Boulevard|Square|Place|Terrace|St\.|Ave\.|Rd\.|Blvd\.)"
NO_STREET = rf"(?!\s(?:\p{{Lu}}\p{{L}}+\s){{0,2}}{_STREET})"
# A plain number stands alone: no further digits beside it, no leading zero, no long run of digits.
PLAIN = rf"(?<!\p{{N}}\s)(?:\d{{1,3}}(?:st|nd|rd|th)|(?!0\d)(?!\d{{7}}){_NUMBER}(?!\s?\p{{N}})(?!\]))"
# What may stand before the first digit of a quantity; read backwards.
BEFORE = rf"{_CURRENCY}|(?<![^\s(])[−-]"

# Words whose number names something and counts nothing.
_LABELS = frozenset(
    """act apartment appendix area art article book box building bus category channel chapter class clause code column disc disk district
    division edition eq equation error episode exercise exhibit exit fig figs figure figures flat flight floor footnote gate grade group
    highway id isbn issn issue item kapitel lane layer level line lines lot mark model nr no nos note number op opus page pages para
    paragraph part phase phone pin platform plate point port pp p problem question release room route row rule scene season section
    sector seite series sheet signal size slide square stage status step suite table tel telephone track type unit v ver verse version vol vols
    volume ward zip zone §""".split()
)
# Capitalised words at the start of a sentence after which a number counts.
_OPENERS = frozenset(
    """about above after all almost among an and another around as at before below between both but by despite during each every exactly
    few for from had has have here if in including it its just less like many more most nearly no of on only or other our out over per
    since so some still such than that the their then there these they this those to total under until up was we were when where while
    with within""".split()
)
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
_WORDS = regex.compile(
    rf"(?<![\p{{L}}\p{{N}}\-_])(?:(?P<date>(?:{_ORDINALS})[\s-]centur(?:y|ies)(?:\s(?:BCE|BC|CE|AD))?)"
    rf"|(?P<number>{_SPELLED})(?P<unit>\s{_UNIT}|\spercent|\sper\scent)?)(?![\p{{L}}\p{{N}}_])(?!-\p{{L}})"
)
# A cheap look for any word that such a span begins with.
_HINT = re.compile(r"\b(?:[Tt](?:w|h[ir]|en)|[Ff](?:i|o[ru])|[Ss](?:i[xn]|ev|ec)|[Ee](?:ig|le)|[Nn]in|[Oo]ne )")
_ALONE = re.compile(r"(?:[Oo]ne|[Tt]wo|[Tt]hree|[Ff]our|[Ff]ive|[Ss]ix|[Ss]even|[Ee]ight|[Nn]ine|[Tt]en)$")


def spelled(text: str) -> list[TaggedSpan]:
    """Centuries and numbers written in words: from eleven on, or with a unit from two on; in order."""
    if _HINT.search(text) is None:
        return []
    spans = []
    for match in _WORDS.finditer(text):
        if match["date"]:
            spans.append(TaggedSpan(match.start(), match.end(), "date"))
        elif _ALONE.match(match["number"]) is None or (match["unit"] and match["number"].lower() != "one"):
            spans.append(TaggedSpan(match.start(), match.end(), "number"))
    return spans
