"""Masking: which sentences of the pre-training corpus are queries, and which of their wordpieces are hidden (REALM, section 3.4).

``sentences.py`` makes the queries, ``kinds.py`` has the ways to choose what is hidden, ``terms.py`` the collocations of a corpus,
``exclusion.py`` says which blocks a sentence must not be given, ``stated.py`` keeps the spans that some other block can help to fill.
"""
