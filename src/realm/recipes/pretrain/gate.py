"""Which networks of pre-training are published where ``pretrain.publish`` is "better": what it learnt, or what it began with."""

from collections.abc import Callable
from typing import Any

from realm.nn.model import RealmModel
from realm.recipes.better import Verdict, better_of
from realm.recipes.pretrain.evidence import held_out_recall
from realm.recipes.pretrain.held_out import evaluate_held_out
from realm.recipes.pretrain.task import RETRIEVER, PretrainTask

RECALL = "held-out sentences with the hidden span among the embedder's 5 best blocks"
UTILITY = "marginal utility on held-out sentences, in nats"


def keep_better(task: PretrainTask, start: Callable[[], RealmModel]) -> dict[str, Any]:
    """Go back to the start of a network that is worse after the stage than before it; an index is made again of a retriever that goes back.

    Args:
        task: after its last step, over the index of its last parameters.
        start: builds the networks that the stage began with.

    Returns:
        A fact for the stage for each network that learnt: ``Verdict.facts`` under "retriever", and under "reader" or "encoder".
    """
    began, queries, facts = start(), task.held_out_queries(), {}
    if task.retriever_learnt:
        verdict = Verdict(RECALL, task.first_recall, held_out_recall(task.view, queries, task.section.batch))
        if not verdict.improved:
            for part in filter(task.model.has, RETRIEVER):
                getattr(task.model, part).load_state_dict(getattr(began, part).state_dict())
            task.search_start()
        facts["retriever"] = verdict.facts()
    name = "reader" if task.section.fill == "pointer" else "encoder"

    def utility() -> float:
        return evaluate_held_out(task.view, queries, task.section.batch)["held_out_utility"]

    facts[name] = better_of(getattr(task.model, name), getattr(began, name).state_dict(), UTILITY, utility).facts()
    return facts
