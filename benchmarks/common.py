"""What the benchmarks on the atlas share: its corpus, and the frame of the closing JSON object."""

import platform
from pathlib import Path
from typing import Any

import torch
import transformers

from realm.corpus.build.builder import build_corpus
from realm.demo.atlas import write_atlas
from realm.pipeline.demo_from_nothing import DEMO_DOMAINS


def atlas_corpus(scratch: Path) -> tuple[Path, Path]:
    """Write the demo's part of the atlas and build its corpus as the demo does. Returns both directories."""
    atlas, corpus = scratch / "atlas", scratch / "corpus"
    write_atlas(atlas, domains=DEMO_DOMAINS)
    build_corpus([atlas / "documents.jsonl"], corpus, vocab_size=4500, gazetteer=atlas / "gazetteer.txt")
    return atlas, corpus


def result(benchmark: str, threads: int, **fields: Any) -> dict[str, Any]:
    """The closing object: what ran on what, and its fields."""
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "python": platform.python_version()}
    return {"benchmark": benchmark, "hardware": f"{platform.machine()}, {threads} threads", "versions": versions, **fields}
