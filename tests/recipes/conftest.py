"""A small corpus to point in: each fact stands in two documents, in other words; and a recipe of seconds over it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from realm.config import Recipe, build_recipe

TOWNS = ("Oslo", "Lima", "Cairo", "Quito", "Hanoi", "Accra", "Sofia", "Dakar", "Minsk", "Tunis", "Delhi", "Seoul")
NAMES = (
    *("Karel Brandt", "Ilse Kolm", "Omar Vesse", "Nina Tarro", "Paul Ilmar", "Rosa Quend"),
    *("Jan Sorvik", "Ada Palun", "Tom Grabe", "Eva Osta", "Max Melva", "Lea Durn"),
)


@pytest.fixture(scope="session")
def towns() -> Callable[..., Recipe]:
    """What writes the documents and gives a recipe over them."""
    return towns_recipe


def towns_recipe(root: Path, **pretrain: Any) -> Recipe:
    """Write the documents into ``root``; each has a second sentence that nothing repeats. ``pretrain``: other values of that section."""
    rows = []
    for n, (town, name) in enumerate(zip(TOWNS, NAMES, strict=True)):
        built = f"The old stone bridge of {town} was built by {name}. Many people walk there on warm evenings of {n + 3} months."
        lived = f"The architect {name} finished the old stone bridge of {town} in {1700 + n}. It was the longest of its time, or was it?"
        rows += [{"id": town, "title": town, "text": built}, {"id": name, "title": name, "text": lived}]
    (root / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values: dict[str, dict[str, Any]] = {
        "corpus": {"sources": [str(root / "documents.jsonl")], "vocab_size": 400},
        "run": {"threads": 1, "device": "cpu"},
        "model": {"hidden": 32, "layers": 2, "heads": 2, "intermediate": 64, "projection": 16, "span_hidden": 32},
        "warm": {"steps": 1, "batch": 4},
        "ict": {"steps": 2, "batch": 8},
        "retrieval": {"kind": "hybrid"},
        "pretrain": {
            "fill": "pointer", "masking": "recurring", "exclude": "document", "proposals": 10, "shown": 0.5, "questions": 0.5,
            "reader_first": 2, "steps": 2, "batch": 8, "candidates": 4, "refresh": "inline", **pretrain,
        },
    }  # fmt: skip
    return build_recipe(values)
