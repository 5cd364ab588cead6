"""Where the time of a training step went."""

from realm.report.markup import Html, tag
from realm.report.read import StageRecord
from realm.train.metrics import PARTS

WHAT = {
    "data": "choosing sentences and building inputs",
    "search": "embedding the queries and searching the index",
    "forward": "both networks, and the loss",
    "backward": "gradients, optimiser, checkpoints, logging",
    "waiting": "refreshes, swaps of the index, evaluation",
    "watching": "measuring the numbers of this page",
}


def time_shares(stage: StageRecord) -> Html | None:
    """One bar a part of the step, over all rows of the stage by their time; None where nothing was measured."""
    steps = {part: dict(stage.columns.get(f"share_{part}", [])) for part in PARTS}
    weight = dict(stage.columns.get("seconds_per_step", []))
    known = [step for step in weight if all(step in values for values in steps.values())]
    total = sum(weight[step] for step in known)
    if not known or total <= 0:
        return None
    shares = {part: sum(weight[step] * values[step] for step in known) / total for part, values in steps.items()}
    rows = [
        tag(
            "div",
            tag("dt", part),
            tag("dd", tag("i", tag("i", "", style=f"width:{100 * min(1.0, max(0.0, share)):.1f}%"), class_="bar", aria_hidden="true")),
            tag("dd", f"{100 * share:.1f} %", class_="share"),
            tag("dd", WHAT[part], class_="note"),
        )
        for part, share in shares.items()
    ]
    return tag("div", tag("p", "Where the time went", class_="smallhead"), tag("dl", *rows, class_="shares"))
