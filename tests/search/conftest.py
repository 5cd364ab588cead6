"""Fixtures of this room: the small corpus with twins."""

from corpus_with_twins import corpus, featurizer, inputs, store  # noqa: F401
