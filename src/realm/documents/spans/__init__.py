"""Salient spans: which words of a sentence to mask. Taggers to choose from, to combine, to train, to score and to save.

The default needs no weights and no network: names by the corpus's own letter case, dates and numbers by patterns, and the corpus's own
terms where a script has no case."""
