"""One section a stage: its curves, grouped by what they tell, and the numbers behind them as a table."""

from realm.report.chart import Series, line_chart, short
from realm.report.markup import Html, join, table, tag
from realm.report.read import RunRecord, StageRecord
from realm.report.shares import time_shares
from realm.train.metrics import SHARES

ABOUT = {
    "ict": ("Inverse cloze task", "The embedder learns to find the block that a sentence was taken from: a first retriever."),
    "warm": ("Reading warm start", "The encoder learns to fill a masked span by reading it off a block that holds it."),
    "pretrain": ("REALM pre-training", "Retriever and encoder learn together: a document that helps to fill a mask is rewarded."),
    "finetune": ("Fine-tuning", "Retriever and reader learn from questions and answers; documents keep their embeddings."),
    "closed_book": ("Closed book", "The encoder alone learns to answer: what can be remembered without documents."),
    "bm25": ("BM25 + reader", "The same reader on the candidates of BM25."),
    "tfidf": ("TF-IDF + reader", "The same reader on the candidates of TF-IDF."),
    "fused": ("REALM + BM25, fused", "The same reader on the candidates of both, fused by reciprocal rank."),
    "orqa": ("ORQA", "The retriever of ICT alone, with a reader whose encoder was trained on without retrieval."),
}
CAPTIONS = {
    "loss": "Loss",
    "accuracy": "Accuracy: own block found in the batch",
    "filled_with_block": "Held-out spans filled",
    "span_log_prob": "log p of a span",
    "marginal_utility": "Marginal utility: log p(y|x) − log p(y|null, x)",
    "token_accuracy": "Masked wordpieces filled right",
    "utility_rank_1": "Utility of a document by its rank",
    "held_out_loss": "Held-out sentences: loss",
    "held_out_utility": "Held-out sentences: marginal utility",
    "held_out_accuracy": "Held-out sentences: masked wordpieces filled right",
    "p_null": "p(null): weight of no document",
    "entropy": "Entropy of p(z|x), in nats",
    "distinct": "Distinct documents retrieved in a batch, share",
    "distinct_per_1000": "Distinct documents retrieved for 1,000 queries",
    "excluded_share": "Hits that exclusion forbids, share",
    "probe_recall": "Recall on the probe set",
    "tokens_per_second": "Wordpieces read a second",
    "seconds_per_step": "Seconds a step, refreshes included",
    "staleness_steps": "Staleness of the index, in steps",
    "staleness_highest": "Oldest index searched, in steps",
    "staleness_rows": "Staleness of a row of a mixed index, in steps",
    "embedded_share": "Blocks that a refresh embedded, share",
    "topk_overlap": "Documents that two indexes in a row both retrieve, share",
    "stale_share": "Documents that a fresh index would not have retrieved, share",
    "refresh_seconds": "Seconds of a refresh",
    "blocks_per_second": "Blocks embedded a second",
    "wait_seconds": "Seconds the trainer spent on a swap",
    "refresher_restarts": "Refreshers started again",
    "collapsed": "Collapse alarm",
    "retriever_loss": "Retriever loss",
    "reader_loss": "Reader loss",
    "found": "Questions with an answer in the beam",
    "readable": "Questions with an answer in the blocks read",
    "dev_em": "Exact match on dev",
    "lr": "Learning rate",
    "grad_norm": "Gradient norm",
    "skipped": "Steps skipped",
    "valid": "Valid examples a step",
}
TOGETHER = {
    "filled_with_block": ("filled_with_block", "filled_without"),
    "token_accuracy": ("token_accuracy", "token_accuracy_null"),
    "held_out_accuracy": ("held_out_accuracy", "held_out_accuracy_null"),
}
LEGEND = {
    "filled_with_block": "with the block",
    "filled_without": "with nothing",
    **dict.fromkeys(("token_accuracy", "held_out_accuracy"), "with documents"),
    **dict.fromkeys(("token_accuracy_null", "held_out_accuracy_null"), "with nothing"),
}
RANKED = "utility_rank_"
NOT_DRAWN = (*SHARES, "seconds_left")
RATES = ("accuracy", "filled_with_block", "token_accuracy", "held_out_accuracy", "p_null", "distinct", "probe_recall", "found", "readable")
FRACTIONS = (*RATES, "dev_em", "excluded_share", "collapsed", "skipped", "topk_overlap", "stale_share", "embedded_share")
SIGNED = ("marginal_utility", "held_out_utility", "utility_rank_1")
REFRESH = ("topk_overlap", "stale_share", "embedded_share", "refresh_seconds", "blocks_per_second", "wait_seconds", "refresher_restarts")
SPEED = ("tokens_per_second", "seconds_per_step")
MACHINERY = ("lr", "grad_norm", "skipped", "valid", "collapsed", "staleness_steps", "staleness_highest", "staleness_rows", *SPEED, *REFRESH)
MOST_ROWS = 60
MOST_LINES = 3
"""Colours and dashes there are; of the ranks no more are drawn."""


def stages_section(run: RunRecord) -> Html | None:
    """All stages that left numbers or facts."""
    shown = [_stage(stage) for stage in run.stages if stage.columns or stage.facts]
    return tag("section", tag("h2", "Training"), *shown) if shown else None


def _stage(stage: StageRecord) -> Html:
    title, about = ABOUT.get(stage.name, (stage.name, None))
    groups = _groups(stage)
    drawn = [name for name in _ordered(stage) if name not in {other for group in groups.values() for other in group[1:]}]
    telling = [_figure(stage, name) for name in drawn if name not in MACHINERY]
    machinery = [_figure(stage, name) for name in drawn if name in MACHINERY]
    parts = [
        tag("h3", title),
        tag("p", about, class_="about") if about else None,
        _outcome(stage),
        tag("div", *telling, class_="charts") if telling else None,
        time_shares(stage),
        tag("details", tag("summary", "Learning rate, gradients and other machinery"), tag("div", *machinery, class_="charts"))
        if machinery
        else None,
        _numbers(stage) if drawn else None,
    ]
    return tag("article", *parts)


def _groups(stage: StageRecord) -> dict[str, tuple[str, ...]]:
    """Columns that one picture shows: with the first of each stand the others. Of the ranks three are drawn."""
    ranks = sorted((n for n in stage.columns if n.startswith(RANKED)), key=_rank)
    kept = sorted({ranks[0], ranks[len(ranks) // 2], ranks[-1]}, key=_rank) if ranks else []
    together = {kept[0]: (*kept, *(n for n in ranks if n not in kept))} if kept else {}
    return {**TOGETHER, **together}


def _rank(name: str) -> int:
    return int(rank) if (rank := name.removeprefix(RANKED)).isdecimal() else 0


def _ordered(stage: StageRecord) -> list[str]:
    """Known columns in the order of ``CAPTIONS``, then the others by name."""
    known = list(CAPTIONS)
    shown = [name for name in stage.columns if name not in NOT_DRAWN]
    return sorted(shown, key=lambda name: (known.index(name) if name in CAPTIONS else len(known), name))


def _outcome(stage: StageRecord) -> Html | None:
    """What the stage wrote about itself, but for bookkeeping."""
    hidden = ("format", "stage", "fingerprint", "probe")
    facts = [(k, v) for k, v in stage.facts.items() if k not in hidden and isinstance(v, bool | int | float | str)]
    if not facts:
        return None
    words = [f"{k.replace('_', ' ')} {_fact(v)}" for k, v in facts]
    return tag("p", join(*(tag("span", w) for w in words)), class_="outcome")


def _fact(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else short(value)


def _figure(stage: StageRecord, name: str) -> Html:
    names = [n for n in _groups(stage).get(name, (name,)) if n in stage.columns][:MOST_LINES]
    caption = CAPTIONS.get(name, name)
    legend = {n: f"rank {_rank(n)}" for n in names if n.startswith(RANKED)} | LEGEND
    series = [Series(legend.get(n, n), stage.columns[n]) for n in names]
    values = [y for s in series for _, y in s.points]
    chart = line_chart(caption, series, unit=name in FRACTIONS and min(values) >= 0 and max(values) <= 1, zero=name in SIGNED)
    shown = [
        tag(
            "span",
            tag("i", "", class_=f"swatch s{i}") if len(series) > 1 else None,
            f"{s.name} " if len(series) > 1 else "",
            short(s.points[-1][1]),
        )
        for i, s in enumerate(series)
    ]
    return tag("figure", tag("figcaption", tag("span", caption), tag("span", *shown, class_="last")), chart)


def _numbers(stage: StageRecord) -> Html:
    """The curves as a table, for reading and for screen readers; long runs are thinned, the last row always stands."""
    names = _ordered(stage)
    values: dict[float, dict[str, float]] = {}
    for name in names:
        for step, value in stage.columns[name]:
            values.setdefault(step, {})[name] = value
    steps = sorted(values)
    every = max(1, -(-len(steps) // MOST_ROWS))
    kept = steps[::every] if (len(steps) - 1) % every == 0 else [*steps[::every], steps[-1]]
    rows = [[short(step), *(short(values[step].get(name)) for name in names)] for step in kept]
    caption = "Numbers behind the curves" + (f" (every {every}th row)" if every > 1 else "")
    return tag("details", tag("summary", caption), table(["step", *names], rows, caption))
