"""The one featuriser: how sentences, questions and blocks become model inputs (REALM, section 3.2 and its released code).

query     [CLS] x [SEP]                     segments 0
block     [CLS] title [SEP] body [SEP]      segments 0 | 1 from the body on
joint     [CLS] x [SEP] body [SEP]          segments 0 | 1 from the body on
titled    [CLS] x [SEP] title [SEP] body [SEP]    the joint input of a reader that reads titles; segments 0 | 1 from the title on
null      the same with empty title and body
"""

from collections.abc import Iterator, Sequence as SequenceOf
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from realm.models.types import MaskedQuery, Sequence, TokenIds, TokenInputs


@dataclass(frozen=True)
class Featurizer:
    """Builds every model input from wordpiece ids, so that training, indexing and serving cannot disagree.

    Args:
        query_length: wordpieces of a query input, special tokens counted.
        block_length: wordpieces of a block input, special tokens counted.
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
        """The embedder's input. The title keeps as much as it can, the body takes the rest, as in the released code."""
        head = list(title[: self.block_length - 3])
        return self._pair(head, list(body[: self.block_length - 3 - len(head)]))

    def joint(self, query: SequenceOf[int], body: SequenceOf[int]) -> Sequence:
        """The encoder's and reader's input; a query's positions are the same for every candidate because it stands first."""
        return self._pair(list(query[: self.query_length - 2]), list(body[: self.block_length - 2]))

    def titled(self, query: SequenceOf[int], title: SequenceOf[int], body: SequenceOf[int]) -> tuple[Sequence, int]:
        """The input of a reader that reads titles, and the position of the body's first wordpiece in it; :meth:`joint` without a title."""
        if not title:
            return self.joint(query, body), self.body_start(query)
        head = [*title[:TITLE_LENGTH], self.sep]
        return self.joint(query, [*head, *body]), self.body_start(query) + len(head)

    def with_mask(self, query: SequenceOf[int]) -> TokenIds:
        """A query as a reader that points gets it: with a [MASK], which a masked sentence has where something is missing, and a question
        at its end (Splinter, Ram et al. 2021). What is too long loses its last wordpieces and not the [MASK]."""
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
        """The longest joint input, special tokens counted."""
        return self.query_length + self.block_length - 1


TITLE_LENGTH = 32
"""Wordpieces of a title that a reader reads at most."""
SHARED, SHARED_PAIR = 2, 3
"""Segments of a body's wordpieces that stand in the question, too: alone, or with a neighbour that is the same one there."""
MARKED_SEGMENTS = 4
"""Segments of a body that reads such marks."""


def marked(joint: Sequence, body_start: int) -> Sequence:
    """The joint input with segments that say which wordpieces of the body stand in the question, too.

    What is shared is most of what tells where a question is answered, and a small network from nothing is slow to learn to look for it
    (exact match as a feature: Chen et al. 2017).

    Args:
        body_start: position of the body's first wordpiece.
    """
    question, body = joint.ids[1 : body_start - 1], joint.ids[body_start:-1]
    words, pairs = set(question), set(pairwise(question))
    found = [SHARED if wordpiece in words else segment for wordpiece, segment in zip(body, joint.segments[body_start:-1], strict=True)]
    for at, pair in enumerate(pairwise(body)):
        if pair in pairs:
            found[at] = found[at + 1] = SHARED_PAIR
    return Sequence(joint.ids, [*joint.segments[:body_start], *found, joint.segments[-1]])


def searched_ids(query: MaskedQuery, *, pointer: bool) -> TokenIds:
    """The wordpieces of a masked sentence that the retriever sees, without special tokens.

    Args:
        pointer: the hidden span is one [MASK], so that its length does not show, and not one for each wordpiece.
    """
    if query.shown:
        return query.whole
    return query.pointed if pointer else query.ids


def pad_batch(sequences: SequenceOf[Sequence], pad: int) -> TokenInputs:
    """Stack sequences of any lengths to [b, t] with t the longest."""
    lengths = [len(s) for s in sequences]
    ids = pad_sequence([torch.tensor(s.ids) for s in sequences], batch_first=True, padding_value=pad)
    segments = pad_sequence([torch.tensor(s.segments) for s in sequences], batch_first=True)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return TokenInputs(ids, mask, segments, unpadded=min(lengths) == max(lengths))


def length_buckets(lengths: SequenceOf[int], tokens_per_bucket: int, tokens_of_a_cut: int) -> Iterator[list[int]]:
    """Indices grouped by similar length, so that the least is computed: padded tokens, and a price for every group.

    The groups are a function of the lengths alone, so a batch is cut the same way every time.

    Args:
        tokens_per_bucket: bound on the padded tokens of a group; a single input may exceed it.
        tokens_of_a_cut: what a group costs beside its tokens, in tokens.
    """
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


def mask_slots(positions: SequenceOf[TokenIds], targets: SequenceOf[TokenIds]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pad mask positions (shifted by one for [CLS]) and targets to [b, m]; the third tensor is True at real slots."""
    where = pad_sequence([torch.tensor(p, dtype=torch.long) + 1 for p in positions], batch_first=True)
    what = pad_sequence([torch.tensor(t, dtype=torch.long) for t in targets], batch_first=True)
    return where, what, where > 0
