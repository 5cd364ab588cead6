"""Search: blocks by inner product, by their words, by both, and over links; and the generations of an index on disk.

``retriever.Retriever`` finds the blocks of queries, ``candidates`` those for a reader, ``relevance`` gives p(z|x) with a gradient;
``index`` has the kinds of index, ``publishing`` embeds a corpus and publishes it as a generation. Start at ``retriever.py``."""
