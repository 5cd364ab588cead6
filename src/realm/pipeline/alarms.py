"""Alarms: what goes wrong in pre-training is said while it runs, not found in the report the day after."""

from collections.abc import Callable

from realm.train.loop import Metrics

LATE = 0.25
"""Share of the stage before which a utility around 0 is the ordinary start."""
ROWS = 3
"""Rows in a row that must show it: one row is the mean of 20 steps and may be luck."""
FEW_DISTINCT = 0.25
"""Share of distinct documents among those that could be distinct; a healthy retriever stays far above."""

Report = Callable[[str, int, int, Metrics], None]


class Alarms:
    """A report callback that hands everything on and speaks up once for each trouble, again only after it had gone.

    ``marginal_utility <= 0`` counts after the first quarter of the stage, ``distinct`` from the start; both must hold for three rows.
    The probe set's own alarm (recall clearly below that of ICT at two refreshes in a row) is passed on as it comes.

    Args:
        report: gets every call.
        say: gets the alarms.
        attainable: the largest share of distinct documents that the corpus allows in one batch.
    """

    def __init__(self, report: Report, say: Callable[[str], None], *, attainable: float = 1.0):
        self._report = report
        self._say = say
        self._attainable = attainable
        self._seen: dict[str, int] = {}

    def __call__(self, stage: str, step: int, steps: int, metrics: Metrics) -> None:
        self._report(stage, step, steps, metrics)
        if stage != "pretrain":
            return
        utility, distinct = metrics.get("marginal_utility"), metrics.get("distinct")
        if utility is not None and self._holds("utility", utility <= 0 and step > LATE * steps):
            self._say(
                f"warning: step {step}: marginal utility {utility:.3f}: documents do not help to fill the masks, so the retriever learns "
                "nothing. See single_block_span_share (realm corpus info), and the warm stage's test."
            )
        if "collapsed" in metrics and self._holds("collapsed", metrics["collapsed"] > 0, rows=1):
            self._say(
                f"warning: step {step}: recall of the probe set {metrics['probe_recall']:.3f} stays below that of ICT: the retriever gets "
                "worse. Lower pretrain.lr, or let the encoder learn to read for longer (warm.steps)."
            )
        if distinct is not None and self._holds("distinct", distinct < FEW_DISTINCT * self._attainable):
            self._say(
                f"warning: step {step}: only {distinct:.0%} of the documents retrieved in a batch are distinct: the retriever is "
                "collapsing. Lower pretrain.lr, or refresh more often (pretrain.refresh_every)."
            )

    def _holds(self, trouble: str, now: bool, *, rows: int = ROWS) -> bool:
        """Whether the trouble has just lasted for so many rows."""
        self._seen[trouble] = self._seen.get(trouble, 0) + 1 if now else 0
        return self._seen[trouble] == rows


def attainable_share(blocks: int, batch: int, candidates: int) -> float:
    """The largest share of distinct documents among those that a batch retrieves."""
    return min(1.0, blocks / max(1, batch * (candidates - 1)))
