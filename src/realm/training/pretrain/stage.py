"""The stage "pretrain": where its networks come from, and which of their weights are published with which index."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

from realm.errors import ConfigError
from realm.models.embedder import Embedder
from realm.models.model import RealmModel
from realm.training.context import StageContext, is_published, load_stage, publish_index, publish_stage, train
from realm.training.loop.checkpoint import Verdict, better_of, load_weights, shared_best
from realm.training.loop.distributed import on_first, world
from realm.training.pretrain.monitor import held_out_recall, own_block_rank
from realm.training.pretrain.questions import pretraining_fingerprint
from realm.training.pretrain.score import evaluate_held_out
from realm.training.pretrain.task import RETRIEVER, PretrainTask
from realm.training.starting import new_model, with_new_reader
from realm.training.warm import require_encoder, require_reading

RECALL = "held-out sentences with the hidden span among the embedder's 5 best blocks"
UTILITY = "marginal utility on held-out sentences, in nats"
OWN = "mean reciprocal rank of the block that a sentence is from"


def starting_model(context: StageContext) -> RealmModel:
    """ICT's embedder and the warm encoder, or fresh ones. Raises ConfigError: as for :func:`with_what_fills`."""
    section = context.recipe.pretrain
    model = load_stage(context, "ict") if section.from_ict and section.from_warm else new_model(context).to(context.device)
    if section.from_ict and not section.from_warm:
        model = model.with_parts(embedder=load_stage(context, "ict").embedder)
    if section.from_warm:
        model = model.with_parts(encoder=load_stage(context, "warm").encoder)
    model = with_what_fills(context, model)
    return model.fork_document_embedder() if section.queries_alone else model


def with_what_fills(context: StageContext, model: RealmModel) -> RealmModel:
    """The model with its encoder, or in its place a pointing reader; without a step of pre-training nothing changes.

    Raises ConfigError: the body has no encoder, and the recipe fills masks with one; or no reader, and the recipe's is frozen."""
    if context.recipe.pretrain.reader == "frozen" and not model.has("reader"):
        cure = "Set model.body to RUN/stages/pretrain of a run that taught one, or leave pretrain.reader out."
        raise ConfigError("'pretrain.reader' is 'frozen', and this body has no reader", path=context.paths.config, cure=cure)
    if context.recipe.pretrain.fill == "pointer":
        return with_new_reader(context, model, pointer=True).to(context.device)
    if context.recipe.pretrain.fill == "mlm" and context.recipe.pretrain.steps:
        require_encoder(context, model)
    return model


def run_pretrain(context: StageContext) -> None:
    """Pre-train, and publish embedder, encoder and the index of the last step."""
    mark = pretraining_fingerprint(context)
    if is_published(context, "pretrain", mark):
        return
    model = starting_model(context)
    if not context.recipe.pretrain.steps:
        generation = on_first(lambda: publish_index(context, model).number)
        publish_stage(context, "pretrain", model, mark, {"steps": 0, "generation": generation})
        return
    if context.recipe.pretrain.fill == "mlm":
        require_reading(context)
    task = PretrainTask(context, model)
    context.say(f"pretrain: {task.queries.sentences.summary}")
    if context.recipe.pretrain.held_out and not task.queries.held_out:
        context.say("pretrain: too few sentences to hold any out, so the best weights are unknown; publishing the last")
    with closing(task.source):
        steps = train(context, task, context.recipe.pretrain, mark)
        choice = choose_weights(context, model, steps)
        task.finalize(int(choice["published_step"]))
        if context.recipe.pretrain.publish == "better" and task.queries.held_out:
            choice |= {"published": "better", "gate": keep_better(task, lambda: starting_model(context))}
    sentences = task.queries.sentences
    facts = {"steps": steps, **choice, "generation": task.generation.number, "own_em": task.own_em}
    facts["encoded"] = task.watcher.encoded * world()  # the ranks' shares are as large as each other, but for some wordpieces
    facts |= {"sentences": len(sentences), "spans": sentences.spans, "dropped": dict(sentences.dropped)}
    publish_stage(context, "pretrain", model, mark, facts)
    task.source.tidy()


def choose_weights(context: StageContext, model: RealmModel, steps: int) -> dict[str, Any]:
    """Load the weights that ``pretrain.publish`` names. Returns published, published_step, and best_step with best_utility."""
    facts: dict[str, Any] = {"published": "last", "published_step": steps}
    found = shared_best(context.paths.checkpoints(PretrainTask.name))
    if found is None:
        return facts
    step, utility, weights = found
    facts |= {"best_step": step, "best_utility": utility}
    if context.recipe.pretrain.publish != "best":
        return facts
    load_weights(weights, model)
    return facts | {"published": "best", "published_step": step}


def search_verdict(task: PretrainTask, began: Embedder, *recall: float) -> Verdict:
    """A measure by which search got worse, if one says so. ``recall``: of hidden spans, by ``began`` and then by the task's embedder."""
    verdicts = [Verdict(RECALL, *recall)]
    if task.section.queries_alone:
        verdicts.append(Verdict(OWN, *(own_block_rank(task.view, embedder) for embedder in (began, task.model.embedder))))
    return min(verdicts, key=lambda one: one.improved)


def keep_better(task: PretrainTask, start: Callable[[], RealmModel]) -> dict[str, Any]:
    """Reset networks that are worse after the stage than the ``start``; if the retriever is reset, the index is rebuilt.

    Returns ``Verdict.facts`` under "retriever", and under "reader" or "encoder"."""
    began, queries, section, facts = start(), task.queries.held_out_queries(), task.section, {}
    if task.retriever_learnt:
        verdict = search_verdict(task, began.embedder, task.first_recall, held_out_recall(task.view, queries, section.batch))
        if not verdict.improved:
            for part in filter(task.model.has, RETRIEVER):
                getattr(task.model, part).load_state_dict(getattr(began, part).state_dict())
            task.search_start()
            passes = section.steps * section.batch / len(task.queries.sentences)
            told = f"{verdict.measure}: {verdict.before:.3f}, then {verdict.after:.3f}; each sentence was read {passes:.1f} times"
            task.context.say(f"pretrain: search got worse and stays as it began ({told}); fewer steps may help")
        facts["retriever"] = verdict.facts()
    if section.fill == "lm":  # nothing else learns
        return facts
    name = "reader" if section.fill == "pointer" else "encoder"

    def utility() -> float:
        return evaluate_held_out(task.view, queries, section.batch)["held_out_utility"]

    facts[name] = better_of(getattr(task.model, name), getattr(began, name).state_dict(), UTILITY, utility).facts()
    return facts
