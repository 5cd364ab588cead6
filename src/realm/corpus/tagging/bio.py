"""Labels of tokens to spans: BIO, BILOU and BIOES, with or without a type."""

from collections.abc import Iterable

OUTSIDE = "O"


def spans_of(labels: Iterable[str]) -> list[tuple[int, int, str]]:
    """(first token, token after the last, type) of every span that ``labels`` write, in order.

    Lenient, as scorers are: an inside label that continues nothing begins a span, and so does a change of type. A label without prefix
    ("PER") counts as inside. The type of a bare "B" or "I" is empty.
    """
    spans: list[tuple[int, int, str]] = []
    begin, kind, number = -1, "", -1
    for number, label in enumerate(labels):
        prefix, name = split_label(label)
        if begin >= 0 and (prefix in ("O", "B", "U", "S") or name != kind):
            spans.append((begin, number, kind))
            begin = -1
        if prefix != OUTSIDE and begin < 0:
            begin, kind = number, name
        if begin >= 0 and prefix in ("L", "E", "U", "S"):
            spans.append((begin, number + 1, kind))
            begin = -1
    if begin >= 0:
        spans.append((begin, number + 1, kind))
    return spans


def split_label(label: str) -> tuple[str, str]:
    """("B", "PER") of "B-PER"; the prefix is one of O, B, I, L, E, U, S."""
    if label in ("", OUTSIDE):
        return OUTSIDE, ""
    prefix, dash, name = label.partition("-")
    if len(prefix) == 1 and prefix in "BILEUS":
        return prefix, name if dash else ""
    return "I", label
