"""Whole runs: stages in order, each resumable; plans; files and folders asked directly; verify, repair, import, export.

Start at ``run.py``; ``api.Realm`` and ``cached.open_documents`` are the Python interface.
"""
