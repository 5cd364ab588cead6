"""How dates are written: pieces of patterns for dates.py, and the forms of Chinese, Japanese and Korean."""

import regex

from realm.corpus.tagging.spans import TaggedSpan
from realm.text.months import FULL_MONTHS

_SHORT = ["Jan", "Feb", "Mar", "Apr", "Jun", "Jul", "Aug", "Sep", "Sept", "Oct", "Nov", "Dec"]
# German, French, Spanish, Portuguese, Italian, Dutch, Swedish, Danish, Polish,
# Russian. What is another word too needs a day or a year beside it, as all do.
_OTHER_MONTHS = """Januar Jänner Februar März Mai Juni Juli Oktober Dezember
    janvier février mars avril mai juin juillet août septembre octobre novembre décembre
    enero febrero marzo abril mayo junio julio agosto septiembre setiembre octubre noviembre diciembre
    janeiro fevereiro março maio junho julho setembro outubro novembro dezembro
    gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre
    januari februari maart april mei juni juli augustus september oktober november december
    augusti januar februar marts maj august desember
    stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia
    января февраля марта апреля мая июня июля августа сентября октября ноября декабря"""
ENGLISH_MONTHS = [*FULL_MONTHS, *_SHORT, *(f"{month}." for month in _SHORT)]
MONTHS = [*ENGLISH_MONTHS, *_OTHER_MONTHS.split()]
_ENGLISH = r"\L<english>"
_MONTH = r"\L<months>(?![\p{L}\p{M}])"
_WEEKDAY = r"(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|(?:Mon|Tues?|Wed|Thurs?|Thu|Fri|Sat|Sun)\.?)"
_SEASON = r"(?:[Ss]pring|[Ss]ummer|[Aa]utumn|[Ff]all|[Ww]inter)"
_DAY = r"(?:3[01]|[12]\d|0?[1-9])"
_ORDINAL_DAY = rf"{_DAY}(?:st|nd|rd|th|er|º|\.)?"
YEAR = _YEAR = r"(?:1\d{3}|20\d\d)"
# In a date with its day, earlier years are clear too.
_ANY_YEAR = r"(?:1\d{3}|20\d\d|[1-9]\d\d(?!\d|,\d))"
_ERA = r"\s?(?:BCE|BC|CE|AD|B\.C\.|A\.D\.)"
_CENTURY = rf"[\s-](?:centur(?:y|ies)|millenni(?:um|a))(?:{_ERA})?"
_NTH = r"[12]?\d(?:st|nd|rd|th)"
_HOUR = r"(?:1\d|2[0-3]|0?\d)"

_DAY_FIRST = rf"{_ORDINAL_DAY}(?:[–-]{_ORDINAL_DAY})?\s(?:(?:of|de)\s)?{_MONTH}(?:,?\s(?:(?:de|of)\s)?{_ANY_YEAR}(?:{_ERA}|\sгода)?)?"
# Forms that begin with a digit. Tried in this order, so the longer form comes first.
DATE = "|".join(
    [
        _DAY_FIRST,
        r"[12]\d{3}(?P<iso>[-/.])(?:1[0-2]|0?[1-9])(?P=iso)(?:3[01]|[12]\d|0?[1-9])",
        rf"[0-3]?\d(?P<sep>[./-])[0-3]?\d(?P=sep){_YEAR}|\d\d/\d\d/\d\d|{_DAY}-{_ENGLISH}-{_YEAR}",
        rf"{_NTH}(?:(?:\s(?:and|to|or)\s|[–-]){_NTH})?{_CENTURY}",
        r"(?:1\d|20)\d0['’]?s|[1-9]0s",
        rf"(?:\d{{1,2}},\d{{3}}|\d{{1,5}})(?:[–-]\d{{1,4}})?{_ERA}",
        rf"{_HOUR}(?:[:.][0-5]\d)?\s?(?:[ap]\.m\.|[ap]m|[AP]M)|{_HOUR}\so['’]clock",
        r"(?<=\b(?:at|by|until|till|from|around|about|before|after|to)\s)\d:[0-5]\d",
    ]
)
# Forms that begin with a word.
LED_DATE = "|".join(
    [
        rf"{_WEEKDAY},?\s{_DAY_FIRST}",
        rf"(?:{_WEEKDAY},?\s)?{_ENGLISH}\s{_DAY}(?:st|nd|rd|th)?(?:[–-]{_DAY})?(?:,?\s{_YEAR}|,\s{_ANY_YEAR})?",
        rf"{_MONTH},?\s(?:(?:of|de)\s)?{_YEAR}",
        rf"{_SEASON}\s(?:of\s)?{_YEAR}",
        r"(?:AD|A\.D\.)\s\d{1,4}",
        rf"mid-(?:1\d|20)\d0['’]?s|mid-{_YEAR}|['’][1-9]0s",
    ]
)
# What may stand before the first digit of such a form; read backwards.
BEFORE = rf"{_WEEKDAY},?\s(?:{_ENGLISH}\s)?|{_MONTH},?\s(?:(?:of|de)\s)?|{_SEASON}\s(?:of\s)?|(?:AD|A\.D\.)\s|mid-|(?<!\w)['’]"
BARE_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d(?:\s(?:UTC|GMT|CET|[EP][SD]T)(?!\p{L}))?"
# A date with its day on either side of a dash that no spaces set off: "(27 January 1756–5 December 1791)".
_WITH_DAY = rf"(?:{_DAY_FIRST}|{_ENGLISH}\s{_DAY},\s{_ANY_YEAR})(?!\p{{N}})"
BEFORE_DAY = rf"(?=[–—]{_WITH_DAY})"
AFTER_DAY = rf"(?<=\p{{N}}[–—])(?={_WITH_DAY})"
YEAR_RANGE = rf"{_YEAR}[–-](?:{_YEAR}|\d\d)|{_YEAR}/\d\d"

_NUMERALS = "〇零一二三四五六七八九十百千"
_EAST_UNIT = (
    r"公里|千米|公斤|公尺|平方公里|厘米|毫米|米|吨|克|公顷|美元|欧元|人民币|元|円|ドル|ユーロ|キロメートル|キロ|メートル|トン"
    r"|킬로미터|미터|킬로그램|달러|유로|원|km²|km|kg|cm|mm|m"
)
HAN_OR_HANGUL = regex.compile(r"[\p{Han}\p{Hangul}\p{Hiragana}\p{Katakana}]")
_EAST_ASIAN = regex.compile(
    rf"(?<![\p{{Latin}}\p{{M}}\p{{N}}_.,:/\-–#@=\u200c\u200d])(?:(?P<date>"
    r"(?:1\d|20)?\d0(?:年代|년대)"
    rf"|(?:(?:公元前|公元|西元前|西元|紀元前|西暦|明治|大正|昭和|平成|令和|기원전|서기)\s?)?\d{{1,4}}[年년](?:\s?\d{{1,2}}[月월](?:\s?\d{{1,2}}[日号號일])?)?"
    rf"|(?:公元前|公元|明治|大正|昭和|平成|令和)?[{_NUMERALS}元]{{1,4}}年(?:[{_NUMERALS}]{{1,3}}月(?:[{_NUMERALS}]{{1,3}}[日号號])?)"
    rf"|[一二][{_NUMERALS}]{{3}}年"
    r"|\d{1,2}[月월]\s?\d{1,2}[日号號일]"
    r"|(?:(?:公元前|紀元前|기원전)\s?)?\d{1,2}(?:世[纪紀]|세기)(?:\d0年代)?|[一二十]{1,3}世[纪紀]"
    r")"
    rf"|(?P<number>(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)?(?:\s?(?:[%％]|[万萬亿億兆만억조]+(?:{_EAST_UNIT})?|(?:{_EAST_UNIT})))?|百分之[{_NUMERALS}\d]+))"
    r"(?![\p{Latin}\p{M}\p{N}_%°\u200c\u200d]|[.,:/\-–]\p{N}|-\p{Latin})"
)


def east_asian(text: str) -> list[TaggedSpan]:
    """Dates and numbers of a Chinese, Japanese or Korean sentence, in order."""
    return [TaggedSpan(match.start(), match.end(), match.lastgroup or "number") for match in _EAST_ASIAN.finditer(text)]
