"""REALM for people with documents: retrieval-augmented language model pre-training on your own corpus.

``from realm import Realm`` opens a trained run and answers questions with evidence; ``open_documents`` opens a folder of documents.
Imports are lazy so that the command line starts fast.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = ["DEFAULT_BODY", "Answer", "Evidence", "Realm", "RealmModel", "__version__", "open_documents", "run_recipe"]

DEFAULT_BODY = "realm-minilm-en"
"""The model that documents are asked with where no other is named."""

if TYPE_CHECKING:
    from realm.api import Realm
    from realm.nn.model import RealmModel
    from realm.pipeline import run_recipe
    from realm.pipeline.cached import open_documents
    from realm.records import Answer, Evidence


_HOMES = {
    "Answer": "realm.records",
    "Evidence": "realm.records",
    "Realm": "realm.api",
    "RealmModel": "realm.nn.model",
    "open_documents": "realm.pipeline.cached",
    "run_recipe": "realm.pipeline.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'realm' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
