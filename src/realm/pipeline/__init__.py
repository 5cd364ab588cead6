"""Whole runs: the stages in order, each resumable; what a run will cost; the demo."""
