"""The way of a corpus from one version to the next: documents added, updated, removed; segments merged and compacted."""
