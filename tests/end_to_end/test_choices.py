"""What a recipe may choose in pre-training, and where there is nothing to learn from or something is broken: a clear end."""

import shutil

import numpy as np
import pytest
import torch
from small import jsonl
from toy_runs import PRETRAINING, UNTRAINED, context_of, copy_without, pretraining_of, rows_of, train

from realm.cli import main
from realm.documents.ingest.builder import BuildOptions, build_corpus
from realm.documents.ingest.packing import hash64
from realm.documents.store.blocks import NULL_BLOCK, BlockStore
from realm.errors import CorpusError, RealmError, RunError, SnapshotError, TrainingError
from realm.models import losses
from realm.models.model import state_sha256
from realm.progress import Progress
from realm.recipe import load_recipe
from realm.runs.checks import check_corpus
from realm.runs.run import run_recipe
from realm.storage.layout import RunPaths, stage_facts
from realm.storage.manifests import seal
from realm.training.baselines.closed_book import run_closed_book
from realm.training.context import load_stage
from realm.training.pretrain.questions import pretraining_fingerprint
from realm.training.pretrain.stage import starting_model
from realm.training.pretrain.task import PretrainTask

NEWS = [
    "The currency of Arvad is the Tirel. Travellers from Belmor say that the Osten is worth more than the Tirel in 1950.",
    "Last year many people of Carsin came to see Dulwen. They had to change the Levka before they left.",
]


def chosen(run, **pretrain):
    """The run with other choices in [pretrain]."""
    return context_of(run, pretrain=pretrain)


def task_of(run, **pretrain):
    return pretraining_of(chosen(run, **pretrain))


def write_news(root):
    return jsonl(root / "news.jsonl", [{"id": f"news{n}", "title": "News", "text": text} for n, text in enumerate(NEWS)])


@pytest.mark.parametrize("pretrain", [
    {"masking": "tokens"}, {"masking": "spans"}, {"masking": "salient", "retriever_rate": 0.3}, {"null": False},
    {"exclude": False}, {"marginal": "joint"},
])  # fmt: skip
def test_a_step_of_every_choice_teaches_both_networks(tiny_run, pretrain):
    task = task_of(tiny_run, **pretrain)
    task.model.eval()
    result = task.step(0)
    result.loss.backward()
    assert torch.isfinite(result.loss) and result.valid == 4
    for part in (task.model.embedder, task.model.encoder):
        gradients = [p.grad for p in part.parameters() if p.grad is not None]
        assert gradients and all(torch.isfinite(g).all() for g in gradients) and max(float(g.abs().max()) for g in gradients) > 0
    assert ("p_null" in result.metrics) == ("marginal_utility" in result.metrics) == task.section.null
    assert float(task.step(0).loss.detach()) == float(result.loss.detach())


def test_a_stage_is_told_from_one_of_other_choices(tiny_run):
    for pretrain in ({"masking": "tokens"}, {"marginal": "joint"}, {"null": False}):
        with pytest.raises(RunError, match=f"pretrain.{next(iter(pretrain))}"):
            train(load_recipe(tiny_run / "config.toml", {"pretrain": pretrain}), tiny_run, ("pretrain",))
    marks = [pretraining_fingerprint(chosen(tiny_run, **changed)) for changed in ({}, {"retriever_rate": 0.5})]
    assert marks[0] == stage_facts(RunPaths(tiny_run), "pretrain")["fingerprint"] != marks[1]


def test_without_a_null_document_all_candidates_are_blocks(tiny_run):
    task = task_of(tiny_run, null=False)
    queries = [task.queries.query(at, at) for at in range(4)]
    found = task.view.retrieve(queries)
    assert not found.has_null and found.block_ids.shape == (4, 4) == found.documents.shape
    assert found.valid.all() and (found.block_ids != NULL_BLOCK).all()
    with_null = task_of(tiny_run).view.retrieve(queries)
    assert with_null.has_null and with_null.documents.shape == (4, 3)
    np.testing.assert_array_equal(with_null.documents, found.block_ids[:, :3])


def test_without_exclusion_the_sentence_finds_its_own_block(tiny_run):
    task, usual = task_of(tiny_run, exclude=False, candidates=13), task_of(tiny_run, candidates=13)
    for item in range(len(task.queries.sentences)):
        query, kept = task.queries.query(item, item), usual.queries.query(item, item)
        assert len(query.excluded) == 0 and kept.origin in kept.excluded and query.ids == kept.ids
        assert query.origin in task.view.retrieve([query]).block_ids and kept.origin not in usual.view.retrieve([kept]).block_ids


def test_other_documents_are_masked_and_the_corpus_is_retrieved(tmp_path, write_tiny, capsys):
    """X != Z: queries come from the news, candidates from the corpus, and the block that holds a sentence verbatim is excluded."""
    news = write_news(tmp_path)
    recipe = load_recipe(write_tiny(tmp_path), {"pretrain": {"sentences": [news.name]}})
    done = run_recipe(recipe, tmp_path / "run", stages=PRETRAINING, progress=Progress())
    task = task_of(tmp_path / "run")
    context = task.context
    assert f"pretrain: {task.queries.sentences.summary}" in capsys.readouterr().err
    facts, masked = stage_facts(context.paths, "pretrain"), task.queries.sentences
    assert (facts["sentences"], facts["dropped"]) == (len(masked), dict(masked.dropped)) and facts["sentences"] >= 3
    held, verbatim = context.store.rows_with_sentence(hash64("The currency of Arvad is the Tirel.")), 0
    for item in range(len(task.queries.sentences)):
        query = task.queries.query(item, item)
        text = context.store.tokenizer.decode(query.whole)
        assert any(text[:12] in news.lower() for news in NEWS)
        found = task.view.retrieve([query])
        assert context.inputs.rows(found.documents).min() >= 0 and found.valid.all()
        if "currency" in text:
            verbatim += 1
            assert query.excluded.tolist() == context.store.block_ids[held].tolist() and len(held) == 1
        else:
            assert len(query.excluded) == 0
    assert verbatim == 1
    assert done["stages"]["pretrain"]["seconds"] > 0
    news.write_text(news.read_text("utf-8") + '{"id": "more", "title": "", "text": "More of Arvad."}\n', "utf-8")
    with pytest.raises(CorpusError, match=r"sentences: the sources have changed since this corpus was built"):
        train(recipe, tmp_path / "run", ("corpus",))


def test_a_corpus_of_sentences(tiny_run, tmp_path):
    """Another corpus serves if it has the same wordpieces; what pre-training depends on tells them apart."""
    news = write_news(tmp_path)
    build_corpus([news], tmp_path / "same", BuildOptions(tokenizer=tiny_run / "corpus"))
    build_corpus([news], tmp_path / "other", BuildOptions(vocab_size=250))
    context = chosen(tiny_run, sentences=[str(tmp_path / "same")])
    task = PretrainTask(context, load_stage(context, "pretrain"))
    assert task.queries.sentences.store.path == tmp_path / "same" and len(task.queries.sentences) >= 3
    assert len({pretraining_fingerprint(c) for c in (context, chosen(tiny_run))}) == 2
    moved = chosen(tiny_run, sentences=[str(shutil.copytree(tmp_path / "same", tmp_path / "moved"))])
    assert pretraining_fingerprint(moved) == pretraining_fingerprint(context)
    with pytest.raises(CorpusError, match=r"other: the sentences have other wordpieces .* --tokenizer"):
        PretrainTask(chosen(tiny_run, sentences=[str(tmp_path / "other")]), load_stage(context, "pretrain"))
    with pytest.raises(CorpusError):
        PretrainTask(chosen(tiny_run, sentences=[str(tmp_path / "none")]), load_stage(context, "pretrain"))


def test_starting_without_a_stage(tmp_path, write_tiny, tiny_run):
    """The stage is skipped and said to be, a fresh network takes its place, and the rest of the run goes on."""
    fresh = load_recipe(write_tiny(tmp_path), {"pretrain": {"from_ict": False, "from_warm": False, "null": False}})
    done = train(fresh, tmp_path / "run", PRETRAINING)
    assert done["stages"]["pretrain"]["marginal_utility"] is None  # there was no null document to compare with
    run_closed_book(chosen(tmp_path / "run"))
    assert (tmp_path / "run/stages/closed_book").exists() and (tmp_path / "run/report.html").exists()
    assert [line.split(":")[0] for line in done["skipped"]] == ["warm", "ict"]
    assert not (tmp_path / "run/stages/warm").exists() and not (tmp_path / "run/stages/ict").exists()
    assert (tmp_path / "run/stages/pretrain").exists()
    parts = {}
    for ict in (True, False):
        for warm in (True, False):
            model = starting_model(chosen(tiny_run, from_ict=ict, from_warm=warm))
            parts[ict, warm] = state_sha256(model.embedder), state_sha256(model.encoder)
    assert parts[True, True][0] == parts[True, False][0] != parts[False, True][0] == parts[False, False][0]
    assert parts[True, True][1] == parts[False, True][1] != parts[True, False][1] == parts[False, False][1]
    ict, warm = load_stage(chosen(tiny_run), "ict"), load_stage(chosen(tiny_run), "warm")
    assert parts[True, True] == (state_sha256(ict.embedder), state_sha256(warm.encoder))
    marks = {pretraining_fingerprint(chosen(tiny_run, from_ict=i, from_warm=w)) for i in (True, False) for w in (True, False)}
    assert len(marks) == 4


def documents(root, *texts):
    jsonl(root / "docs.jsonl", [{"id": f"d{n}", "title": f"Title {n}", "text": text} for n, text in enumerate(texts)])


@pytest.fixture
def run(tiny_run, tmp_path):
    """Before pre-training."""
    return copy_without(tiny_run, tmp_path / "run", *UNTRAINED)


def pretrain(run, **choices):
    train(load_recipe(run / "config.toml", {"pretrain": choices}), run, ("pretrain",))


def damage(run, stage, part):
    model = load_stage(context_of(run), stage)
    with torch.no_grad():
        for parameter in getattr(model, part).parameters():
            parameter.fill_(torch.nan)
    model.save_pretrained(run / "stages" / stage)
    seal(run / "stages" / stage)


def test_just_enough_blocks(tmp_path, write_tiny):
    """k blocks with the null document; without it one more, unless no block is excluded."""
    recipe = write_tiny(tmp_path)
    documents(tmp_path, *[f"The currency of Arvad{n} is the Tirel. In Arvad{n} the winters are long." for n in range(4)])
    paths = RunPaths(tmp_path / "run")
    build_corpus([tmp_path / "docs.jsonl"], paths.corpus, BuildOptions(vocab_size=300))

    def check(**choices):
        check_corpus(paths, load_recipe(recipe, {"pretrain": choices, "finetune": {"train": "", "dev": ""}, "eval": {"qa": ""}}))

    check()
    check(null=False, exclude=False)
    check(null=False, candidates=3)
    check(candidates=5, exclude=False)
    with pytest.raises(
        CorpusError, match=r"docs.jsonl: the corpus has 4 blocks, fewer than pretrain.candidates = 4 needs. .*candidates = 3"
    ):
        check(null=False)
    with pytest.raises(CorpusError, match="candidates = 4"):
        check(candidates=5)


def test_all_blocks_identical(tmp_path, write_tiny):
    """Every block holds every sentence: all are excluded, only the null document is left, and the loss is that of reading nothing."""
    recipe = write_tiny(tmp_path)
    documents(tmp_path, *["The currency of Arvad is the Tirel. In Arvad the winters are long since 1950."] * 6)
    train(recipe, tmp_path / "run", PRETRAINING)
    last = rows_of(tmp_path / "run", "pretrain")[-2]
    assert np.isfinite(last["loss"]) and last["valid"] == 4 and last["p_null"] == 1 and last["marginal_utility"] == 0
    task = pretraining_of(context_of(tmp_path / "run"))
    task.step(0).loss.backward()
    assert all(float(p.grad.abs().max()) == 0 for p in task.model.embedder.parameters() if p.grad is not None)
    assert any(float(p.grad.abs().max()) > 0 for p in task.model.encoder.parameters() if p.grad is not None)


def beginning(context):
    """Pre-training before its first step."""
    task = PretrainTask(context, starting_model(context))
    task.generation = task.source.between(0, task.model)
    return task


@pytest.mark.parametrize("choices", [{}, {"marginal": "joint"}])
@pytest.mark.parametrize("null", [True, False])
def test_every_candidate_excluded(run, null, choices):
    """With the null document the encoder still learns; without it the step is invalid, exactly 0 and changes nothing."""
    task = beginning(context_of(run, pretrain={"null": null, **choices}))
    every = np.asarray(task.context.store.block_ids)
    task.queries.sentences.exclusion.blocks = lambda row, sentence_hash: every
    result = task.step(0)
    result.loss.backward()
    gradients = [p.grad for p in task.model.parameters() if p.grad is not None]
    assert torch.isfinite(result.loss) and all(torch.isfinite(g).all() for g in gradients)
    assert result.valid == (4 if null else 0)
    if not null:
        assert float(result.loss.detach()) == 0 and all(float(g.abs().max()) == 0 for g in gradients)


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
    context = context_of(run, pretrain={"documents": "frozen"})
    model = starting_model(context).fork_document_embedder()
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
    task = beginning(context_of(run))
    query = task.queries.query(0, 0)
    task.view.retrieve([query])
    rebuild(run / "corpus", tmp_path, tokenizer=task.context.store.tokenizer)
    assert main(["corpus", "remove", str(run / "corpus"), "d1"]) == 0
    with pytest.raises(CorpusError, match="another corpus was built here while it was searched"):
        task.view.retrieve([query])
