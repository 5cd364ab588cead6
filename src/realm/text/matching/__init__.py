"""Answers compared with references: normalised words, regular expressions, exact match and F1 by the language of the question."""
