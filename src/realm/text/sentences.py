"""Sentence boundaries as code point ranges.

A compiled pattern proposes boundaries. Most are plain ("...walked home. The next..."); syntok, which is slower, is asked only about
the doubtful ones: after abbreviations, initials, numbers, and inside brackets. Line ends always end a sentence, and scripts
that write 。！？ need no space after them.
"""

import re
from functools import lru_cache

from syntok import segmenter
from syntok._segmentation_states import State
from syntok.tokenizer import Tokenizer as SyntokTokenizer

_LINE = re.compile(r"[^\n\r\u2028\u2029\u0085\v\f]+")
_STOPS = ".!?…。！？｡"
_CJK_STOPS = "。！？｡"
_CLOSERS = "\"'”’»)]}」』）》〉"
# One match is one possible boundary: the terminators and what closes after them, then white space or a letter. It begins with a set of
# characters, which the standard library's engine looks for at many times the rate of a pattern that begins with a condition. Every run is
# possessive and starts only where the run before it ended, so a line of full stops is read once, not once per character.
_PROPOSAL = re.compile(rf"[{_STOPS}](?<![{_STOPS}]{{2}})[{_STOPS}]*+[{re.escape(_CLOSERS)}]*+(?=(?P<gap>\s*+)(?P<next>\S))")
_OPENERS = "\"'“‘«([{"
# What may stand before a full stop that surely ends a sentence, unless syntok knows it as an abbreviation: a word of two letters or more
# that is no Roman numeral; a year; a closing quote or bracket after such a word.
_PLAIN_WORD = re.compile(r"(?:.*[\W_])?(?P<core>[^\W\d_]{2,}|(?:1[0-9]|20)\d\d)['’\"”)\]%]*", re.DOTALL)
_MORE_ABBREVIATIONS = frozenset(["approx", "capt", "dept", "feat", "mins", "misc", "mrs", "prof", "secs", "sen", "univ", "vols"])
_SYNTOK = SyntokTokenizer(replace_not_contraction=False)
# syntok looks a few words behind and ahead; a wider window only costs time.
_BEHIND, _AHEAD = 100, 80
_BRACKET_REACH = 500
# Of a longer word only the end is looked at.
_WORD_REACH = 60


def split_sentences(text: str) -> list[tuple[int, int]]:
    """Ranges (start, end) in code points of ``text``, in order, trimmed of white space.

    Together they hold every character that is not white space exactly once. No range crosses a line end.
    """
    ranges: list[tuple[int, int]] = []
    for line in _LINE.finditer(text):
        _split_line(text, line.start(), line.end(), ranges)
    return ranges


def _split_line(text: str, start: int, end: int, ranges: list[tuple[int, int]]) -> None:
    """Append the sentences of ``text[start:end]``, which holds no line end."""
    for match in _PROPOSAL.finditer(text, start, end):
        if text[match.start()] in _CJK_STOPS or _is_boundary(text, start, end, match):
            start = _append_trimmed(text, start, match.end(), ranges)
    _append_trimmed(text, start, end, ranges)


def _append_trimmed(text: str, start: int, end: int, ranges: list[tuple[int, int]]) -> int:
    """Append the range without surrounding white space, if anything is left. Returns ``end``."""
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    if left < len(piece):
        ranges.append((start + left, start + len(piece.rstrip())))
    return end


def _is_boundary(text: str, start: int, end: int, match: re.Match[str]) -> bool:
    """Whether the sentence that began at ``start`` ends with this proposal."""
    following, boundary = match["next"], match.end()
    if following.islower() or following in ".!?…,;:-–—)]}%&":
        return False
    if not match["gap"]:  # "home.The next": a capitalised word, and syntok must agree
        return following.isupper() and text[boundary + 1 : boundary + 2].islower() and _ask_syntok(text, start, end, boundary)
    if following.isupper() or following in _OPENERS:
        near = max(start, boundary - _BRACKET_REACH)
        bracketed = text.count("(", near, boundary) > text.count(")", near, boundary)
        lone_full_stop = match[0].rstrip(_CLOSERS) == "."
        if not bracketed and (not lone_full_stop or _is_plain(text, start, match.start())):
            return True
    return _ask_syntok(text, start, end, boundary)


def _is_plain(text: str, start: int, stop: int) -> bool:
    """Whether a full stop at ``stop`` cannot belong to an abbreviation, judged by the word before it."""
    word = text[max(start, stop - _WORD_REACH) : stop].rpartition(" ")[2]
    match = _PLAIN_WORD.fullmatch(word)
    if match is None:
        return False
    core = match["core"]
    return core not in State.abbreviations and core not in State.roman_numerals and core.lower() not in _MORE_ABBREVIATIONS


def _ask_syntok(text: str, start: int, end: int, boundary: int) -> bool:
    """Whether syntok ends a sentence at ``boundary``, seeing the text around it."""
    left = max(start, boundary - _BEHIND)
    if left > start:  # not in the middle of a word, unless it is a monster
        left = max(text.rfind(" ", max(start, left - 40), left), left - 40, start)
    right = min(end, boundary + _AHEAD)
    return _syntok_splits(text[left:right], boundary - left)


@lru_cache(maxsize=4096)  # lists and tables repeat the same few words
def _syntok_splits(window: str, boundary: int) -> bool:
    """Whether one of syntok's sentences of ``window`` ends at ``boundary``."""
    for sentence in segmenter.segment(_SYNTOK.tokenize(window)):
        last = sentence[-1]
        stop = last.offset + len(last.value)
        if stop >= boundary:
            return bool(stop == boundary)
    return False
