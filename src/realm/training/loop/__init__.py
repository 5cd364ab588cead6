"""The one training loop, its optimiser, checkpoints and metrics. It knows nothing of retrieval."""
