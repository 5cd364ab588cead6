"""Write what the runtime would measure at each start beside a model's weights: the means of states, in the biases of its 8-bit graphs.

    python released/bake.py src/realm/released/realm-minilm-en

``ship.py`` does the same at its end. Answers are the same with the file, without it, and with one of other weights, which is passed over.
"""

import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from realm.models.runtime.body import CENTRED, SUM
from realm.models.runtime.model import RuntimeModel
from realm.models.spec import read_spec


def bake(directory: Path) -> Path:
    """The file of the model in ``directory``, written anew."""
    model = RuntimeModel(directory, read_spec(directory / "config.json"), eight_bit=True, threads=1)
    baked = dict[str, np.ndarray]()
    for body in (model.embedder.body, model.documents.body, model.reading().body):
        found = body.centred()
        kept = {**found, SUM: np.frombuffer(body.checksum(found), np.uint8)}
        baked |= {body.weights.prefix + name: array for name, array in kept.items()}
    save_file(baked, directory / CENTRED)
    return directory / CENTRED


if __name__ == "__main__":
    print(bake(Path(sys.argv[1])))
