"""Text as strings: canonical text, the tokenizer, sentences, languages. Nothing here knows documents, blocks or models."""
