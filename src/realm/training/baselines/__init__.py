"""What REALM is compared with: other retrievers, readers on them, the closed book, and the rows of a comparison."""
