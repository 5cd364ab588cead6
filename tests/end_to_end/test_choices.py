"""What a recipe may choose in pre-training: whose sentences, what is hidden, what is excluded, what the stage starts from."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from realm.documents.ingest.builder import BuildOptions, build_corpus
from realm.documents.ingest.packing import hash64
from realm.documents.store.blocks import NULL_BLOCK
from realm.errors import ConfigError, CorpusError, RunError
from realm.models.model import state_sha256
from realm.progress import Progress
from realm.recipe import build_recipe, load_recipe
from realm.runs.run import run_recipe
from realm.search.publishing.generation import open_generation
from realm.storage.paths import RunPaths
from realm.storage.stages import stage_facts
from realm.training.baselines.closed_book import run_closed_book
from realm.training.context import load_stage, open_context
from realm.training.pretrain.sentences import pretraining_fingerprint
from realm.training.pretrain.stage import run_pretrain, starting_model
from realm.training.pretrain.task import PretrainTask

QUIET = Progress(quiet=True)
NEWS = [
    "The currency of Arvad is the Tirel. Travellers from Belmor say that the Osten is worth more than the Tirel in 1950.",
    "Last year many people of Carsin came to see Dulwen. They had to change the Levka before they left.",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, write_tiny):
    root = tmp_path_factory.mktemp("choices")
    run_recipe(write_tiny(root), root / "run", stages=("corpus", "warm", "ict", "pretrain"), progress=QUIET)
    return root / "run"


@pytest.fixture(scope="module")
def generation(trained):
    return open_generation(RunPaths(trained), chosen(trained).inputs)


def chosen(run, **pretrain):
    """The run with other choices in [pretrain]."""
    recipe = load_recipe(run / "config.toml", {"pretrain": pretrain})
    return open_context(RunPaths(run), recipe, lambda *row: None)


def task_of(run, generation, **pretrain):
    context = chosen(run, **pretrain)
    task = PretrainTask(context, load_stage(context, "pretrain"))
    task.generation = generation
    return task


def write_news(root):
    rows = [{"id": f"news{n}", "title": "News", "text": text} for n, text in enumerate(NEWS)]
    (root / "news.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return root / "news.jsonl"


@pytest.mark.parametrize("pretrain", [
    {"masking": "tokens"}, {"masking": "spans"}, {"masking": "salient", "retriever_rate": 0.3}, {"null": False},
    {"exclude": False}, {"marginal": "joint"}, {"ict_batch": 5},
])  # fmt: skip
def test_a_step_of_every_choice_teaches_both_networks(trained, generation, pretrain):
    task = task_of(trained, generation, **pretrain)
    task.model.eval()
    result = task.step(0)
    result.loss.backward()
    assert torch.isfinite(result.loss) and result.valid == 4
    for part in (task.model.embedder, task.model.encoder):
        gradients = [p.grad for p in part.parameters() if p.grad is not None]
        assert gradients and all(torch.isfinite(g).all() for g in gradients) and max(float(g.abs().max()) for g in gradients) > 0
    assert ("p_null" in result.metrics) == ("marginal_utility" in result.metrics) == task.section.null
    assert float(task.step(0).loss.detach()) == float(result.loss.detach())


def gradients_of(task):
    return {name: p.grad.clone() for name, p in task.model.embedder.named_parameters() if p.grad is not None}


def test_icts_mean_loss_comes_beside_that_of_the_sentences(trained, generation):
    """By loss and by gradient; what ICT draws is what the stage of this seed would draw."""
    losses, gradients = [], []
    for choices in [{}, {"ict_batch": 5}]:
        task = task_of(trained, generation, **choices)
        task.model.eval()
        result = task.step(0)
        result.loss.backward()
        losses.append(float(result.loss.detach()))
        gradients.append(gradients_of(task))
    task.model.zero_grad()
    cloze = task.cloze.step(0)
    cloze.loss.backward()
    by_cloze = gradients_of(task)
    assert int(cloze.valid) == 5
    each = task.section.batch / 5  # the step divides both by its sentences
    assert losses[1] == pytest.approx(losses[0] + each * float(cloze.loss.detach()), rel=1e-5)
    for name, more in by_cloze.items():
        torch.testing.assert_close(gradients[1][name], gradients[0][name] + each * more, rtol=1e-4, atol=1e-5)


def test_a_stage_is_told_from_one_of_other_choices(trained):
    assert pretraining_fingerprint(chosen(trained, ict_batch=4)) != pretraining_fingerprint(chosen(trained))
    with pytest.raises(ConfigError, match="ict_batch"):
        chosen(trained, ict_batch=1)
    for pretrain in ({"masking": "tokens"}, {"marginal": "joint"}, {"null": False}):
        recipe = load_recipe(trained / "config.toml", {"pretrain": pretrain})
        with pytest.raises(RunError, match=f"pretrain.{next(iter(pretrain))}"):
            run_recipe(recipe, trained, stages=("pretrain",), progress=QUIET)
    mark = pretraining_fingerprint(chosen(trained))
    assert mark == stage_facts(RunPaths(trained), "pretrain")["fingerprint"] != pretraining_fingerprint(chosen(trained, retriever_rate=0.5))


def test_without_a_null_document_all_candidates_are_blocks(trained, generation):
    task = task_of(trained, generation, null=False)
    queries = [task.queries.query(at, at) for at in range(4)]
    found = task.view.retrieve(queries)
    assert not found.has_null and found.block_ids.shape == (4, 4) == found.documents.shape
    assert found.valid.all() and (found.block_ids != NULL_BLOCK).all()
    with_null = task_of(trained, generation).view.retrieve(queries)
    assert with_null.has_null and with_null.documents.shape == (4, 3)
    np.testing.assert_array_equal(with_null.documents, found.block_ids[:, :3])


def test_without_exclusion_the_sentence_finds_its_own_block(trained, generation):
    task, usual = task_of(trained, generation, exclude=False, candidates=13), task_of(trained, generation, candidates=13)
    for item in range(len(task.queries.sentences)):
        query, kept = task.queries.query(item, item), usual.queries.query(item, item)
        assert len(query.excluded) == 0 and kept.origin in kept.excluded and query.ids == kept.ids
        assert query.origin in task.view.retrieve([query]).block_ids and kept.origin not in usual.view.retrieve([kept]).block_ids


def test_other_documents_are_masked_and_the_corpus_is_retrieved(tmp_path, write_tiny, capsys):
    """X != Z: queries come from the news, candidates from the corpus, and the block that holds a sentence verbatim is excluded."""
    news = write_news(tmp_path)
    recipe = load_recipe(write_tiny(tmp_path), {"pretrain": {"sentences": [news.name]}})
    done = run_recipe(recipe, tmp_path / "run", stages=("corpus", "warm", "ict", "pretrain"), progress=Progress())
    context = chosen(tmp_path / "run")
    task = PretrainTask(context, load_stage(context, "pretrain"))
    assert f"pretrain: {task.queries.sentences.summary}" in capsys.readouterr().err
    facts, masked = stage_facts(context.paths, "pretrain"), task.queries.sentences
    assert (facts["sentences"], facts["dropped"]) == (len(masked), dict(masked.dropped)) and facts["sentences"] >= 3
    task.generation = open_generation(context.paths, context.inputs)
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
        run_recipe(recipe, tmp_path / "run", stages=("corpus",), progress=QUIET)


def test_a_corpus_of_sentences(trained, tmp_path):
    """Another corpus serves if it has the same wordpieces; what pre-training depends on tells them apart."""
    news = write_news(tmp_path)
    build_corpus([news], tmp_path / "same", BuildOptions(tokenizer=trained / "corpus"))
    build_corpus([news], tmp_path / "other", BuildOptions(vocab_size=250))
    context = chosen(trained, sentences=[str(tmp_path / "same")])
    task = PretrainTask(context, load_stage(context, "pretrain"))
    assert task.queries.sentences.store.path == tmp_path / "same" and len(task.queries.sentences) >= 3
    assert len({pretraining_fingerprint(c) for c in (context, chosen(trained))}) == 2
    moved = chosen(trained, sentences=[str(shutil.copytree(tmp_path / "same", tmp_path / "moved"))])
    assert pretraining_fingerprint(moved) == pretraining_fingerprint(context)
    with pytest.raises(CorpusError, match=r"other: the sentences have other wordpieces .* --tokenizer"):
        PretrainTask(chosen(trained, sentences=[str(tmp_path / "other")]), load_stage(context, "pretrain"))
    with pytest.raises(CorpusError):
        PretrainTask(chosen(trained, sentences=[str(tmp_path / "none")]), load_stage(context, "pretrain"))


def test_starting_without_a_stage(tmp_path, write_tiny, trained):
    """The stage is skipped and said to be, a fresh network takes its place, and the rest of the run goes on."""
    fresh = load_recipe(write_tiny(tmp_path), {"pretrain": {"from_ict": False, "from_warm": False, "null": False}})
    done = run_recipe(fresh, tmp_path / "run", stages=("corpus", "warm", "ict", "pretrain"), progress=QUIET)
    assert done["stages"]["pretrain"]["marginal_utility"] is None  # there was no null document to compare with
    run_closed_book(chosen(tmp_path / "run"))
    assert (tmp_path / "run/stages/closed_book").exists() and (tmp_path / "run/report.html").exists()
    assert [line.split(":")[0] for line in done["skipped"]] == ["warm", "ict"]
    assert not (tmp_path / "run/stages/warm").exists() and not (tmp_path / "run/stages/ict").exists()
    assert (tmp_path / "run/stages/pretrain").exists()
    parts = {}
    for ict in (True, False):
        for warm in (True, False):
            model = starting_model(chosen(trained, from_ict=ict, from_warm=warm))
            parts[ict, warm] = state_sha256(model.embedder), state_sha256(model.encoder)
    assert parts[True, True][0] == parts[True, False][0] != parts[False, True][0] == parts[False, False][0]
    assert parts[True, True][1] == parts[False, True][1] != parts[True, False][1] == parts[False, False][1]
    ict, warm = load_stage(chosen(trained), "ict"), load_stage(chosen(trained), "warm")
    assert parts[True, True] == (state_sha256(ict.embedder), state_sha256(warm.encoder))
    marks = {pretraining_fingerprint(chosen(trained, from_ict=i, from_warm=w)) for i in (True, False) for w in (True, False)}
    assert len(marks) == 4


@pytest.mark.parametrize(("pretrain", "problem"), [
    ({"masking": "words"}, "'pretrain.masking' cannot be 'words'"),
    ({"marginal": "span"}, "'pretrain.marginal' cannot be 'span'"),
    ({"from_warm": False}, "'pretrain.from_warm' is false"),
    ({"sentences": "news.jsonl"}, "'pretrain.sentences' cannot be 'news.jsonl'"),
])  # fmt: skip
def test_bad_choices(pretrain, problem):
    with pytest.raises(ConfigError, match=problem.replace("(", r"\(")):
        build_recipe({"pretrain": pretrain})


def test_the_retriever_has_a_rate_of_its_own(trained, tmp_path):
    """At 0 it stays as ICT made it, bit by bit, while the encoder learns; in between it moves less."""
    start, moved = starting_model(chosen(trained)), {}
    for rate in (0.0, 0.1, 1.0):
        run = Path(shutil.copytree(trained, tmp_path / str(rate)))
        for left in ("stages/pretrain", "index", "params"):
            shutil.rmtree(run / left)
        run_pretrain(chosen(run, retriever_rate=rate))
        after = load_stage(chosen(run, retriever_rate=rate), "pretrain")
        assert state_sha256(after.encoder) != state_sha256(start.encoder)
        pairs = zip(after.embedder.state_dict().items(), start.embedder.state_dict().values(), strict=True)
        # The null document's offset is set before the first step, unless the retriever is to stay as it is.
        moved[rate] = max(float((a - b).abs().max()) for (name, a), b in pairs if name != "null_offset" or not rate)
    assert moved[0.0] == 0.0 < moved[0.1] < 0.3 * moved[1.0]
