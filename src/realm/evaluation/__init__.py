"""Evaluation: question files and judged collections, answers compared with references, and their measures.

``questions`` reads question files of all formats, ``measures`` scores answers and rankings with their intervals, ``evaluate`` measures a
stage of a run, ``judged`` a collection with judgements, ``calibration`` fits a confidence on dev. Start at ``evaluate.py``."""
