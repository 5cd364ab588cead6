"""Weights: bodies, the embedder, the knowledge-augmented encoder, the reader, and the model that holds them."""
