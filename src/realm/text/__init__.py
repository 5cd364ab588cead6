"""Text as strings: tokenizer, sentences, answers. What does not live here: anything that knows documents, blocks or models."""
