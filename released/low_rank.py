"""A base-size reader as a difference of low rank to its published body (LoRA, Hu et al. 2021): trained, and packed for shipping.

    python released/low_rank.py train recipes/realm-mpnet-en.toml --out runs/realm-mpnet-en     # run it again to continue
    python released/low_rank.py pack runs/realm-mpnet-en --data runs/reader-data --out runs/first
    python released/low_rank.py train recipes/realm-mpnet-en-manuals.toml --out runs/manuals --start runs/first    # and pack as runs/second
    python released/low_rank.py train recipes/realm-mpnet-en-written.toml --out runs/written --start runs/second
    python released/low_rank.py pack runs/written --data runs/reader-data --out src/realm/released/realm-mpnet-en
    realm models get realm-mpnet-en                                # after its digest has gone into src/realm/models/bodies/known.toml
    python released/fit.py ../shared/data --body realm-mpnet-en --out runs/fitted.json
    python released/low_rank.py pack runs/written --data runs/reader-data --fitted runs/fitted.json \
        --out src/realm/released/realm-mpnet-en

Beside each matrix of the encoder stands a product of ``RANK``, which learns with biases, normalisations and the span head; matrices and
words stay as they were published, so that a step costs two thirds, and 4 MB tell the reader from the body. Matrices are in bfloat16 while
it learns. What ships is the sum of the published matrix and the product, which ``realm.models.runtime.differences`` makes.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from prepare import GIVEN
from safetensors.torch import load_file, save_file
from ship import card, facts_of, write_rounded
from torch import Tensor, nn

from realm.cli import main as realm_command
from realm.models.model import RealmModel
from realm.models.runtime.differences import BODY, DIFFERENCE, DOWN, UP
from realm.models.runtime.weights import SafetensorWeights
from realm.storage.files import sha256_file, write_atomic, write_json
from realm.storage.layout import RunPaths
from realm.text.tokenizer import RELEASED
from realm.training.context import StageContext
from realm.training.finetune import stage

RANK, SCALE = 16, 2.0
LEARNT = "low_rank.safetensors"
"""In the run: what was learnt, in float32."""
_given = stage.finetune_given


class LowRank(nn.Module):
    """y = W x + b + SCALE B A x, with W frozen and B 0 at the start."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base = base
        base.weight.requires_grad_(False)
        base.weight.data = base.weight.data.to(torch.bfloat16)
        self.down = nn.Parameter(torch.empty(RANK, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, RANK))
        nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.base.weight if torch.is_autocast_enabled(x.device.type) else self.base.weight.to(x.dtype)
        product = nn.functional.linear(nn.functional.linear(x, self.down), self.up * SCALE)
        return nn.functional.linear(x, weight, self.base.bias) + product


def layers(encoder: nn.Module, kind: type[nn.Module]) -> list[tuple[nn.Module, str, Any]]:
    """Layers of a kind, each with the module that holds it and its name there."""
    return [(parent, name, child) for parent in encoder.modules() for name, child in parent.named_children() if isinstance(child, kind)]


def finetune(context: StageContext, model: RealmModel, mark: str, start: Path | None = None) -> dict[str, Any]:
    """Fine-tune the differences on given paragraphs, keep them in the run, and leave the model with the sums.

    ``start`` is the directory of a shipped difference to continue from; without one all products are 0 at first.
    """
    torch.manual_seed(context.seed)
    body: Any = model.reader.body.model
    for name, parameter in body.named_parameters():
        parameter.requires_grad_("embedding" not in name)
    for parent, name, layer in layers(body.encoder, nn.Linear):
        setattr(parent, name, LowRank(layer))
    if start:
        other = model.reader.load_state_dict(difference_of(start), strict=False).unexpected_keys
        if other:
            sys.exit(f"error: {start / DIFFERENCE}: not a difference to this body, {other[0]}. Name one that pack wrote.")
    facts = _given(context, model, mark)
    learnt = {name: value.float().contiguous() for name, value in model.reader.state_dict().items() if _ships(name)}
    save_file(learnt, context.paths.root / LEARNT)
    for parent, name, layer in layers(body.encoder, LowRank):
        layer.base.weight.data = layer.base.weight.data.float() + SCALE * (layer.up @ layer.down).detach()
        setattr(parent, name, layer.base)
    return facts


def difference_of(shipped: Path) -> dict[str, Tensor]:
    """Tensors of a shipped difference as they learn: by their names in the reader, the factors not scaled."""
    stored = SafetensorWeights(shipped / DIFFERENCE)
    values = {name: torch.from_numpy(stored.array(name)) for name in stored.names()}
    return {name: value / SCALE if name.endswith(UP) else value for name, value in values.items()}


def _ships(name: str) -> bool:
    """Return whether a tensor is of the difference: all but published matrices and tables."""
    return name.endswith((DOWN, UP, "bias")) or "LayerNorm" in name or not name.startswith(BODY)


STORED = (
    f"What ships is the difference to the published body, in products of rank {RANK}, 8 bits; the embedder is that of `realm-minilm-en`.\n"
    "`realm models get realm-mpnet-en` fetches the body and adds it up. Use it with `--reader realm-mpnet-en`."
)


def pack(run: Path, data: Path, fitted: Path | None, out: Path) -> dict[str, Any]:
    """Write the difference in 8 bits, the model's configuration with the shipped embedder, and its card. Returns size and digest."""
    out.mkdir(parents=True, exist_ok=True)
    learnt = load_file(run / LEARNT)
    write_rounded({name: value * SCALE if name.endswith(UP) else value for name, value in learnt.items()}, out / DIFFERENCE)
    spec = json.loads((RELEASED / "config.json").read_text("utf-8"))
    reader = json.loads((RunPaths(run).stage("finetune") / "config.json").read_text("utf-8"))["reader"]
    reader["body"]["config"]["vocab_size"] = spec["reader"]["body"]["config"]["vocab_size"]
    facts = json.loads(fitted.read_text("utf-8")) if fitted else {}
    spec["reader"] = reader | {name: facts[name] for name in ("slope", "bias", "pooled", "abstain_below") if name in facts}
    write_json(out / "config.json", spec)
    stated = json.loads((data / "data.json").read_text("utf-8"))
    stated |= {"base": "mpnet", "runs": [*stated.get("runs", []), facts_of(RunPaths(run))]}
    stated["read"] = {name: value for name, value in stated["read"].items() if name in GIVEN or "packages" in value}
    write_json(out / "data.json", stated)
    write_atomic(out / "README.md", card(out.name, "mpnet", stated, STORED))
    return {"bytes": (out / DIFFERENCE).stat().st_size, "sha256": sha256_file(out / DIFFERENCE)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("act", choices=("train", "pack"))
    parser.add_argument("what", type=Path, help="a recipe to train by, or the run to pack")
    parser.add_argument("--data", type=Path, help="what prepare.py wrote, or what was shipped before")
    parser.add_argument("--fitted", type=Path, help="what fit.py wrote")
    parser.add_argument("--start", type=Path, help="the directory of a difference to train on from")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.act == "train":
        stage.finetune_given = partial(finetune, start=arguments.start)
        sys.exit(realm_command(["run", str(arguments.what), "--out", str(arguments.out)]))
    print(json.dumps(pack(arguments.what, arguments.data, arguments.fitted, arguments.out)))


if __name__ == "__main__":
    main()
