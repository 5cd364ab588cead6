"""The development split of ORQA and REALM: a tenth of the training questions, by a hash of their text."""

from collections.abc import Callable, Sequence
from pathlib import Path

from realm.errors import DataError, MissingExtra

_BUCKETS, _FOLDS = 100_000, 10


def is_dev_question() -> Callable[[str], bool]:
    """The rule: FarmHash's Fingerprint64 of the question's UTF-8 bytes, modulo 100,000, is a multiple of ten.

    The question counts exactly as the file spells it. TensorFlow's ``string_to_hash_bucket_fast``, which the papers' script calls, is
    that hash.

    Raises:
        MissingExtra: FarmHash is not installed.
    """
    try:
        from farmhash import fingerprint64
    except ImportError:
        raise MissingExtra("the papers' development split", "eval") from None
    return lambda question: fingerprint64(question.encode("utf-8", "surrogatepass")) % _BUCKETS % _FOLDS == 0


def split_of(raw: Sequence[str], path: Path) -> list[bool]:
    """Whether each question of a file goes to development.

    Raises:
        DataError: nothing would be left on one of the two sides.
        MissingExtra: FarmHash is not installed.
    """
    rule = is_dev_question()
    chosen = [rule(question) for question in raw]
    if all(chosen) or not any(chosen):
        side = "training" if all(chosen) else "development"
        raise DataError(f"the split of {len(chosen)} questions leaves none for {side}", path=path, cure="Split a larger file.")
    return chosen
