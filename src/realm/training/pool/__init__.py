"""Several machines on Ray: actors that embed a corpus (``builders``).

Only plain values pass: paths, numbers, arrays, and classes at the top of a module, which travel by name; no pickle file is ever read."""
