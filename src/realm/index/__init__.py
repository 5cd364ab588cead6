"""Vectors of blocks: embedding them, publishing them as generations, searching them. Knows nothing of training."""
