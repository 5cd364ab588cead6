"""Question files: the published formats and one's own, read into ``Question``, checked row by row, split as the papers split them."""
