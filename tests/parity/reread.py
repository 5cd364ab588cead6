"""Do the published classes read what we export? In the parity environment; prints class -> names missing, unexpected, differing."""

import json
import sys
from pathlib import Path

import torch
from published_side import CASES
from safetensors.torch import load_file
from transformers import RealmConfig, RealmEmbedder
from transformers.utils import logging


def reread(directory: Path) -> dict[str, list[str]]:
    """What the class of ``directory.name`` makes of the directory."""
    published = CASES[directory.name].published
    arguments = [RealmEmbedder(RealmConfig.from_pretrained(directory))] if directory.name == "scorer" else []
    model, report = published.from_pretrained(directory, *arguments, output_loading_info=True)
    state, expected = model.state_dict(), load_file(directory / "expected.safetensors")
    missing = sorted(report["missing_keys"])
    differing = [name for name in expected if name not in missing and not torch.equal(state[name], expected[name])]
    return {"missing": missing, "unexpected": sorted(report["unexpected_keys"]), "differing": differing}


if __name__ == "__main__":
    logging.set_verbosity_error()
    print(json.dumps({path.name: reread(path) for path in sorted(Path(sys.argv[1]).iterdir())}))
