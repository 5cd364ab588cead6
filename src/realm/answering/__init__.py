"""Answers with their evidence: open a run, search for a question, read the blocks found, say what is known.

``opening.open_run`` opens a run and checks that its parts belong together, ``answerer.Answerer`` answers questions from it, ``explain``
says which documents a masked sentence profits from. The server, ``--json`` and the client share ``records``.
Start at ``answerer.py``.
"""
