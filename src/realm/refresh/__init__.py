"""The index refreshed from new parameters: publish parameters, embed the corpus, publish the generation, open it, swap.

A trainer asks an ``IndexSource`` between two steps; ``parameters`` publishes what is asked for, ``refresher`` answers it with ``embedding``
and the index's publisher, ``generation`` opens the answer (drawn in docs/refresh.md). Everything goes through published files, so that
trainer, refresher and searcher may be one process, several, or several machines, and any of them may be killed.
"""

from realm.refresh.embedding import EmbedOptions, embed_corpus
from realm.refresh.generation import Generation, open_generation
from realm.refresh.parameters import KEEP_GENERATIONS, publish_parameters
from realm.refresh.refresher import add_difference, missing_rows, refresh_index, snapshot_facts

__all__ = [
    "KEEP_GENERATIONS",
    "EmbedOptions",
    "Generation",
    "add_difference",
    "embed_corpus",
    "missing_rows",
    "open_generation",
    "publish_parameters",
    "refresh_index",
    "snapshot_facts",
]
