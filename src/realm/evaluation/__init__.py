"""Evaluation: question files and judged collections, answers compared with references, and what was measured.

``questions`` reads question files of all formats, ``measures`` scores answers and rankings with their intervals, ``evaluate`` measures a
stage of a run, ``rankings`` a judged collection, ``calibration`` fits a confidence on dev. Start at ``evaluate.py``.
"""
