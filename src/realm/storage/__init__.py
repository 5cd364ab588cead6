"""How files are published and kept: staged and renamed, numbered by generation, locked by one writer."""
