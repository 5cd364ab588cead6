"""Published files of a corpus: segments, look-up files and manifests, and how they are read."""
