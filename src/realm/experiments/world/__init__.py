"""The atlas: the world of the demo, as tables of true facts, the articles that state them, and questions."""
