"""Korean words as far as spelling tells of them: the particle glued to a noun, the ending that asks, the words that are only grammar."""

from collections.abc import Sequence

FIRST, LAST = ord("가"), ord("힣")
_FINALS, _N, _L, _BS, _SS = 28, 4, 8, 18, 20
"""Final consonants of a syllable, "none" counted, and the numbers of ㄴ, ㄹ, ㅄ and ㅆ among them."""
_MIN_STEM_CHARS = 2
"""Characters that a word keeps at least when its particle is taken off: "국가" and "종이" are whole."""
# Longer ones first. What must stand before each: a final consonant, none (for 로 also ㄹ), or either.
_PARTICLES: tuple[tuple[str, str], ...] = (
    ("에서는", "either"), ("으로부터", "consonant"), ("에게서", "either"), ("으로서", "consonant"), ("으로는", "consonant"),
    ("까지는", "either"), ("에서", "either"), ("에게", "either"), ("에는", "either"), ("으로", "consonant"), ("부터", "either"),
    ("까지", "either"), ("처럼", "either"),
    ("보다", "either"), ("이라는", "consonant"), ("라는", "vowel"), ("이나", "consonant"), ("과의", "consonant"), ("와의", "vowel"),
    ("을", "consonant"), ("를", "vowel"), ("은", "consonant"), ("는", "vowel"), ("이", "consonant"), ("가", "vowel"), ("과", "consonant"),
    ("와", "vowel"), ("의", "either"), ("에", "either"), ("로", "liquid"),
)  # fmt: skip
_OPENERS = frozenset(
    [
        "그", "이", "저", "그의", "이의", "것", "등", "수", "극", "중", "및", "때", "더", "또", "또한", "다른", "각", "약", "한", "두",
        "이후", "있는", "하는", "하지만", "그러나", "그리고", "따라서", "그런", "이런", "모든", "같은", "매우",
    ]
)  # fmt: skip
_ENDINGS = (
    "다", "있는", "없는", "하는", "되는", "같은", "위한", "대한", "통한", "다양한", "하고", "하며", "하여", "하지", "되어", "되고", "되지",
    "않고", "않은", "위해", "대해", "의해", "따라", "통해",
)  # fmt: skip


def final_of(character: str) -> int | None:
    """The number of a syllable's final consonant, 0 for none; None for what is no Hangul syllable."""
    return (ord(character) - FIRST) % _FINALS if FIRST <= ord(character) <= LAST else None


def particle_length(word: str) -> int:
    """Number of characters at a word's end that are a particle: 0 where none fits what stands before it, or too little would be left. After
    letters and digits of other scripts, whose sound the spelling does not tell, any particle fits."""
    for particle, wanted in _PARTICLES:
        stem = word[: len(word) - len(particle)]
        if not word.endswith(particle) or len(stem) < _MIN_STEM_CHARS or not stem[-1].isalnum():
            continue
        final = final_of(stem[-1])
        fits = {"consonant": bool(final), "vowel": final == 0, "liquid": final in (0, _L), "either": True}
        if final is None or fits[wanted]:
            return len(particle)
    return 0


def is_grammar(words: Sequence[str]) -> bool:
    """Return whether words that stand together often say nothing by themselves: "그 결과", "않고 있다", "등 다양한"."""
    return words[0] in _OPENERS or words[-1].endswith(_ENDINGS)


def asking(statement: str) -> str:
    """A statement in the plain style with the ending that asks: 했다 to 했는가, 낸다 to 내는가, 이다 to 인가, 높다 to 높은가.

    Any other is not changed."""
    if not statement.endswith("다") or len(statement) < 2:
        return statement
    stem, last = statement[:-2], statement[-2]
    final = final_of(last)
    if final is None:
        return statement
    if final in (_SS, _BS):
        return f"{stem}{last}는가"
    if final == _N:
        return f"{stem}{chr(ord(last) - _N)}는가"
    return f"{stem}{chr(ord(last) + _N)}가" if final == 0 else f"{stem}{last}은가"
