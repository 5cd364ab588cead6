"""Models that others published: their names, configurations and files mapped to ours and back."""
