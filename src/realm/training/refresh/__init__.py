"""The index beside a trainer: which one it searches from which step on, refreshed by itself or by another process (docs/refresh.md)."""
