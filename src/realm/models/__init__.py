"""Networks: transformer bodies, the embedder, the knowledge-augmented encoder, the reader, and the model that holds and saves them.

``model.RealmModel`` loads and saves all networks of a run; ``losses`` has the mathematics as pure functions, ``featurize`` makes their
inputs, ``published`` reads models from elsewhere. Start at ``model.py``."""
