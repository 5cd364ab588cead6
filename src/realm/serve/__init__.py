"""A run as a service: HTTP with JSON over one open run, its corpus and its index (docs/serving.md).

Start at ``server``; a request passes ``guard``, ``routes``, then ``batching`` (questions) or ``documents`` (changes) over ``serving``."""
