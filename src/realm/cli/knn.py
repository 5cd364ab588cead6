"""The verbs of kNN-LM and kNN-MT: ``realm knn build | eval | tune | prune | generate``."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from realm.cli import show
from realm.cli.arguments import Datastore, Device, Json, Text
from realm.cli.knn_flags import AS_BUILT, AS_MODEL, FIXED, Mix, Search, Windows
from realm.progress import Progress

Sources = Annotated[list[Path], tyro.conf.arg(metavar="SOURCE")]
MaybeSources = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="SOURCE")]
Smaller = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DATASTORE")]


def knn_build(
    model: Annotated[str, tyro.conf.arg(metavar="MODEL")],
    sources: MaybeSources = (),
    /,
    *,
    out: Path,
    layer: str = "",
    dtype: str = "float16",
    tokenizer: str = "",
    device: Device = "cpu",
    windows: Windows = AS_MODEL,
    json: Json = False,
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
            progress=partial(progress.count, "knn: keys"),
            announce=announce,
        )
    show.result({"datastore": str(out), **asdict(made.facts), "forecast": expected, "skipped": made.windows.facts["skipped"]}, json)


def knn_eval(
    datastore: Datastore,
    sources: Sources,
    /,
    *,
    search: Search = AS_BUILT,
    mix: Mix = FIXED,
    beams: int = 4,
    pruned: Smaller = (),
    report: Path | None = None,
    windows: Windows = AS_MODEL,
    json: Json = False,
) -> None:
    """Perplexity of held-out text with and without the datastore; of translations BLEU and chrF too; of a run how well it fills masks.

    Args:
        sources: held-out documents, JSONL files of pairs, or for a run JSONL files of {"text" with one [MASK], "target"}.
        beams: of translation; 0 leaves translating out.
        pruned: what realm knn prune made of it, to be measured on the same text: quality against size.
        report: an HTML page with plots.
    """
    from realm.knn.session import evaluate
    from realm.report.knn import write_sizes

    with Progress() as progress:
        points = [
            evaluate(
                path,
                sources,
                windows.options(),
                mix.mixing(),
                model=search.model,
                kind=search.index,
                beams=beams,
                alone=path == datastore,
                device=search.device,
                progress=progress.count,
            )
            for path in (datastore, *pruned)
        ]
    found = {**points[0], "pruned": points[1:]}
    if report is not None:
        write_sizes(report, found)
    for point in () if json else points:
        show.facts(point)
    show.last_line(found, json)


def knn_tune(
    datastore: Datastore,
    sources: Sources,
    /,
    *,
    out: Path,
    search: Search = AS_BUILT,
    k: tuple[int, ...] = (),
    a: tuple[float, ...] = (),
    temperature: tuple[float, ...] = (),
    metric: str = "l2",
    gate: bool = False,
    report: Path | None = None,
    windows: Windows = AS_MODEL,
    json: Json = False,
) -> None:
    """Find k, a and temperature on held-out text; all points of the grid come from one run of model and search.

    Args:
        sources: held-out documents, or JSONL files of pairs.
        out: the settings, a JSON file for --settings.
        k: numbers of neighbours to try.
        a: shares to try.
        temperature: temperatures to try; without any, multiples of the mean distance.
        metric: l2 or ip.
        gate: also train an adaptive a, which says a for each prediction.
        report: an HTML page with plots.
    """
    from realm.knn.session import tune_on
    from realm.report.knn import write_grid

    grid = {"neighbours": k, "shares": a, "temperatures": temperature}
    with Progress() as progress:
        found = tune_on(search.session(datastore, metric), sources, windows.options(), grid, out, gate=gate, progress=progress.count)
    if report is not None:
        write_grid(report, found)
    show.result(found, json, lambda facts: show.facts({name: value for name, value in facts.items() if name != "grid"}))


def knn_prune(
    datastore: Datastore,
    /,
    *,
    out: Path,
    method: str = "merge",
    keep: float = 0.5,
    seed: int = 0,
    model: str = "",
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Make a smaller datastore of one; the old one stays as it is.

    Args:
        out: the smaller one's directory; must not exist.
        method: random; known (drops what the model predicts best by itself); merge (near keys of frequent tokens become their mean).
        keep: share of the keys to keep.
        seed: of random and merge.
        model: the model, if it is no longer where the datastore found it; only known runs it.
    """
    from realm.knn.session import pruned

    with Progress() as progress:
        made = pruned(datastore, out, method, keep, seed=seed, model=model, device=device, progress=progress.count)
    show.result({"datastore": str(out), **asdict(made.facts)}, json)


def knn_generate(
    datastore: Datastore,
    text: Text,
    /,
    *,
    search: Search = AS_BUILT,
    mix: Mix = FIXED,
    tokens: int = 64,
    beams: int = 1,
    sample: bool = False,
    seed: int = 0,
    json: Json = False,
) -> None:
    """Go on with a text, or translate it, with the neighbours mixed in.

    Args:
        text: a beginning, or a sentence to translate.
        tokens: most tokens to generate.
        beams: of beam search; 1 is greedy.
        sample: draw tokens instead of taking the best.
        seed: of drawing.
    """
    from realm.knn.session import generate

    mixing = mix.mixing()
    session = search.session(datastore, mixing.metric)
    show.result(generate(session, text, mixing, tokens=tokens, beams=beams, sample=sample, seed=seed), json)
