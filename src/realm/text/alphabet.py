"""Input of a vocabulary's training: normalised texts, the characters it begins with, and their scripts.

Where a tenth of the letters or more is of a script without spaces, or with glued particles, each character is a word and in the
vocabulary, so that an answer may begin and end with any of them."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import regex
from tokenizers import normalizers

from realm.errors import DataError

# A vocabulary does not get better with more text than this, and time and memory stay bounded on a corpus of any size.
MAX_TRAINING_CHARS = 20_000_000
PIECE_CHARS = 100_000
"""Of a text, what is normalised and cut into words at once, which takes some hundred bytes for each."""
WRITTEN_SHARE = 0.1
"""Of all letters; a script that has as many is one of those that the texts are written in."""
MARKS_SHARE = 0.02
"""Of all letters; where as many carry marks that spell, marks are kept."""
CHARACTERS_SHARE = 0.75
"""Of a vocabulary, what such characters may take at most; the rarest are left out beyond."""

_GLUED = r"\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
CHARACTER_PATTERN = rf"[가-힣]|[\u1100-\u115f]+[\u1160-\u11a7]*[\u11a8-\u11ff]*|[{_GLUED}]\p{{M}}*"
"""One character that BERT leaves in words: a Hangul syllable, whole or in its letters, or a letter with its marks."""
_HAN, _HANGUL, _OTHERS = regex.compile(r"\p{Han}"), regex.compile(r"\p{Hangul}"), regex.compile(rf"[{_GLUED}]")
_LATIN_MARKS = regex.compile(r"[\p{Latin}\p{Greek}\p{Cyrillic}\p{Hangul}]")


@dataclass(frozen=True)
class Writing:
    """Writing of texts: whether Hangul, kana or another such script is among their scripts, so that its characters are words; characters
    that are words by themselves and must not be missing, most frequent first; whether combining marks are letters of theirs rather than
    accents (kana, Hindi): then they are not stripped."""

    characters: bool
    whole: tuple[str, ...]
    keeps_marks: bool


def read_texts(texts: Iterable[str]) -> list[str]:
    """The first texts, of ``MAX_TRAINING_CHARS`` characters or little more."""
    read: list[str] = []
    total = 0
    for text in texts:
        read += _pieces(text)
        total += len(text)
        if total >= MAX_TRAINING_CHARS:
            break
    return read


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces that begin with white space, if there is any."""
    start = 0
    while len(text) - start > PIECE_CHARS:
        spaces = [text.rfind(space, start + 1, start + PIECE_CHARS) for space in " \n"]
        stop = max(spaces) if max(spaces) > 0 else start + PIECE_CHARS
        yield text[start:stop]
        start = stop
    yield text[start:]


def writing_of(texts: Iterable[str]) -> Writing:
    """Count the characters of ``texts``: a script or marks count as theirs from a small share of the letters on."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    letters = sum(count for character, count in counts.items() if character.isalpha())
    written = [
        script
        for script in (_HAN, _HANGUL, _OTHERS)
        if sum(count for character, count in counts.items() if script.match(character)) >= max(1.0, WRITTEN_SHARE * letters)
    ]
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    whole = tuple(character for character in ranked if any(script.match(character) for script in written))
    marked = sum(count for character, count in counts.items() if not character.isascii() and _has_letter_marks(character))
    return Writing(_HANGUL in written or _OTHERS in written, whole, marked >= max(1.0, MARKS_SHARE * letters))


def training_texts(
    texts: Iterable[str], normalizer: normalizers.Normalizer, max_alphabet: int, whole: Iterable[str] = ()
) -> tuple[list[str], list[str]]:
    """Normalised texts, and their ``max_alphabet`` most frequent characters with those of ``whole``, in code point order; ties in frequency
    go to the smaller code point."""
    normalised: list[str] = []
    counts: Counter[str] = Counter()
    for text in texts:
        normalised.append(normalizer.normalize_str(text))
        counts.update(normalised[-1])
    ranked = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    if not ranked:
        raise DataError("no text to train a vocabulary on", cure="Give documents that are not empty")
    added = {part for character in whole for part in normalizer.normalize_str(character) if not part.isspace()}
    return normalised, sorted([*added, *[character for character in ranked if character not in added][:max_alphabet]])


def can_continue_a_word(character: str) -> bool:
    """Punctuation and CJK ideographs are words of their own for the BERT pre-tokenizer, so "##," never occurs."""
    if "\u3400" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff" or character >= "\U00020000":
        return False
    return character.isalnum() or not character.isascii()


def continues_a_character(character: str) -> bool:
    """Return whether it can stand inside of a word where characters of ``CHARACTER_PATTERN`` are words: the first letter of one cannot."""
    first = "가" <= character <= "힣" or "\u1100" <= character <= "\u115f" or _OTHERS.match(character) is not None
    return can_continue_a_word(character) and not (first and not unicodedata.category(character).startswith("M"))


def _has_letter_marks(character: str) -> bool:
    """Return whether stripping accents would leave another letter, or none, of a script in which marks spell."""
    if _LATIN_MARKS.match(character):
        return False
    parts = unicodedata.normalize("NFD", character)
    return any(unicodedata.category(part) == "Mn" for part in parts)
