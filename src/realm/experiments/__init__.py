"""Experiments over whole runs: the demo, comparisons like the paper's Table 1, ablations like its Table 2.

``demo`` shows what REALM is for on the atlas of ``world``, ``compare`` and ``ablate`` train shared stages once. Only ``cli`` imports it."""
