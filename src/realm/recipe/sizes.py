"""How large networks and texts may be said to be: far above what has been trained, far below what a slip of the keyboard makes."""

MOST_WIDTH, MOST_LAYERS = 65_536, 1_024
MOST_PIECES = 65_536
"""Wordpieces of one text."""
