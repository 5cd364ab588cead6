"""Options that the verbs of kNN share."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from realm.knn.session import Session
    from realm.knn.settings import Mixing
    from realm.knn.texts import TextOptions


@dataclass(frozen=True)
class WindowFlags:
    """How text becomes predictions.

    Args:
        context: tokens that a language model reads at once; 0 is what it can, at most 512.
        stride: tokens that each further window adds; 0 is half the context.
        source_column: JSON key of the text to translate.
        target_column: JSON key of its translation.
        format: format of all documents; empty lets the reader look.
        text_column: column with a document's text; empty lets the reader look.
    """

    context: int = 0
    stride: int = 0
    source_column: str = "source"
    target_column: str = "target"
    format: str = ""
    text_column: str = ""

    def options(self) -> "TextOptions":
        from realm.corpus.sources import SourceOptions
        from realm.knn.texts import TextOptions

        reading = SourceOptions.of(self.format, "", "", self.text_column)
        return TextOptions(self.context, self.stride, self.source_column, self.target_column, reading)


@dataclass(frozen=True)
class MixFlags:
    """How neighbours are mixed in.

    Args:
        settings: what realm knn tune wrote; the four below then count for nothing.
        k: neighbours of each prediction.
        a: share of p_kNN, 0 to 1.
        temperature: of the softmax over scores.
        metric: l2 or ip.
    """

    settings: Path | None = None
    k: int = 32
    a: float = 0.25
    temperature: float = 10.0
    metric: str = "l2"

    def mixing(self) -> "Mixing":
        from realm.knn.settings import Mixing

        if self.settings is not None:
            return Mixing.load(self.settings)
        return Mixing(self.k, self.a, self.temperature, self.metric)  # type: ignore[arg-type]


@dataclass(frozen=True)
class SearchFlags:
    """How a datastore is opened.

    Args:
        model: the model, if it is no longer where the datastore found it.
        index: kind of the search; auto is exact.
        device: where the model runs.
    """

    model: str = ""
    index: str = "auto"
    device: str = "cpu"

    def session(self, datastore: Path, metric: str) -> "Session":
        from realm.knn.session import Session

        return Session.open(datastore, model=self.model, kind=self.index, metric=metric, device=self.device)


Windows = Annotated[WindowFlags, tyro.conf.arg(name="")]
Mix = Annotated[MixFlags, tyro.conf.arg(name="")]
Search = Annotated[SearchFlags, tyro.conf.arg(name="")]
AS_MODEL = WindowFlags()
FIXED = MixFlags()
AS_BUILT = SearchFlags()
