"""The index refreshed from new parameters: publish parameters, embed the corpus, publish the generation, open it, swap.

``building`` embeds and publishes, ``generation`` opens, ``parameters`` is what a trainer asks for, ``refresher`` answers it in a process
of its own, ``swapping`` is the trainer's side in every mode. Everything goes through published files (design: processes talk through
generations).
"""

from realm.refresh.building import add_difference, embed_difference, missing_rows, refresh_index, snapshot_facts
from realm.refresh.embedding import EmbedOptions, embed_corpus
from realm.refresh.generation import Generation, open_generation
from realm.refresh.parameters import KEEP_GENERATIONS, publish_parameters

__all__ = [
    "KEEP_GENERATIONS",
    "EmbedOptions",
    "Generation",
    "add_difference",
    "embed_corpus",
    "embed_difference",
    "missing_rows",
    "open_generation",
    "publish_parameters",
    "refresh_index",
    "snapshot_facts",
]
