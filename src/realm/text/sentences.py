"""Sentence boundaries as code point ranges.

A pattern proposes boundaries. After abbreviations, initials and numbers syntok's rules decide on the words around; syntok itself, which
is slower, is asked about the rest. What ends a passage ends a sentence, a line end inside of one is a
space (lines.py), and scripts that write 。！？ need no space after them."""

import re
from collections.abc import Sequence
from functools import lru_cache

import regex
from syntok import segmenter
from syntok._segmentation_states import State
from syntok.tokenizer import Tokenizer as SyntokTokenizer

from realm.text.folding import WRAPPED
from realm.text.lines import lines_of

_STOPS = ".!?;…。！？｡"
_CJK_STOPS = "。！？｡"
_CLOSERS = "\"'”’»)]}」』）》〉"
# One match is one possible boundary: the terminators and what closes after them, then white space or a letter. It begins with a set of
# characters, which the standard library's engine looks for at many times the rate of a pattern that begins with a condition. Every run is
# possessive and starts only where the run before it ended, so a line of full stops is read once, not once per character.
_PROPOSAL = re.compile(rf"[{_STOPS}](?<![{_STOPS}]{{2}})[{_STOPS}]*+[{re.escape(_CLOSERS)}]*+(?=(?P<gap>\s*+)(?P<next>\S))")
_OPENERS = "\"'“‘«([{"
# After these no sentence begins.
_NEVER_NEXT = frozenset(".!?…,;:-–—)]}%&")
# What may stand before a full stop that surely ends a sentence, unless syntok knows it as an abbreviation: a word of two letters or more
# that is no Roman numeral; a year; a closing quote or bracket after such a word.
_PLAIN_WORD = re.compile(r"(?:.*[\W_])?(?P<core>[^\W\d_]{2,}|(?:1[0-9]|20)\d\d)['’\"”)\]%]*", re.DOTALL)
_MORE_ABBREVIATIONS = frozenset(["approx", "capt", "dept", "feat", "mins", "misc", "mrs", "prof", "secs", "sen", "univ", "vols"])
_COUNTED = frozenset(["ch", "eq", "eqs", "fig", "figs", "lit", "para", "ref", "refs", "sect", "ver", "vol", "art", "abb", "kap", "abs"])
"""Abbreviations of what is numbered."""
_DOUBTFUL = State.abbreviations | State.roman_numerals
# Words on both sides of a full stop that are tokens of syntok's for certain: before it, after another word or at the start of the sentence,
# initials skipped; after it, capitalised, a number or a quote.
_BEFORE = re.compile(
    r"(?:^|(?P<inner>[\w,]) )(?:[A-Z]\. )*(?P<parted>\S*(?:(?<=[^\W_])[-_](?=[^\W\d_])|(?<=[^\W\d_])[-_]))?[^\w\s]*"
    r"(?P<core>[0-9A-Za-z]+(?:\.[0-9A-Za-z]+|(?<=[0-9])[,-][0-9]+)*)(?P<closed>(?:['’]s)?['’\"”)\]%+]*)$"
)
_AFTER = re.compile(r"(?:[A-Z](?:[a-z]+|[A-Z]*)|[0-9]+(?:[,.][0-9]+)*[a-z]*)(?=['’,;:%]|\.?(?:\s|$))|[\"“]")
_ADDRESS = re.compile(r"[/\\@]|www\b")
_CAMEL = re.compile("[a-z][A-Z]")
_SYNTOK = SyntokTokenizer(replace_not_contraction=False)
# syntok looks a few words behind and ahead; a wider window only costs time.
_BEHIND, _AHEAD = 100, 80
_BRACKET_REACH = 500
# Of a longer word only the end is looked at.
_WORD_REACH = 60


def split_sentences(text: str, passages: Sequence[tuple[int, int]] | None = None) -> list[tuple[int, int]]:
    """Ranges (start, end) in code points of ``text``, in order, trimmed of white space. Together they hold every character that is not
    white space exactly once. No range crosses the end of a passage; the passages of a text are its lines if not given."""
    ranges: list[tuple[int, int]] = []
    on_one_line = _WRAP.sub(lambda match: " " * len(match[0]), text) if passages else text
    for start, end in passages or lines_of(text):
        _split_line(on_one_line, start, end, ranges)
    return ranges


_WRAP = regex.compile(rf"\n[ \t]*+{WRAPPED}?+")


def _split_line(text: str, start: int, end: int, ranges: list[tuple[int, int]]) -> None:
    """Append the sentences of ``text[start:end]``, which holds no line end and is trimmed."""
    for match in _PROPOSAL.finditer(text, start, end):
        if _is_boundary(text, start, end, match):
            ranges.append((start, match.end()))
            start = match.start("next")
    ranges.append((start, end))


def _is_boundary(text: str, start: int, end: int, match: re.Match[str]) -> bool:
    """Return whether the sentence that began at ``start`` ends with this proposal."""
    found, gap, following = match.group(0, "gap", "next")
    if found[0] in _CJK_STOPS:
        return True
    if following.islower() or following in _NEVER_NEXT:
        return False
    boundary = match.end()
    if not gap:  # "home.The next": a capitalised word, and syntok must agree; not ".Xauthority", "~/.Xresources", "www.Oslo.No"
        word = text[max(text.rfind(" ", start, boundary) + 1, start, boundary - _WORD_REACH) : match.start()]
        if not word or not (word[-1].isalnum() or word[-1] in _CLOSERS) or _ADDRESS.search(word):
            return False
        return following.isupper() and text[boundary + 1 : boundary + 2].islower() and _ask_syntok(text, start, end, boundary)
    near = max(start, boundary - _BRACKET_REACH)
    if text.count("(", near, boundary) <= text.count(")", near, boundary):
        certain = found.rstrip(_CLOSERS) not in (".", ";") or _is_plain(text, start, match.start())
        if certain and (following.isupper() or following in _OPENERS):
            return True
        known = _by_rule(text, start, end, match) if len(found) == 1 else None
        if known is not None:
            return known
    return _ask_syntok(text, start, end, boundary)


def _is_plain(text: str, start: int, stop: int) -> bool:
    """Return whether a full stop at ``stop`` cannot belong to an abbreviation, judged by the word before it."""
    near = max(start, stop - _WORD_REACH)
    if text[near:stop].endswith(" "):
        stop -= 1
    word = text[max(text.rfind(" ", near, stop) + 1, near) : stop]
    if not (len(word) > 1 and word.isalpha()):
        match = _PLAIN_WORD.fullmatch(word)
        if match is None:
            return False
        word = match["core"]
    return word not in _DOUBTFUL and word.lower() not in _MORE_ABBREVIATIONS


def _by_rule(text: str, start: int, end: int, match: re.Match[str]) -> bool | None:
    """Verdict of syntok's rules on a full stop between two words; None where it is not certain what syntok sees there. (Its
    ``State._move_and_maybe_extract_terminal``, for a capitalised word, a number or a quote that follows after a space.)"""
    near = max(start, match.start() - _WORD_REACH)
    before = _BEFORE.search(text[near : match.start()])
    after = _AFTER.match(text, match.start("next"), min(end, match.start("next") + _WORD_REACH))
    if before is None or after is None or (before["inner"] is None and near > start):
        return None
    if after[0][0].isdigit() and before["core"].lower() in _COUNTED:
        return False
    core, following, at_start = before["core"], after[0], before["inner"] is None and before["parted"] is None
    if core.lower() in _MORE_ABBREVIATIONS or _CAMEL.search(core):
        return None
    number = following.isnumeric()
    if before["closed"]:
        return None if at_start else not (number and len(following) > 2)
    single = len(core) == 1 or core in State.roman_numerals
    if following in State.starters and not (at_start and single):
        return True
    if core in State.abbreviations or "." in core or (single and (at_start or core.isupper())):
        return False
    if (number and (len(following) > 2 or core in State.months)) or (following[0].isdigit() and core.lower() == "no"):
        return False
    return not (core.isnumeric() and following in State.months) and not (single and core.isalpha() and core not in State.vowels)


def _ask_syntok(text: str, start: int, end: int, boundary: int) -> bool:
    """Return whether syntok ends a sentence at ``boundary``, seeing the text around it."""
    left = max(start, boundary - _BEHIND)
    if left > start:  # not in the middle of a word, unless it is a monster
        left = max(text.rfind(" ", max(start, left - 40), left), left - 40, start)
    right = min(end, boundary + _AHEAD)
    return _syntok_splits(text[left:right], boundary - left)


@lru_cache(maxsize=4096)  # lists and tables repeat the same few words
def _syntok_splits(window: str, boundary: int) -> bool:
    """Return whether one of syntok's sentences of ``window`` ends at ``boundary``."""
    for sentence in segmenter.segment(_SYNTOK.tokenize(window)):
        last = sentence[-1]
        stop = last.offset + len(last.value)
        if stop >= boundary:
            return bool(stop == boundary)
    return False
