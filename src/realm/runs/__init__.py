"""Whole runs: the stages in order, each resumable; what a run will cost; files and folders asked directly.

``run.run_recipe`` trains a recipe, ``cached.open_documents`` opens a folder, ``api.Realm`` is the Python interface, ``mending`` verifies
and repairs what is on disk, ``importing`` and ``exporting`` exchange models. Start at ``run.py``.
"""
