"""Write what the runtime would measure at each start beside a model's weights: the means of states, in the biases of its 8-bit graphs.

    python released/bake.py src/realm/released/realm-minilm-en

``ship.py`` does the same at its end. Answers are the same with the file, without it, and with one of other weights, which is passed over.
"""

import sys
from pathlib import Path

from safetensors.numpy import save_file

from realm.models.runtime.body import CENTRED
from realm.models.runtime.model import RuntimeModel
from realm.models.spec import read_spec


def bake(directory: Path) -> Path:
    """The file of the model in ``directory``, written anew."""
    model = RuntimeModel(directory, read_spec(directory / "config.json"), eight_bit=True, threads=1)
    bodies = [model.embedder.body, model.documents.body, model.reading().body]
    save_file({name: array for body in bodies for name, array in body.to_bake().items()}, directory / CENTRED)
    return directory / CENTRED


if __name__ == "__main__":
    print(bake(Path(sys.argv[1])))
