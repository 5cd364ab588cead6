"""Generations of the index: parameters published, the corpus embedded, vectors written as shards, opened again and checked.

``refresher.refresh_index`` makes a generation, ``generation.open_generation`` opens one. All goes through published files, so that trainer,
refresher and searcher may be one process or several machines, and any may be killed (docs/refresh.md). Start at ``refresher.py``."""
