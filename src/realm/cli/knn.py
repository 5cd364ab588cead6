"""The verbs of kNN-LM and kNN-MT: ``realm knn build | eval | tune | generate``."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from realm.cli import show
from realm.cli.arguments import SHORT_DEFAULT, Columns, Datastore, Device, Json, Place, Text, Word, columns
from realm.progress import Progress

if TYPE_CHECKING:
    from realm.knn.scoring import Mixing
    from realm.knn.session import Session
    from realm.knn.windows import TextOptions


@dataclass(frozen=True)
class WindowFlags:
    """Options for windows of text.

    Args:
        context: tokens that a language model reads at once; 0: as many as it can, at most 512.
        stride: tokens that each further window adds; 0 is half the context.
        column: column or JSON key of a role: text of a document (if not given: text or contents), source (source) and target (target) of a
            pair, such as --column source=en; may be repeated."""

    context: int = 0
    stride: int = 0
    column: Columns = ()

    def options(self) -> "TextOptions":
        from realm.documents.sources import SourceOptions
        from realm.knn.windows import TextOptions

        named = columns(self.column, "text", "source", "target")
        reading = SourceOptions(text_column=named.get("text"))
        return TextOptions(self.context, self.stride, named.get("source", "source"), named.get("target", "target"), reading)


@dataclass(frozen=True)
class MixFlags:
    """Options for the mixture with neighbours.

    Args:
        settings: a file that realm knn tune wrote; it overrides the three options below.
        k: neighbours of each prediction.
        a: share of p_kNN, 0 to 1.
        temperature: of the softmax over scores."""

    settings: Annotated[Place, SHORT_DEFAULT] = None
    k: int = 32
    a: float = 0.25
    temperature: float = 10.0

    def mixing(self) -> "Mixing":
        from realm.knn.scoring import Mixing

        if self.settings is not None:
            return Mixing.load(self.settings)
        return Mixing(self.k, self.a, self.temperature)


@dataclass(frozen=True)
class ModelFlags:
    """Options for opening a datastore.

    Args:
        model: the model, if it is no longer where the datastore found it.
        device: where the model runs."""

    model: Word = ""
    device: str = "cpu"

    def session(self, datastore: Path) -> "Session":
        from realm.knn.session import Session

        return Session.open(datastore, model=self.model, device=self.device)


Windows = Annotated[WindowFlags, tyro.conf.arg(name="")]
Mix = Annotated[MixFlags, tyro.conf.arg(name="")]
Opened = Annotated[ModelFlags, tyro.conf.arg(name="")]
AS_MODEL = WindowFlags()
FIXED = MixFlags()
AS_BUILT = ModelFlags()

Sources = Annotated[list[Path], tyro.conf.arg(metavar="SOURCE")]
MaybeSources = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="SOURCE")]


def knn_build(
    model: Annotated[str, tyro.conf.arg(metavar="MODEL")],
    sources: MaybeSources = (),
    /,
    *,
    out: Path,
    layer: str = "",
    dtype: str = "float16",
    device: Device = "cpu",
    windows: Windows = AS_MODEL,
    json: Json = False,
) -> None:
    """Store (state, next token) pairs of a text. If killed, run it again to continue.

    Args:
        model: a directory or hub name of a causal or encoder-decoder model.
        sources: documents for a language model (files, folders), JSONL files of pairs for a translation model.
        out: the datastore's directory.
        layer: module whose input is the key; if not given, the last feed-forward block.
        dtype: of the keys on disk: float16 or float32."""
    from realm.knn.session import build

    with Progress() as progress:
        made = build(
            model, sources, out, windows.options(), layer=layer, dtype=dtype, device=device, progress=partial(progress.count, "knn: keys")
        )
    show.result({"datastore": str(out), **asdict(made.facts)}, json)


def knn_eval(
    datastore: Datastore, sources: Sources, /, *, opened: Opened = AS_BUILT, mix: Mix = FIXED, beams: int = 4, json: Json = False
) -> None:
    """Measure perplexity of held-out text with and without the datastore; for translations also BLEU and chrF; for a run filled masks.

    Args:
        sources: held-out documents, JSONL files of pairs, or for a run JSONL files of {"text" with one [MASK], "target"}.
        beams: width of the beam search for translations; 0: do not translate."""
    from realm.knn.session import evaluate

    with Progress() as progress:
        found = evaluate(datastore, sources, mix.mixing(), progress.count, opened.model, beams, opened.device)
    show.result(found, json)


def knn_tune(
    datastore: Datastore,
    sources: Sources,
    /,
    *,
    out: Path,
    opened: Opened = AS_BUILT,
    k: tuple[int, ...] = (),
    a: tuple[float, ...] = (),
    temperature: tuple[float, ...] = (),
    json: Json = False,
) -> None:
    """Find k, a and temperature on held-out text; all points of the grid come from one run of model and search.

    Args:
        sources: held-out documents, or JSONL files of pairs.
        out: the settings, a JSON file for --settings.
        k: numbers of neighbours to try.
        a: shares to try.
        temperature: temperatures to try; without any, multiples of the mean distance."""
    from realm.knn.session import tune_on

    grid = {"neighbours": k, "shares": a, "temperatures": temperature}
    with Progress() as progress:
        found = tune_on(opened.session(datastore), sources, grid, out, progress.count)
    show.result(found, json, lambda facts: show.facts({name: value for name, value in facts.items() if name != "grid"}))


def knn_generate(
    datastore: Datastore, text: Text, /, *, opened: Opened = AS_BUILT, mix: Mix = FIXED, tokens: int = 64, json: Json = False
) -> None:
    """Continue a text, or translate it, with the neighbours mixed in.

    Args:
        text: a beginning, or a sentence to translate.
        tokens: most tokens to generate."""
    from realm.knn.session import generate

    show.result(generate(opened.session(datastore), text, mix.mixing(), tokens), json)
