"""Damage of every kind to every kind of file that is written here."""
