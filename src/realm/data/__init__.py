"""Batch records, masking, inverse cloze examples, question files and the order in which they are visited."""
