"""The peer of ``bench_step.py``: one step of transformers 4.40.2's RealmScorer and RealmKnowledgeAugEncoder, in their own environment.

Reads weights and padded inputs from a directory, then makes one step for each line on standard input and answers with one JSON line:
seconds, seconds of processor time, loss, memory. No code of ours is imported.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import RealmConfig, RealmEmbedder, RealmKnowledgeAugEncoder, RealmScorer

from benchmarks.common import Extra


def load(directory: Path) -> tuple[Any, Any, dict[str, torch.Tensor]]:
    config = RealmConfig(**json.loads((directory / "config.json").read_text()))
    scorer, encoder = RealmScorer(config), RealmKnowledgeAugEncoder(config)
    for model, name in ((scorer.embedder, "embedder"), (encoder, "encoder")):
        model.load_state_dict(load_file(directory / f"{name}.safetensors"), strict=False)
        model.tie_weights()
    assert isinstance(scorer.embedder, RealmEmbedder) and scorer.query_embedder is scorer.embedder
    return scorer.train(), encoder.train(), load_file(directory / "inputs.safetensors")


def step(scorer: Any, encoder: Any, inputs: dict[str, torch.Tensor], optimizer: torch.optim.Optimizer) -> float:
    def called(prefix: str, name: str = "") -> dict[str, torch.Tensor]:
        kinds = {"input_ids": "ids", "attention_mask": "mask", "token_type_ids": "segments"}
        return {f"{name}{theirs}": inputs[f"{prefix}_{ours}"] for theirs, ours in kinds.items()}

    scores = scorer(**called("query"), **called("block", "candidate_")).relevance_score
    loss = encoder(**called("joint"), relevance_score=scores, labels=inputs["labels"], mlm_mask=inputs["mlm_mask"]).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 1.0)
    optimizer.step()
    return loss.item()


def main() -> None:
    directory, threads = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    scorer, encoder, inputs = load(directory)
    parameters = {id(p): p for model in (scorer, encoder) for p in model.parameters()}
    optimizer = torch.optim.AdamW(list(parameters.values()), lr=1e-5, eps=1e-6, weight_decay=0.01)
    print("ready", flush=True)
    for _ in sys.stdin:
        optimizer.zero_grad(set_to_none=True)
        memory, started, cpu = Extra(), time.perf_counter(), time.process_time()
        loss = step(scorer, encoder, inputs, optimizer)
        row = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu, "loss": loss}
        print(json.dumps(row | {"peak_mib": memory.mib()}), flush=True)


if __name__ == "__main__":
    main()
