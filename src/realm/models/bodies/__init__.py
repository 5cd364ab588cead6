"""Transformer bodies: known ones by name with their digests, how they are fetched, loaded and computed."""
