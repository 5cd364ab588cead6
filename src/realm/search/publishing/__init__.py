"""Generations of the index: parameters published, the corpus embedded, vectors written as shards, opened again and checked.

``refresher.refresh_index`` makes a generation of parameters, ``generation.open_generation`` opens one with the embedder that made it. All
goes through published files, so that trainer, refresher and searcher may be one process, several, or several machines, and any may be
killed (docs/refresh.md).
"""
