"""Documents: any collection read, cut into blocks, stored, and changed while it is read.

``sources`` and ``pages`` read what people have, ``ingest`` turns it into a corpus of blocks, ``store`` opens one, ``change`` adds, updates
and removes documents, ``spans`` finds the salient spans that are masked, ``wiki`` reads MediaWiki. Start at ``ingest/builder.py``."""
