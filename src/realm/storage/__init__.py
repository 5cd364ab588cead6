"""Storage: how files are published whole, numbered by generation, locked by one writer, and checked when they are read.

``files`` writes and renames, ``generations`` numbers, ``manifests`` keeps checksums, ``layout`` knows the places of a run."""
