"""Masking: which sentences of the pre-training corpus are queries, and which of their wordpieces are hidden (REALM, section 3.4).

``kinds.py`` has the ways to choose what is hidden, ``sentences.py`` makes the queries and has the blocks that a sentence must not get.
``recurring.py`` hides spans that another block can help to fill: ``grams.py`` counts runs of words, ``evidence.py`` finds the blocks.
"""
