"""REALM for people with documents: retrieval-augmented language model pre-training on your own corpus.

``Realm.open`` opens a trained run and answers questions with evidence, ``open_documents`` does so for a folder of documents, ``run_recipe``
trains a run, and ``Client`` asks a server; answers are records (``Answer``, ``Hit``, ``Explanation``). Imports are lazy so that the command
line starts fast.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = [
    "DEFAULT_BODY",
    "Answer",
    "Client",
    "Evidence",
    "Explanation",
    "Hit",
    "Realm",
    "RealmError",
    "RealmModel",
    "ServiceError",
    "__version__",
    "open_documents",
    "run_recipe",
]

DEFAULT_BODY = "realm-minilm-en"
"""The model that documents are asked with where no other is named."""

if TYPE_CHECKING:
    from realm.api import Realm
    from realm.client import Client, ServiceError
    from realm.errors import RealmError
    from realm.nn.model import RealmModel
    from realm.pipeline.run import run_recipe
    from realm.pipeline.cached import open_documents
    from realm.records import Answer, Evidence, Explanation, Hit

_HOMES = {
    "realm.api": ("Realm",),
    "realm.client": ("Client", "ServiceError"),
    "realm.errors": ("RealmError",),
    "realm.nn.model": ("RealmModel",),
    "realm.pipeline.cached": ("open_documents",),
    "realm.pipeline.run": ("run_recipe",),
    "realm.records": ("Answer", "Evidence", "Explanation", "Hit"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'realm' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
