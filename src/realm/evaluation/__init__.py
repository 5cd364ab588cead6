"""Evaluation: question files, answers compared with references, and their measures.

``questions`` reads question files of all formats, ``measures`` scores answers and rankings with their intervals, ``evaluate`` measures a
stage of a run, ``calibration`` fits a confidence on dev. Start at ``evaluate.py``."""
