"""Which sentences are never trained on: a tenth of a corpus, by where a sentence stands and by nothing else.

What is hidden in a sentence, which stage draws it, how many others there are: none of it counts. So what one stage is evaluated on no
other stage has trained on, and documents that are added later move no sentence from one side to the other.
"""

import numpy as np

SHARE = 10
"""One sentence in so many is set aside."""
GOLDEN = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: what splitmix64 counts by. Odd, so that no factor of a hash is lost modulo 2^64."""


def hold_out(keys: np.ndarray, held: int, *, least: int = 0) -> tuple[list[int], list[int]]:
    """Which of n sentences are held out, and which are trained on.

    Args:
        keys: int64 [n, 2], block id and number of the sentence in its block.
        held: how many to evaluate on, at most; 0: none are set aside, all are trained on.
        least: so many are set aside at least, the next in the order of hashes where the keys set aside fewer.

    Returns:
        Held out, in the order of their hashes; trained on, ascending. Those set aside beyond ``held`` are in neither. Where all are set
        aside, all are trained on too.
    """
    if not held:
        return [], list(range(len(keys)))
    blocks, sentences = keys.astype(np.uint64).T
    hashes = _mix(_mix(blocks) + sentences)
    aside = hashes < np.uint64(2**64 // SHARE)
    if aside.sum() < least:
        aside[np.argsort(hashes, kind="stable")[:least]] = True
    chosen, training = np.flatnonzero(aside), np.flatnonzero(~aside)
    chosen = chosen[np.argsort(hashes[chosen], kind="stable")][:held]
    return chosen.tolist(), training.tolist() or list(range(len(keys)))


def _mix(values: np.ndarray) -> np.ndarray:
    return mixed(values + np.uint64(GOLDEN))


def mixed(values: np.ndarray) -> np.ndarray:
    """uint64, spread over all bits, the same on every machine: the last steps of splitmix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
