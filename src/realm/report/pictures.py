"""Which charts the numbers of a stage make: captions, lines that stand together, what the axis means. Report and web page draw the same."""

from dataclasses import dataclass

from realm.report.read import StageRecord
from realm.train.metrics import SHARES

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
    "dev_recall": "Recall on dev: an answer among 20 blocks",
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
NOT_DRAWN = (*SHARES, "seconds_left", "dev_recall_gain")
RATES = ("accuracy", "filled_with_block", "token_accuracy", "held_out_accuracy", "p_null", "distinct", "probe_recall", "found", "readable")
FRACTIONS = (*RATES, "dev_em", "dev_recall", "excluded_share", "collapsed", "skipped", "topk_overlap", "stale_share")
SIGNED = ("marginal_utility", "held_out_utility", "utility_rank_1")
REFRESH = ("topk_overlap", "stale_share", "refresh_seconds", "blocks_per_second", "wait_seconds", "refresher_restarts")
SPEED = ("tokens_per_second", "seconds_per_step")
MACHINERY = ("lr", "grad_norm", "skipped", "valid", "collapsed", "staleness_steps", "staleness_highest", *SPEED, *REFRESH)
MOST_LINES = 3
"""Colours and dashes there are; of the ranks no more are drawn."""


@dataclass(frozen=True)
class Picture:
    """One chart of a stage.

    Attributes:
        caption: what it shows.
        lines: (label, column of the stage) of each line; with one line the caption says it all.
        unit: the values are fractions: the axis goes from 0 to 1.
        zero: the sign matters: the axis holds 0.
        machinery: for those who look for a fault, not for everybody.
    """

    caption: str
    lines: list[tuple[str, str]]
    unit: bool
    zero: bool
    machinery: bool


def pictures(stage: StageRecord) -> list[Picture]:
    """The charts of a stage, in the order in which people read them."""
    groups = _groups(stage)
    inside = {other for group in groups.values() for other in group[1:]}
    return [_picture(stage, name, groups.get(name, (name,))) for name in ordered_columns(stage) if name not in inside]


def _picture(stage: StageRecord, name: str, group: tuple[str, ...]) -> Picture:
    names = [n for n in group if n in stage.columns][:MOST_LINES]
    legend = {n: f"rank {_rank(n)}" for n in names if n.startswith(RANKED)} | LEGEND
    values = [y for n in names for _, y in stage.columns[n]]
    unit = name in FRACTIONS and min(values) >= 0 and max(values) <= 1
    return Picture(CAPTIONS.get(name, name), [(legend.get(n, n), n) for n in names], unit, name in SIGNED, name in MACHINERY)


def _groups(stage: StageRecord) -> dict[str, tuple[str, ...]]:
    """Columns that one picture shows: with the first of each stand the others. Of the ranks three are drawn."""
    ranks = sorted((n for n in stage.columns if n.startswith(RANKED)), key=_rank)
    kept = sorted({ranks[0], ranks[len(ranks) // 2], ranks[-1]}, key=_rank) if ranks else []
    together = {kept[0]: (*kept, *(n for n in ranks if n not in kept))} if kept else {}
    return {**TOGETHER, **together}


def _rank(name: str) -> int:
    return int(rank) if (rank := name.removeprefix(RANKED)).isdecimal() else 0


def ordered_columns(stage: StageRecord) -> list[str]:
    """Known columns in the order of ``CAPTIONS``, then the others by name."""
    known = list(CAPTIONS)
    shown = [name for name in stage.columns if name not in NOT_DRAWN]
    return sorted(shown, key=lambda name: (known.index(name) if name in CAPTIONS else len(known), name))
