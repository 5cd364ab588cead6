"""Sentence boundaries as code point ranges.

A compiled pattern proposes boundaries. Most are plain ("...walked home. The next..."); syntok, which is slower, is asked only about
the doubtful ones: after abbreviations, initials, short words, and inside brackets. Line ends always end a sentence, and scripts
that write 。！？ need no space after them.
"""

from functools import lru_cache

import regex
from syntok import segmenter
from syntok._segmentation_states import State
from syntok.tokenizer import Tokenizer as SyntokTokenizer

_LINE = regex.compile(r"[^\n\r\u2028\u2029\u0085\v\f]+")
_CLOSERS = "\"'”’»)\\]}"
# One match is one possible boundary: at the end of the terminator and what closes after it. Every run is possessive and starts
# only where the run before it ended, so a line without spaces or one of full stops is read once, not once per character.
_PROPOSAL = regex.compile(
    rf"(?<![^\s.!?…])(?P<word>[^\s.!?…]*+)(?<![.!?…])(?P<stop>[.!?…]++)[{_CLOSERS}]*+(?=(?P<gap>\s++|(?=\p{{Lu}}\p{{Ll}}))(?P<next>\S))"
    r"|(?P<cjk>(?<![。！？｡])[。！？｡]++[」』”’）》〉]*+)(?=.)",
    regex.DOTALL,
)
_OPENERS = regex.compile(r"[\"'“‘«(\[{]")
# What may stand before a full stop that surely ends a sentence: a lower-case word of three letters or more or a capitalised one of
# five or more, unless syntok knows it as an abbreviation; a year; a closing quote or bracket after such a word.
_PLAIN_WORD = regex.compile(r"(?:.*[^\p{L}\p{N}])?(?P<core>\p{Ll}{3,}|\p{Lu}\p{Ll}{4,}|(?:1[0-9]|20)\d\d)['’\"”)\]%]*")
_MORE_ABBREVIATIONS = frozenset(["approx", "capt", "dept", "feat", "mins", "misc", "mrs", "prof", "secs", "sen", "univ", "vols"])
_SYNTOK = SyntokTokenizer(replace_not_contraction=False)
# syntok looks a few words behind and ahead; a wider window only costs time.
_BEHIND, _AHEAD = 100, 80
_BRACKET_REACH = 500


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
        if match["cjk"] is None and not _is_boundary(text, start, end, match):
            continue
        start = _append_trimmed(text, start, match.end(), ranges)
    _append_trimmed(text, start, end, ranges)


def _append_trimmed(text: str, start: int, end: int, ranges: list[tuple[int, int]]) -> int:
    """Append the range without surrounding white space, if anything is left. Returns ``end``."""
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    if left < len(piece):
        ranges.append((start + left, start + len(piece.rstrip())))
    return end


def _is_boundary(text: str, start: int, end: int, match: regex.Match[str]) -> bool:
    """Whether the sentence that began at ``start`` ends with this proposal."""
    following = match["next"]
    if following.islower() or following in ".!?…,;:-–—)]}%&":
        return False
    near = max(start, match.end() - _BRACKET_REACH)
    bracketed = text.count("(", near, match.end()) > text.count(")", near, match.end())
    plain = match["stop"] != "." or _is_plain(match["word"])
    if plain and match["gap"] and not bracketed and (following.isupper() or _OPENERS.match(following)):
        return True
    return _ask_syntok(text, start, end, match.end())


def _is_plain(word: str) -> bool:
    """Whether a full stop after ``word`` cannot belong to an abbreviation."""
    match = _PLAIN_WORD.fullmatch(word[-60:])
    if match is None:
        return False
    core = match["core"]
    return core not in State.abbreviations and core.lower() not in _MORE_ABBREVIATIONS


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
