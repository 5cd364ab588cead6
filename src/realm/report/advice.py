"""What to try when a run goes wrong; what this run's own numbers show is marked."""

from dataclasses import dataclass

from realm.report.chart import short
from realm.report.markup import Html, tag
from realm.report.read import RunRecord, number

FEW_FOUND = 0.5
NULL_WINS = 0.9
FEW_DISTINCT = 0.25


@dataclass(frozen=True)
class Trouble:
    """A symptom, what it means, what to try, and whether this run has it."""

    symptom: str
    meaning: str
    cure: str
    seen: bool


def troubles(run: RunRecord) -> list[Trouble]:
    """The usual troubles in the order of the stages."""
    warm, pretrain, finetune = run.stage("warm"), run.stage("pretrain"), run.stage("finetune")
    utility, p_null, distinct = (pretrain.last(name) for name in ("marginal_utility", "p_null", "distinct"))
    found = finetune.last("found")
    rung = {str(row.get("alarm")) for row in run.alarms}
    probe = [value for _, value in pretrain.columns.get("probe_recall", [])]
    return [
        Trouble(
            "The encoder does not learn to read",
            "It fills held-out spans hardly better with the block than without; pre-training would then only teach noise.",
            "Raise warm.steps; check that sentences and their spans look right (realm corpus info); start from a published body.",
            warm.facts.get("reads") is False,
        ),
        Trouble(
            "Marginal utility at or below 0",
            "Documents do not help to fill the masks, so the retriever gets no useful gradient.",
            "Look at the share of spans that stand in one block only: with the origin excluded they cannot be looked up. Add documents "
            "that state the same facts, train warm for longer, or start from a published body.",
            "utility" in rung or (utility is not None and utility <= 0),
        ),
        Trouble(
            "Pre-training takes back what it gave",
            "On sentences that are not trained on, documents help less than they did before: the networks learn the training sentences.",
            'Keep the best weights (pretrain.publish = "best"), lower pretrain.lr or pretrain.retriever_rate, or give more documents.',
            "held_out" in rung,
        ),
        Trouble(
            "Collapse: probe recall falls, few distinct documents",
            "The retriever drifts to the same documents for every sentence.",
            "Lower pretrain.retriever_rate, refresh more often (refresh_every), train ict for longer; stop_on_collapse ends such a run.",
            bool(rung & {"collapse", "distinct"})
            or bool(pretrain.last("collapsed"))
            or (distinct is not None and distinct < FEW_DISTINCT)
            or (len(probe) > 2 and probe[-1] < probe[0]),
        ),
        Trouble(
            "p(null) near 1",
            "The encoder prefers to read nothing: the masks can be guessed, or it never learnt to use a document.",
            "Mask rarer things (a gazetteer, [corpus] gazetteer), check warm's test, raise pretrain.candidates.",
            p_null is not None and p_null > NULL_WINS,
        ),
        Trouble(
            "The index grows too old",
            "The refresher does not keep up: the trainer reaches the staleness limit and waits.",
            "Give it more (refresher.threads, workers, devices), raise pretrain.refresh_every, look into refresher.log.",
            "staleness" in rung,
        ),
        Trouble(
            "Few questions have an answer in the beam",
            "Fine-tuning learns only from questions whose answer stands in a retrieved block.",
            "Check that the answers stand in the documents word for word (realm data check), widen finetune.beam, pre-train for longer.",
            found is not None and found < FEW_FOUND,
        ),
        Trouble(
            "Fine-tuning lowers recall on dev",
            "The question embedder moves further than a few questions can guide it: what pre-training taught it to find is lost.",
            "Lower finetune.retriever_rate, fine-tune for fewer steps, or publish the best weights on dev (finetune.publish).",
            "recall" in rung,
        ),
    ]


def alarms_section(run: RunRecord) -> Html | None:
    """The alarms that the run raised, as they were said."""
    if not run.alarms:
        return None
    shown = [
        tag(
            "li",
            tag("h3", str(row.get("alarm")), tag("span", f"step {short(number(row.get('step')))}", class_="badge")),
            tag("p", str(row.get("problem", ""))),
            tag("p", tag("b", "Try: "), str(row.get("cure", ""))),
            class_="seen",
        )
        for row in run.alarms
    ]
    return tag("section", tag("h2", "Alarms"), tag("ul", *shown, class_="advice"))


def advice(run: RunRecord) -> Html:
    """The list, the troubles of this run first."""
    items = sorted(troubles(run), key=lambda t: not t.seen)
    shown = [
        tag(
            "li",
            tag("h3", t.symptom, tag("span", "seen in this run", class_="badge") if t.seen else None),
            tag("p", t.meaning),
            tag("p", tag("b", "Try: "), t.cure),
            class_="seen" if t.seen else None,
        )
        for t in items
    ]
    return tag("section", tag("h2", "What to try when it goes wrong"), tag("ul", *shown, class_="advice"))
