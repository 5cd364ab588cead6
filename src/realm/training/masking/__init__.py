"""Masking: which sentences of the pre-training corpus are queries, and which of their wordpieces are hidden (REALM, section 3.4).

``kinds.py`` has the ways to choose what is hidden, ``sentences.py`` makes the queries and has the blocks that a sentence must not get,
``partners.py`` finds blocks that say the same in other words. ``recurring.py`` hides spans that another block can help to fill, among all
runs of words: ``grams.py`` counts these, ``evidence.py`` finds the blocks.
"""
