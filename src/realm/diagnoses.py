"""What can go wrong in a run: one table of conditions, problems and cures.

Alarms say them while a stage trains, the report marks those that a run shows, and the tables of docs/watching.md and
docs/troubleshooting.md hold the same words.
"""

from collections.abc import Callable
from dataclasses import dataclass

LATE = 0.25
"""Share of the stage before which a utility around 0 is the ordinary start."""
ROWS = 3
"""Rows in a row that must show it: one row is the mean of 20 steps and may be luck."""
FEW_DISTINCT = 0.25
"""Share of distinct documents among those that could be distinct; a healthy retriever stays far above."""
LOST_RECALL = 0.05
"""Recall on dev that fine-tuning may cost: 10 of 200 questions may be luck."""
LOST_UTILITY = 0.05
"""Nats of marginal utility that held-out sentences may lose since it was highest."""
NULL_WINS = 0.9
FEW_FOUND = 0.5


@dataclass(frozen=True)
class Diagnosis:
    """One thing that goes wrong.

    Args:
        name: what the row of an alarm in metrics.jsonl calls it.
        stage: whose rows show it.
        column: the number that shows it; rows without it say nothing.
        shows: (value, share of the stage's steps that are done) -> whether a row shows it.
        when: the same in words.
        sign: how people see it, as a heading.
        problem: what it means.
        cure: what to try.
        told: what an alarm says before the problem, {value} for the number; empty: no alarm, the report alone tells it.
        rows: so many rows in a row must show it.
        from_highest: the number is taken as its change since it was highest.
    """

    name: str
    stage: str
    column: str
    shows: Callable[[float, float], bool]
    when: str
    sign: str
    problem: str
    cure: str
    told: str = ""
    rows: int = 1
    from_highest: bool = False


def diagnoses(*, attainable: float = 1.0, staleness_limit: int = 0) -> tuple[Diagnosis, ...]:
    """The table, in the order of the stages.

    Args:
        attainable: the largest share of distinct documents that the corpus allows in one batch (``attainable_share``).
        staleness_limit: steps above which an index is too old; 0: none is.
    """
    return (
        Diagnosis(
            name="reads",
            stage="warm",
            column="reads",
            shows=lambda value, done: value < 1,
            when="the warm stage ended by its last step instead of its test",
            sign="The encoder does not learn to read",
            problem="it fills held-out spans hardly better with the block than without, and pre-training would only teach noise",
            cure="Raise warm.steps in a new run; check that sentences and their spans look right (realm corpus show); keep model.dropout "
            "low for a tiny model; or start from a published body (model.body).",
        ),
        Diagnosis(
            name="utility",
            stage="pretrain",
            column="marginal_utility",
            shows=lambda value, done: value <= 0 and done > LATE,
            rows=ROWS,
            when="marginal utility at or below 0 in three rows in a row, after the first quarter of the stage",
            sign="Marginal utility at or below 0",
            told="marginal utility {value:.3f}",
            problem="documents do not help to fill the masks, so the retriever learns nothing",
            cure="Look at single_block_span_share (realm corpus info): what stands in one block only cannot be looked up, so add documents "
            "that state the same facts; let the encoder learn to read better (warm.steps, warm.accuracy); raise pretrain.candidates.",
        ),
        Diagnosis(
            name="held_out",
            stage="pretrain",
            column="held_out_utility",
            shows=lambda value, done: value < -LOST_UTILITY,
            rows=2,
            from_highest=True,
            when="marginal utility on held-out sentences is over .05 nats below its highest value in two evaluations in a row",
            sign="Pre-training takes back what it gave",
            told="marginal utility on held-out sentences has changed by {value:+.2f} nats since it was highest",
            problem="documents help less and less: the networks learn the training sentences",
            cure='Keep the weights of the highest (pretrain.publish = "best"), lower pretrain.lr or pretrain.retriever_rate, or give more '
            "documents.",
        ),
        Diagnosis(
            name="collapse",
            stage="pretrain",
            column="collapsed",
            shows=lambda value, done: value > 0,
            when="probe recall is below that of ICT by more than two standard errors at two refreshes in a row",
            sign="Collapse: probe recall falls",
            told="recall of the probe set stays below that of ICT",
            problem="the retriever gets worse, and not by chance",
            cure="Lower pretrain.retriever_rate, refresh more often (pretrain.refresh_every), or train warm or ict for longer; "
            "pretrain.stop_on_collapse ends such a run.",
        ),
        Diagnosis(
            name="distinct",
            stage="pretrain",
            column="distinct",
            shows=lambda value, done: value < FEW_DISTINCT * attainable,
            rows=ROWS,
            when="fewer than a quarter of the distinct documents that are possible, in three rows in a row",
            sign="Collapse: few distinct documents",
            told="only {value:.0%} of the documents retrieved in a batch are distinct",
            problem="the retriever drifts to the same few documents for every sentence",
            cure="Lower pretrain.retriever_rate or pretrain.lr, or refresh more often (pretrain.refresh_every).",
        ),
        Diagnosis(
            name="null",
            stage="pretrain",
            column="p_null",
            shows=lambda value, done: value > NULL_WINS,
            when="p_null is above .9 in the last row",
            sign="p(null) near 1",
            problem="the encoder prefers to read nothing: the masks can be guessed without a document, or it never learnt to use one",
            cure="Mask rarer things (corpus.gazetteer), look at the warm stage's two numbers (filled_with_block, filled_without), or raise "
            "pretrain.candidates; realm explain shows it sentence by sentence.",
        ),
        Diagnosis(
            name="staleness",
            stage="pretrain",
            column="staleness_highest",
            shows=lambda value, done: 0 < staleness_limit <= value,
            when="the index in use has reached refresher.staleness_limit (0: five times pretrain.refresh_every)",
            sign="The index grows too old",
            told=f"the index is {{value:.0f}} steps old, and {staleness_limit} are the limit",
            problem="the refresher does not keep up, and the trainer waits for it",
            cure="Give it more (refresher.threads, workers or devices), raise pretrain.refresh_every, or look into refresher.log.",
        ),
        Diagnosis(
            name="found",
            stage="finetune",
            column="found",
            shows=lambda value, done: value < FEW_FOUND,
            when="found is below .5 in the last row",
            sign="Few questions have an answer in the beam",
            problem="fine-tuning learns only from questions whose answer stands in a retrieved block",
            cure="Check that the answers stand in the documents word for word and are no longer than model.max_span (realm data check "
            "with --corpus: answerable, too_long), widen finetune.beam, or pre-train for longer.",
        ),
        Diagnosis(
            name="recall",
            stage="finetune",
            column="dev_recall_gain",
            shows=lambda value, done: value < -LOST_RECALL,
            when="recall at 20 on 100 dev questions or more (dev_recall) is over .05 below what it was before the first step",
            sign="Fine-tuning lowers recall on dev",
            told="recall on dev has changed by {value:+.3f} since fine-tuning began",
            problem="the retriever unlearns what it could find: the question embedder moves further than a few questions can guide it",
            cure="Lower finetune.retriever_rate (0: the retriever stays as it was), fine-tune for fewer steps, or publish the best weights "
            "on dev (finetune.publish).",
        ),
    )


def attainable_share(blocks: float, batch: float, candidates: float) -> float:
    """The largest share of distinct documents among those that a batch retrieves."""
    return min(1.0, blocks / max(1, batch * (candidates - 1)))
