"""Largest sizes of networks and texts in a recipe: far above what has been trained, far below a slip of the keyboard."""

MAX_WIDTH, MAX_LAYERS = 65_536, 1_024
MAX_PIECES = 65_536
"""Wordpieces of one text."""
