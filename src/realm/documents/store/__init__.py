"""The published files of a corpus: segments, look-up files and manifests, and their readers."""
