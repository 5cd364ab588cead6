"""A run as a service: HTTP with JSON over one open run, its corpus and its index (docs/serving.md).

``shapes`` says what requests look like and how much one may ask, ``guard`` who may ask at all, ``batching``
puts questions of several requests into one pass of the model, ``serving`` holds the run and swaps it, ``documents`` changes its corpus,
``routes`` answer, ``server`` puts that together and listens.
"""
