"""Whole runs: stages in order, each resumable; plans; files and folders asked directly; verify, repair, import, export.

Start at ``run.py``; ``api.Realm`` is the Python interface."""
