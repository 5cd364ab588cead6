"""From raw documents to blocks: readers, canonical text, salient spans, Arrow segments."""
