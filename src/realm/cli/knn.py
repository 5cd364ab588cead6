"""The verbs of kNN-LM and kNN-MT: ``realm knn build | eval | tune | prune | generate``."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import tyro

from realm.cli import show
from realm.cli.knn_flags import AS_MODEL, FIXED, Mix, Windows
from realm.progress import Progress

Store = Annotated[Path, tyro.conf.arg(metavar="DATASTORE")]
Sources = Annotated[list[Path], tyro.conf.arg(metavar="SOURCE")]
MaybeSources = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="SOURCE")]
Text = Annotated[str, tyro.conf.arg(metavar="TEXT")]


def knn_build(
    model: Annotated[str, tyro.conf.arg(metavar="MODEL")],
    sources: MaybeSources = (),
    /,
    *,
    out: Path,
    layer: str = "",
    dtype: str = "float16",
    tokenizer: str = "",
    device: str = "cpu",
    windows: Windows = AS_MODEL,
    json: bool = False,
) -> None:
    """Store (state, next token) pairs of a text. Killed, it goes on where it was when called again.

    Args:
        model: a directory or hub name of a causal or encoder-decoder model, a config.json for random weights, or a run.
        sources: documents for a language model (files, folders, hf:owner/name), JSONL files of pairs for a translation model; none for
            a run: its encoder reads the masked sentences of its own corpus.
        out: the datastore's directory.
        layer: module whose input is the key (NAME:output for its output); empty is the last feed-forward block.
        dtype: of the keys on disk: float16, float32, bfloat16, int8.
        tokenizer: where the tokenizer is, if not with the model.
        device: where the model runs.
        windows: how text becomes predictions.
        json: print one JSON object as the last line.
    """
    from realm.knn.session import build

    with Progress() as progress:
        expected: dict[str, int] = {}

        def announce(forecast: dict[str, int]) -> None:
            expected.update(forecast)
            size, memory = forecast["disk_bytes"] / 1e6, forecast["memory_bytes"] / 1e6
            progress.say(f"{forecast['keys']:,} keys of {forecast['dim']}: {size:,.1f} MB on disk, {memory:,.1f} MB to search")

        made = build(
            model,
            sources,
            out,
            windows.options(),
            layer=layer,
            dtype=dtype,
            tokenizer=tokenizer,
            device=device,
            progress=lambda done, total: progress.count("knn: keys", done, total),
            announce=announce,
        )
    _tell({"datastore": str(out), **asdict(made.facts), "forecast": expected, "skipped": made.windows.facts["skipped"]}, json)


def knn_eval(
    datastore: Store,
    sources: Sources,
    /,
    *,
    model: str = "",
    mix: Mix = FIXED,
    index: str = "auto",
    beams: int = 4,
    device: str = "cpu",
    windows: Windows = AS_MODEL,
    json: bool = False,
) -> None:
    """Perplexity of held-out text with and without the datastore; of translations BLEU and chrF too; of a run how well it fills masks.

    Args:
        datastore: what realm knn build made.
        sources: held-out documents, JSONL files of pairs, or for a run JSONL files of {"text" with one [MASK], "target"}.
        model: the model, if it is no longer where the datastore found it.
        mix: how neighbours are mixed in.
        index: kind of the search; auto is exact.
        beams: of translation; 0 leaves translating out.
        device: where the model runs.
        windows: how text becomes predictions.
        json: print one JSON object as the last line.
    """
    from realm.knn.session import evaluate

    with Progress() as progress:
        found = evaluate(
            datastore,
            sources,
            windows.options(),
            mix.mixing(),
            model=model,
            kind=index,
            beams=beams,
            device=device,
            progress=progress.count,
        )
    _tell(found, json)


def knn_tune(
    datastore: Store,
    sources: Sources,
    /,
    *,
    out: Path,
    model: str = "",
    k: tuple[int, ...] = (),
    a: tuple[float, ...] = (),
    temperature: tuple[float, ...] = (),
    metric: str = "l2",
    gate: bool = False,
    report: Path | None = None,
    index: str = "auto",
    device: str = "cpu",
    windows: Windows = AS_MODEL,
    json: bool = False,
) -> None:
    """Find k, a and temperature on held-out text; all points of the grid come from one run of model and search.

    Args:
        datastore: what realm knn build made.
        sources: held-out documents, or JSONL files of pairs.
        out: the settings, a JSON file for --settings.
        model: the model, if it is no longer where the datastore found it.
        k: numbers of neighbours to try.
        a: shares to try.
        temperature: temperatures to try; without any, multiples of the mean distance.
        metric: l2 or ip.
        gate: also train an adaptive a, which says a for each prediction.
        report: an HTML page with plots.
        index: kind of the search; auto is exact.
        device: where the model runs.
        windows: how text becomes predictions.
        json: print one JSON object as the last line.
    """
    from realm.knn.session import Session, tune_on
    from realm.report.knn import write_grid

    grid = {"neighbours": k, "shares": a, "temperatures": temperature}
    with Progress() as progress:
        session = Session.open(datastore, model=model, kind=index, metric=metric, device=device)
        found = tune_on(session, sources, windows.options(), grid, out, gate=gate, progress=progress.count)
    if report is not None:
        write_grid(report, found)
    if not json:
        show.facts({name: value for name, value in found.items() if name != "grid"})
    show.last_line(found, json)


def knn_prune(
    datastore: Store,
    /,
    *,
    out: Path,
    method: str = "merge",
    keep: float = 0.5,
    seed: int = 0,
    model: str = "",
    device: str = "cpu",
    json: bool = False,
) -> None:
    """Make a smaller datastore of one; the old one stays as it is.

    Args:
        datastore: what realm knn build made.
        out: the smaller one's directory; must not exist.
        method: random; known (drops what the model predicts best by itself); merge (near keys of frequent tokens become their mean).
        keep: share of the keys to keep.
        seed: of random and merge.
        model: the model, if it is no longer where the datastore found it; only known runs it.
        device: where the model runs.
        json: print one JSON object as the last line.
    """
    from realm.knn.session import pruned

    with Progress() as progress:
        made = pruned(datastore, out, method, keep, seed=seed, model=model, device=device, progress=progress.count)
    _tell({"datastore": str(out), **asdict(made.facts)}, json)


def knn_generate(
    datastore: Store,
    text: Text,
    /,
    *,
    model: str = "",
    mix: Mix = FIXED,
    index: str = "auto",
    tokens: int = 64,
    beams: int = 1,
    sample: bool = False,
    seed: int = 0,
    device: str = "cpu",
    json: bool = False,
) -> None:
    """Go on with a text, or translate it, with the neighbours mixed in.

    Args:
        datastore: what realm knn build made.
        text: a beginning, or a sentence to translate.
        model: the model, if it is no longer where the datastore found it.
        mix: how neighbours are mixed in.
        index: kind of the search; auto is exact.
        tokens: most tokens to generate.
        beams: of beam search; 1 is greedy.
        sample: draw tokens instead of taking the best.
        seed: of drawing.
        device: where the model runs.
        json: print one JSON object as the last line.
    """
    from realm.knn.session import generate

    options = {"tokens": tokens, "beams": beams, "sample": sample, "seed": seed}
    found = generate(datastore, text, mix.mixing(), model=model, kind=index, device=device, **options)  # type: ignore[arg-type]
    _tell(found, json)


def _tell(found: dict[str, Any], json: bool) -> None:
    if not json:
        show.facts(found)
    show.last_line(found, json)
