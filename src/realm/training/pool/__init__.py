"""Several machines on Ray: actors that embed a corpus (``builders``).

Ray moves arguments and results between processes with its own serialisation (cloudpickle inside). What passes here are plain values:
paths, numbers, numpy arrays, and classes at the top of a module, which travel by name; nothing is ever read from such a file.
"""
