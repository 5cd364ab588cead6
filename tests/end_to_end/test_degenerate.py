"""Pre-training where there is nothing to learn from, or something is broken: a clear end, or a step that correctly does nothing."""

import json
import re
import shutil

import numpy as np
import pytest
import torch

from realm.cli import main
from realm.documents.ingest.builder import BuildOptions, build_corpus
from realm.documents.store.blocks import BlockStore
from realm.errors import CorpusError, RealmError, SnapshotError, TrainingError
from realm.models import losses
from realm.progress import Progress
from realm.recipe import load_recipe
from realm.runs.checks import check_corpus
from realm.runs.run import run_recipe
from realm.search.publishing.generation import open_generation
from realm.storage.manifests import seal
from realm.storage.paths import RunPaths
from realm.training.context import load_stage, open_context
from realm.training.masking.sentences import Exclusion
from realm.training.pretrain.task import PretrainTask

QUIET = Progress(quiet=True)
TRAIN = ("corpus", "warm", "ict", "pretrain")


def documents(root, *texts):
    rows = [{"id": f"d{n}", "title": f"Title {n}", "text": text} for n, text in enumerate(texts)]
    (root / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def rows_of(run, stage):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [row for row in rows if row["stage"] == stage]


def context_of(run, **pretrain):
    return open_context(RunPaths(run), load_recipe(run / "config.toml", {"pretrain": pretrain}), lambda *row: None)


@pytest.fixture(scope="module")
def started(tmp_path_factory, write_tiny):
    root = tmp_path_factory.mktemp("degenerate")
    run_recipe(write_tiny(root), root / "run", stages=TRAIN[:3], progress=QUIET)
    return root / "run"


@pytest.fixture
def run(started, tmp_path):
    return shutil.copytree(started, tmp_path / "run")


def pretrain(run, **choices):
    run_recipe(load_recipe(run / "config.toml", {"pretrain": choices}), run, stages=("pretrain",), progress=QUIET)


def damage(run, stage, part):
    model = load_stage(context_of(run), stage)
    with torch.no_grad():
        for parameter in getattr(model, part).parameters():
            parameter.fill_(torch.nan)
    model.save_pretrained(run / "stages" / stage)
    seal(run / "stages" / stage)


def test_no_salient_spans(tmp_path, write_tiny, capsys):
    recipe, words = write_tiny(tmp_path), ["wind", "rain", "snow", "sun", "cloud"]
    documents(tmp_path, *[f"We like the {a} and the {b}. We go home with the {b}." for a in words for b in words if a != b])
    arguments = ["run", str(recipe), "--out", str(tmp_path / "run"), "--stages", ",".join(TRAIN)]
    assert main(arguments) == 2
    assert re.search(
        r"run/corpus: no sentence has a span that can be masked with pretrain.masking = 'salient'.*to 'spans'", capsys.readouterr().err
    )
    assert main([*arguments, "--set", 'pretrain.masking="tokens"']) == 0


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_blocks(tmp_path, write_tiny, capsys, count):
    recipe = write_tiny(tmp_path)
    documents(tmp_path, *[f"The currency of Arvad{n} is the Tirel. In Arvad{n} the winters are long." for n in range(count)])
    assert main(["run", str(recipe), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert ("no usable document" in error) if count == 0 else (f"{count} blocks, fewer than pretrain.candidates = 4 needs" in error)
    assert not (tmp_path / "run" / "stages").exists()


def test_just_enough_blocks(tmp_path, write_tiny):
    """k blocks with the null document; without it one more, unless no block is excluded."""
    recipe = write_tiny(tmp_path)
    documents(tmp_path, *[f"The currency of Arvad{n} is the Tirel. In Arvad{n} the winters are long." for n in range(4)])
    paths = RunPaths(tmp_path / "run")
    build_corpus([tmp_path / "docs.jsonl"], paths.corpus, BuildOptions(vocab_size=300))

    def check(**choices):
        questions = {"finetune": {"train": "", "dev": ""}, "eval": {"qa": ""}}
        check_corpus(paths, load_recipe(recipe, {"pretrain": choices, **questions}))

    check()
    check(null=False, exclude=False)
    check(null=False, candidates=3)
    check(candidates=5, exclude=False)
    with pytest.raises(CorpusError, match=r"4 blocks, fewer than pretrain.candidates = 4 needs. .*candidates = 3"):
        check(null=False)
    with pytest.raises(CorpusError, match="candidates = 4"):
        check(candidates=5)


def test_all_blocks_identical(tmp_path, write_tiny):
    """Every block holds every sentence: all are excluded, only the null document is left, and the loss is that of reading nothing."""
    recipe = write_tiny(tmp_path)
    documents(tmp_path, *["The currency of Arvad is the Tirel. In Arvad the winters are long since 1950."] * 6)
    run_recipe(recipe, tmp_path / "run", stages=TRAIN, progress=QUIET)
    last = rows_of(tmp_path / "run", "pretrain")[-2]
    assert np.isfinite(last["loss"]) and last["valid"] == 4 and last["p_null"] == 1 and last["marginal_utility"] == 0
    context = context_of(tmp_path / "run")
    task = PretrainTask(context, load_stage(context, "pretrain"))
    task.generation = open_generation(context.paths, context.inputs)
    task.step(0).loss.backward()
    assert all(float(p.grad.abs().max()) == 0 for p in task.model.embedder.parameters() if p.grad is not None)
    assert any(float(p.grad.abs().max()) > 0 for p in task.model.encoder.parameters() if p.grad is not None)


@pytest.mark.parametrize("choices", [{}, {"marginal": "joint"}])
@pytest.mark.parametrize("null", [True, False])
def test_every_candidate_excluded(run, null, choices):
    """With the null document the encoder still learns; without it the step is invalid, exactly 0 and changes nothing."""
    context = context_of(run, null=null, **choices)
    task = PretrainTask(context, load_stage(context, "ict").with_parts(encoder=load_stage(context, "warm").encoder))
    task.generation = task.source.between(0, task.model)
    every = np.asarray(context.store.block_ids)
    task.queries.sentences.exclusion.blocks = lambda row, sentence_hash: every
    result = task.step(0)
    result.loss.backward()
    gradients = [p.grad for p in task.model.parameters() if p.grad is not None]
    assert torch.isfinite(result.loss) and all(torch.isfinite(g).all() for g in gradients)
    assert result.valid == (4 if null else 0)
    if not null:
        assert float(result.loss.detach()) == 0 and all(float(g.abs().max()) == 0 for g in gradients)


@pytest.mark.slow
def test_nothing_left_to_learn_from_ends_the_stage(run, monkeypatch):
    """No null document and every block excluded for as long as the loop's patience lasts."""
    monkeypatch.setattr(Exclusion, "blocks", lambda self, row, sentence_hash: np.asarray(self._blocks.block_ids))
    with pytest.raises(TrainingError, match="pretrain: no valid example in 60 steps"):
        pretrain(run, null=False, steps=80, refresh="frozen")


@pytest.mark.parametrize(("stage", "part"), [("ict", "embedder"), ("warm", "encoder")])
@pytest.mark.parametrize("changed", [{}, {"documents": "frozen"}])
def test_nan_in_weights(run, stage, part, changed):
    damage(run, stage, part)
    with pytest.raises((SnapshotError, TrainingError), match=r"not finite|non-finite") as caught:
        pretrain(run, **changed)
    assert "\n" not in str(caught.value) and caught.value.cure
    assert not (run / "stages" / "pretrain").exists()


def test_nan_in_one_of_two_embedders(run):
    """The index is sound, but nothing can be searched with such queries."""
    context = context_of(run, documents="frozen")
    model = load_stage(context, "ict").fork_document_embedder().with_parts(encoder=load_stage(context, "warm").encoder)
    with torch.no_grad():
        for parameter in model.embedder.parameters():
            parameter.fill_(torch.nan)
    task = PretrainTask(context, model)
    with pytest.raises(TrainingError, match=r"query embedder of index generation 1 gives values that are not finite"):
        task.between(0)


@pytest.mark.parametrize("form", [losses.marginal_nll_per_token, losses.marginal_nll_joint])
def test_nan_is_never_taken_for_an_example_left_out(form):
    """Damaged scores or likelihoods end in a loss that is no number, which the loop counts and stops at."""
    slots = torch.ones(1, 1, dtype=torch.bool)
    sound, broken = torch.zeros(1, 2), torch.tensor([[0.0, torch.nan]])
    valid = torch.ones(1, 2, dtype=torch.bool)
    for scores, likelihoods in ((broken, sound), (sound, broken)):
        loss, learnt = form(likelihoods.unsqueeze(-1), losses.candidate_log_probs(scores, valid), slots)
        assert torch.isnan(loss).all() and learnt.all()


def rebuild(corpus, root, **options):
    documents(root, *[f"The currency of Zomor{n} is the Pavel. In Zomor{n} the winters are long since 1960." for n in range(12)])
    shutil.rmtree(corpus)
    build_corpus([root / "docs.jsonl"], corpus, BuildOptions(block_length=64, **options))


@pytest.mark.parametrize("vocab_size", [300, 0])
def test_a_corpus_rebuilt_under_a_running_training(run, tmp_path, vocab_size, monkeypatch):
    """With other wordpieces or with the same: the next swap ends the stage, and nothing is published."""
    tokenizer, step = BlockStore.open(run / "corpus").tokenizer, PretrainTask.step

    def interrupted(self, number, share):
        if number == 1:
            rebuild(run / "corpus", tmp_path, **({"vocab_size": vocab_size} if vocab_size else {"tokenizer": tokenizer}))
        return step(self, number, share)

    monkeypatch.setattr(PretrainTask, "step", interrupted)
    with pytest.raises(CorpusError, match=r"run/corpus: another corpus was built here while the run was using it.*--out"):
        pretrain(run)
    monkeypatch.undo()
    assert not (run / "stages" / "pretrain").exists()
    with pytest.raises(RealmError) as caught:  # nor does a new start mix the two
        pretrain(run)
    assert "\n" not in str(caught.value) and caught.value.cure


def test_a_corpus_rebuilt_and_changed_under_an_open_index(run, tmp_path):
    """Another version number in the same place: the search itself sees that it is another corpus."""
    context = context_of(run)
    task = PretrainTask(context, load_stage(context, "ict").with_parts(encoder=load_stage(context, "warm").encoder))
    task.generation = task.source.between(0, task.model)
    query = task.queries.query(0, 0)
    task.view.retrieve([query])
    rebuild(run / "corpus", tmp_path, tokenizer=context.store.tokenizer)
    assert main(["corpus", "remove", str(run / "corpus"), "d1"]) == 0
    with pytest.raises(CorpusError, match="another corpus was built here while it was searched"):
        task.view.retrieve([query])


def test_an_index_of_other_dimensions(run, tmp_path, write_tiny):
    """An index copied from a run with another projection is refused before anything is searched."""
    recipe = load_recipe(write_tiny(tmp_path / "wide"), {"model": {"projection": 24}, "pretrain": {"steps": 1}})
    run_recipe(recipe, tmp_path / "wide" / "run", stages=TRAIN, progress=QUIET)
    shutil.copytree(tmp_path / "wide" / "run" / "index", run / "index")
    context = context_of(run)
    with pytest.raises(SnapshotError) as caught:
        open_generation(context.paths, context.inputs)
    assert "\n" not in str(caught.value) and caught.value.cure
