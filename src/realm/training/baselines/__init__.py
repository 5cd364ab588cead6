"""Baselines beside REALM: other retrievers, other pre-training, or no documents at all."""
