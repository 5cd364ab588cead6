"""What a vocabulary is trained on: normalised texts, and the characters it begins with."""

from collections import Counter
from collections.abc import Iterable

from tokenizers import normalizers

from realm.errors import DataError

# A vocabulary does not get better with more text than this, and time and memory stay bounded on a corpus of any size.
MAX_TRAINING_CHARS = 20_000_000


def training_texts(texts: Iterable[str], normalizer: normalizers.Normalizer, max_alphabet: int) -> tuple[list[str], list[str]]:
    """Normalised texts and the most frequent characters in code point order (ties in frequency go to the smaller code point)."""
    normalised: list[str] = []
    counts: Counter[str] = Counter()
    total = 0
    for text in texts:
        normalised.append(normalizer.normalize_str(text))
        counts.update(normalised[-1])
        total += len(text)
        if total >= MAX_TRAINING_CHARS:
            break
    ranked = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    if not ranked:
        raise DataError("no text to train a vocabulary on", cure="Give documents that are not empty")
    return normalised, sorted(ranked[:max_alphabet])


def can_continue_a_word(character: str) -> bool:
    """Punctuation and CJK ideographs are words of their own for the BERT pre-tokenizer, so "##," never occurs."""
    if "\u3400" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff" or character >= "\U00020000":
        return False
    return character.isalnum() or not character.isascii()
