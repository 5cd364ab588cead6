"""The one featuriser of sentences, questions and blocks (REALM, section 3.2 and its released code).

query     [CLS] x [SEP]                           segments 0
block     [CLS] title [SEP] body [SEP]            segments 0 | 1 from the body on
joint     [CLS] x [SEP] body [SEP]                segments 0 | 1 from the body on
titled    [CLS] x [SEP] title [SEP] body [SEP]    segments 0 | 1 from the title on; for readers of titles
null      the same with empty title and body"""

from collections.abc import Iterator, Sequence as SequenceOf
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from realm.models.types import MaskedQuery, Sequence, TokenIds
from realm.text.wordpieces import MAX_TITLE_LENGTH


@dataclass(frozen=True)
class Featurizer:
    """Model inputs from wordpiece ids, the same in training, indexing and serving; lengths count special tokens.

    >>> Featurizer(cls=2, sep=3, mask=4, pad=0).joint([7, 8], body=[9])
    Sequence(ids=[2, 7, 8, 3, 9, 3], segments=[0, 0, 0, 0, 1, 1])
    """

    cls: int
    sep: int
    mask: int
    pad: int
    query_length: int = 64
    block_length: int = 288

    def query(self, ids: SequenceOf[int]) -> Sequence:
        kept = list(ids[: self.query_length - 2])
        return Sequence([self.cls, *kept, self.sep], [0] * (len(kept) + 2))

    def block(self, title: SequenceOf[int], body: SequenceOf[int]) -> Sequence:
        """The embedder's input; a long title leaves less room for the body, as in the released code."""
        head = list(title[: self.block_length - 3])
        return self._pair(head, list(body[: self.block_length - 3 - len(head)]))

    def joint(self, query: SequenceOf[int], body: SequenceOf[int]) -> Sequence:
        """The encoder's and reader's input; positions of the query are the same for every candidate."""
        return self._pair(list(query[: self.query_length - 2]), list(body[: self.block_length - 2]))

    def titled(self, query: SequenceOf[int], title: SequenceOf[int], body: SequenceOf[int]) -> tuple[Sequence, int]:
        """Joint input with the title before the body, and the position of the body's first wordpiece; :meth:`joint` without a title."""
        if not title:
            return self.joint(query, body), self.body_start(query)
        head = [*title[:MAX_TITLE_LENGTH], self.sep]
        return self.joint(query, [*head, *body]), self.body_start(query) + len(head)

    def with_mask(self, query: SequenceOf[int]) -> TokenIds:
        """The query of a reader that points, with one [MASK], which a question gets at its end (Splinter, Ram et al. 2021)."""
        kept = list(query[: self.query_length - 2])
        return kept if self.mask in kept else [*kept[: self.query_length - 3], self.mask]

    def _pair(self, head: TokenIds, tail: TokenIds) -> Sequence:
        ids = [self.cls, *head, self.sep, *tail, self.sep]
        return Sequence(ids, [0] * (len(head) + 2) + [1] * (len(tail) + 1))

    def body_start(self, query: SequenceOf[int]) -> int:
        """Position of the body's first wordpiece in the joint input of ``query``."""
        return min(len(query), self.query_length - 2) + 2

    @property
    def joint_length(self) -> int:
        """Length of the longest joint input."""
        return self.query_length + self.block_length - 1


SHARED_SEGMENT, SHARED_PAIR_SEGMENT = 2, 3  # segments of body wordpieces shared with the question: alone, or in a shared pair
MARKED_SEGMENTS = 4  # segments of a body with such marks


def marked(joint: Sequence, body_start: int) -> Sequence:
    """Joint input with segments that mark the body's wordpieces shared with the question (exact match as a feature, Chen et al. 2017).

    A small network from nothing is slow to learn to look for them."""
    question, body = joint.ids[1 : body_start - 1], joint.ids[body_start:-1]
    words, pairs = set(question), set(pairwise(question))
    found = [
        SHARED_SEGMENT if wordpiece in words else segment for wordpiece, segment in zip(body, joint.segments[body_start:-1], strict=True)
    ]
    for at, pair in enumerate(pairwise(body)):
        if pair in pairs:
            found[at] = found[at + 1] = SHARED_PAIR_SEGMENT
    return Sequence(joint.ids, [*joint.segments[:body_start], *found, joint.segments[-1]])


def searched_ids(query: MaskedQuery, *, pointer: bool) -> TokenIds:
    """Wordpieces of a masked sentence for the retriever; for a ``pointer`` the hidden span is one [MASK], which hides its length."""
    if query.shown:
        return query.whole
    return query.pointed if pointer else query.ids


def length_buckets(lengths: SequenceOf[int], tokens_per_bucket: int, tokens_of_a_cut: int) -> Iterator[list[int]]:
    """Indices grouped by similar length at the least cost: padded tokens plus ``tokens_of_a_cut`` for every group.

    A group has at most ``tokens_per_bucket`` padded tokens, or one longer input. Groups depend on the lengths alone."""
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    least = np.zeros(len(order) + 1, np.int64)  # the cost of the first so many inputs, cut in the best way
    start = np.zeros(len(order) + 1, np.int64)  # where the last group of that way begins
    for end in range(1, len(order) + 1):
        longest = lengths[order[end - 1]]
        first = max(0, end - max(1, tokens_per_bucket // max(1, longest)))
        costs = least[first:end] + np.arange(end - first, 0, -1) * longest
        start[end] = first + int(costs.argmin())
        least[end] = costs.min() + tokens_of_a_cut
    ends = [len(order)]
    while ends[-1]:
        ends.append(int(start[ends[-1]]))
    for begin, end in pairwise(reversed(ends)):
        yield order[begin:end]
