"""Four levels of what is claimed of an answer, which the command line, the page, the server and Python share.

answer      the words, as they are
probably    the words with their sentence, and that they are probable
closest     no claim: the passage that comes closest
nothing     no document is about that: hardly a word of the question is in what was found"""

from collections.abc import Iterable
from dataclasses import replace

from realm.answering.records import Answer
from realm.text.words import words

ANSWER, PROBABLY, CLOSEST, NOTHING = "answer", "probably", "closest", "nothing"
LEVELS = (ANSWER, PROBABLY, CLOSEST, NOTHING)
SURE = 0.5
"""Confidence from which on an answer is given without a word of doubt."""
ABOUT = 0.25
"""Share of a question's words that a passage must hold, by their first letters, for it to be about the question at all."""
STEM = 5
"""Letters by which two words count as one."""
_ASKING = """
    who whom whose what which when where why how many much does did do is are was were can could may must should would will has have had our
    my your their his her its me we us you they he she there any some get got please tell
    """
ASKING_WORDS = frozenset(word[:STEM] for word in _ASKING.split())
"""Words of questions that no passage has to hold, by their first letters."""


def leveled(answer: Answer, abstain_below: float) -> Answer:
    """Return an answer with its level, and marked as abstained where its confidence is below a threshold."""
    passages = (f"{one.title} {one.text_heading} {one.text}" for one in answer.evidence)  # read only where nothing is claimed
    level = level_of(answer.question, answer.sureness, abstain_below, passages)
    return replace(answer, level=level, abstained=answer.sureness < abstain_below)


def level_of(question: str, sureness: float, abstain_below: float, passages: Iterable[str]) -> str:
    """Return the level of an answer.

    Args:
        sureness: its confidence, or p where none was calibrated.
        abstain_below: the threshold below which nothing is claimed.
        passages: texts that were read, with their titles."""
    if sureness >= abstain_below:
        return ANSWER if sureness >= max(SURE, abstain_below) else PROBABLY
    return CLOSEST if max((_shared(question, passage) for passage in passages), default=0.0) >= ABOUT else NOTHING


def _shared(question: str, passage: str) -> float:
    """Return the share of a question's words that a passage holds, in a compound too: bridge in footbridge; 1 where it has none."""
    asked, held = own_words(question), list(words(passage))
    text = " ".join(held)
    return sum(word in (text if len(word) == STEM else held) for word in asked) / len(asked) if asked else 1.0


def own_words(text: str) -> set[str]:
    """Return the words of a text by their first letters, without those of any question."""
    return {word[:STEM] for word in words(text)} - ASKING_WORDS
