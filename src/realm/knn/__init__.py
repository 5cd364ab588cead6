"""kNN-LM and kNN-MT: retrieval of single predictions beside any language or translation model, and beside REALM's own encoder."""
