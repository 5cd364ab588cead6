"""REALM for people with documents: retrieval-augmented language model pre-training on your own corpus.

``Realm`` opens a trained run or a folder of documents, answers questions with evidence and learns; ``run_recipe`` trains a run by its
recipe; answers are records (``Answer``, ``Hit``, ``Explanation``). Imports are lazy so that the command line starts fast."""

import os
from typing import TYPE_CHECKING, Any

# ONNX Runtime (from 1.29) reports to its maker otherwise; what is asked of one's documents concerns nobody else.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__version__ = "0.2.0"
__all__ = ["DEFAULT_BODY", "Answer", "Evidence", "Explanation", "Hit", "Realm", "RealmError", "RealmModel", "__version__", "run_recipe"]

DEFAULT_BODY = "realm-minilm-en"
"""The model that documents are asked with where no other is named."""

if TYPE_CHECKING:
    from realm.answering.records import Answer, Evidence, Explanation, Hit
    from realm.errors import RealmError
    from realm.models.model import RealmModel
    from realm.runs.api import Realm
    from realm.runs.run import run_recipe

_HOMES = {
    "realm.runs.api": ("Realm",),
    "realm.errors": ("RealmError",),
    "realm.models.model": ("RealmModel",),
    "realm.runs.run": ("run_recipe",),
    "realm.answering.records": ("Answer", "Evidence", "Explanation", "Hit"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'realm' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
