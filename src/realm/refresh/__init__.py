"""The index refreshed from new parameters: publish parameters, embed the corpus, publish the generation, open it, swap.

A trainer asks an ``IndexSource`` between two steps; ``parameters`` publishes what is asked for, ``refresher`` answers it with ``embedding``
and the index's publisher, ``generation`` opens the answer (drawn in docs/refresh.md). Everything goes through published files, so that
trainer, refresher and searcher may be one process, several, or several machines, and any of them may be killed.
"""
