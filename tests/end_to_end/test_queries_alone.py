"""The retriever learns after the reader, by what a reader that stays makes of documents that stay: queries alone change."""

import dataclasses

import pytest
import torch

from realm.answering.opening import open_run
from realm.errors import ConfigError
from realm.models.model import state_sha256
from realm.progress import Progress
from realm.recipe import build_recipe
from realm.runs.run import run_recipe
from realm.storage.generations import published_generations
from realm.storage.paths import RunPaths
from realm.training.context import load_stage, open_context
from realm.training.loop.stepping import one_step
from realm.training.loop.task import LoopOptions
from realm.training.pretrain.score import weigh_candidates
from realm.training.pretrain.stage import starting_model
from realm.training.pretrain.task import PretrainTask

FROZEN = {"documents": "frozen", "reader_first": 4, "steps": 8, "held_out": 4, "eval_every": 4}


def pretrained(recipe, run):
    run_recipe(recipe, run, stages=("corpus", "warm", "ict", "pretrain"), progress=Progress(quiet=True))
    return load_stage(open_context(RunPaths(run), recipe, lambda *_: None), "pretrain")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, towns):
    return towns(tmp_path_factory.mktemp("towns"), **FROZEN)


@pytest.fixture(scope="module")
def run(tmp_path_factory, recipe):
    run = tmp_path_factory.mktemp("frozen") / "run"
    pretrained(recipe, run)
    return run


def test_documents_stay_and_queries_learn(recipe, run):
    """One index, made by the start's embedder; another embedder for queries; and whoever opens the run searches with that."""
    paths = RunPaths(run)
    context = open_context(paths, recipe, lambda *_: None)
    start, end = load_stage(context, "ict").embedder, load_stage(context, "pretrain")
    assert state_sha256(end.documents) == state_sha256(start) != state_sha256(end.embedder)
    assert published_generations(paths.index) == [1]
    opened = open_run(run)
    assert opened.generation.queries is opened.networks.first.embedder
    assert state_sha256(opened.networks.pretrained.embedder) == state_sha256(end.embedder)
    question = context.store.tokenizer.encode(["Who built the bridge of Oslo?"])
    found = opened.source.find(["Who built the bridge of Oslo?"], question, 4)
    with torch.no_grad():
        asked = end.embedder.eval().embed_queries([context.inputs.featurizer.query(question[0])])
        blocks = start.eval()(context.inputs.blocks(found.rows[0].tolist()))
    torch.testing.assert_close(torch.from_numpy(found.scores), asked @ blocks.T, rtol=1e-4, atol=1e-4)


def test_the_reader_stays_as_it_was_when_the_retriever_began(towns, tmp_path):
    """The weights of the reader after all steps are those after reader_first; and these do not depend on what comes then."""
    whole = pretrained(towns(tmp_path, **FROZEN), tmp_path / "whole")
    shorter = pretrained(towns(tmp_path, **(FROZEN | {"steps": 6})), tmp_path / "shorter")
    assert state_sha256(whole.reader) == state_sha256(shorter.reader)
    assert state_sha256(whole.embedder) != state_sha256(shorter.embedder)


def test_each_phase_has_its_own_rate(recipe, run):
    """The rate of the retriever's first step is that of a stage that begins: warm-up, then down to nothing at the end."""
    context = open_context(RunPaths(run), recipe, lambda *_: None)
    task = PretrainTask(context, starting_model(context))
    assert [task.phase(step, 8) for step in (0, 3, 4, 7)] == [(0, 4), (0, 4), (4, 8), (4, 8)]
    assert task.phase(0, 4) == (0, 4), "too few steps for a second phase"
    task.between(0)
    optimizer, rates = torch.optim.SGD(task.model.parameters(), lr=1.0), []
    for step in range(8):
        one_step(task, step, optimizer, LoopOptions(steps=8, lr=1.0, warmup=1))
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[:4] == rates[4:] and rates[0] > rates[3] > 0


def test_a_killed_stage_goes_on_as_if_nothing_had_been(recipe, run, towns, tmp_path, interrupt_each):
    again = towns(tmp_path, **FROZEN)
    interrupt_each({"pretrain"})
    with pytest.raises(KeyboardInterrupt):
        pretrained(again, tmp_path / "run")
    ended = pretrained(again, tmp_path / "run")
    for name, value in load_stage(open_context(RunPaths(run), recipe, lambda *_: None), "pretrain").state_dict().items():
        assert torch.equal(value, ended.state_dict()[name]), name


def test_documents_that_stay_are_looked_up_and_not_embedded_again(recipe, run, monkeypatch):
    """The retriever's step weighs with the vectors of the index: what embedding each document anew gives, with the same gradient."""
    context = open_context(RunPaths(run), recipe, lambda *_: None)
    task = PretrainTask(context, starting_model(context))
    task.between(0)
    queries = [task.queries.query(at, item) for at, item in task.queries.order.batch(0, 6)]
    retrieved, embedder, read = task.view.retrieve(queries), task.model.embedder, []
    forward = task.model.documents.forward
    monkeypatch.setattr(task.model.documents, "forward", lambda sequences: (read.append(len(sequences)), forward(sequences))[1])
    found = []
    for known in (None, task.view.known):
        embedder.zero_grad()
        weighed = weigh_candidates(task.model, context, queries, retrieved, known=known)
        (weighed.log_p_z.masked_fill(torch.isinf(weighed.log_p_z), 0.0).square().sum()).backward()
        found.append((weighed.log_p_z, *[weight.grad.clone() for weight in embedder.parameters() if weight.grad is not None]))
    assert len(found[0]) == len(found[1]) > 2
    for anew, looked_up in zip(*found, strict=True):
        torch.testing.assert_close(looked_up, anew, atol=1e-4, rtol=1e-2)
    assert read[0] > 1 and read[1:] == [1]  # of the second only the null document
    task.step(6)
    assert read[2:] == [1]


def test_the_gate_takes_the_queries_back(towns, tmp_path, monkeypatch):
    """A retriever that got worse goes back without an index being made again."""
    monkeypatch.setattr("realm.training.pretrain.stage.held_out_recall", lambda *_: -1.0)
    model = pretrained(towns(tmp_path, **FROZEN, publish="better"), tmp_path / "run")
    documents = model.documents.state_dict()
    for name, value in model.embedder.state_dict().items():  # the null document's offset is the one that the phase began with
        assert name == "null_offset" or torch.equal(value, documents[name]), name
    assert published_generations(RunPaths(tmp_path / "run").index) == [1]


def test_without_a_reader_that_learnt_first_both_learn():
    section = build_recipe({"pretrain": {"fill": "pointer", "masking": "recurring", "documents": "frozen"}}).pretrain
    assert not any(map(section.reader_stays, range(section.steps)))


def test_the_retriever_learns_by_the_reader_of_another_run(recipe, run, towns, tmp_path):
    """Which stays as that run left it, from the first step; and a run without a step publishes both as they are, with an index."""
    left = load_stage(open_context(RunPaths(run), recipe, lambda *_: None), "pretrain")
    values = {"documents": "frozen", "reader": "frozen", "reader_first": 0, "from_ict": False, "from_warm": False, "held_out": 4}

    def of(root, **more):
        root.mkdir()
        whole = towns(root, **values, **more)
        files = {"corpus": {"sources": list(whole.corpus.sources), "tokenizer": str(run / "corpus")}}
        return build_recipe(dataclasses.asdict(whole), overrides={"model": {"body": str(run / "stages" / "pretrain")}, **files})

    learnt = pretrained(of(tmp_path / "two", steps=2), tmp_path / "learnt")
    assert state_sha256(learnt.reader) == state_sha256(left.reader)
    assert state_sha256(learnt.documents) == state_sha256(left.embedder) != state_sha256(learnt.embedder)
    untaught = pretrained(of(tmp_path / "none", steps=0), tmp_path / "untaught")
    assert state_sha256(untaught.reader) == state_sha256(left.reader) and state_sha256(untaught.embedder) == state_sha256(left.embedder)
    assert published_generations(RunPaths(tmp_path / "untaught").index) == [1] and open_run(tmp_path / "untaught").answerer.reader


def test_a_reader_that_stays_must_be_there(towns, tmp_path):
    with pytest.raises(ConfigError, match="no reader"):
        pretrained(towns(tmp_path, **(FROZEN | {"reader": "frozen", "reader_first": 0})), tmp_path / "run")
    for wrong in ({"fill": "mlm"}, {"reader_first": 4}, {"retriever_rate": 0.0}):
        section = {"fill": "pointer", "masking": "recurring", "reader": "frozen", **wrong}
        with pytest.raises(ConfigError, match=r"pretrain\.reader"):
            build_recipe({"pretrain": section})
    body = build_recipe({"model": {"body": "minilm"}, "pretrain": {"fill": "pointer", "reader": "frozen"}}).pretrain
    assert (body.reader_first, body.own_block) == (0, 0.0) and body.reader_stays(0)
