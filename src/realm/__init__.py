"""REALM for people with documents: retrieval-augmented language model pre-training on your own corpus.

``from realm import Realm`` opens a trained run and answers questions with evidence. The import is lazy so that the command line
starts fast.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Answer", "Evidence", "Realm", "RealmModel", "__version__"]

if TYPE_CHECKING:
    from realm.answerer import Answer, Evidence
    from realm.api import Realm
    from realm.nn.model import RealmModel


def __getattr__(name: str) -> Any:
    if name in ("Answer", "Evidence"):
        from realm import answerer

        return getattr(answerer, name)
    if name == "Realm":
        from realm.api import Realm

        return Realm
    if name == "RealmModel":
        from realm.nn.model import RealmModel

        return RealmModel
    raise AttributeError(f"module 'realm' has no attribute {name!r}")
