"""Answers with their evidence: open a run, search for a question, read the blocks found, answer or explain.

``opening.open_run`` opens a run and checks that its parts belong together, ``answerer.Answerer`` answers questions from it, ``explain``
shows the effect of each document on a masked sentence. The server, ``--json`` and the client share ``records``. Start at ``answerer.py``.
"""
