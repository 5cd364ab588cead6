"""A language model that stays as it is teaches the retriever: its likelihood by hand, the marginal over all texts, the gradient, a run."""

import json

import pytest
import torch
from language_models import write_language_model

from realm.answering.cloze import begun
from realm.answering.opening import open_run
from realm.errors import ConfigError
from realm.models import losses
from realm.models.continuing import LanguageModel
from realm.models.model import state_sha256
from realm.models.types import MaskedQuery
from realm.progress import Progress
from realm.recipe import build_recipe, load_recipe
from realm.runs.run import run_recipe
from realm.storage.paths import RunPaths
from realm.training.context import load_stage, open_context
from realm.training.order import WHOLE
from realm.training.pretrain.retrieve import asked_inputs
from realm.training.pretrain.score import pretraining_loss, score_step
from realm.training.pretrain.stage import starting_model
from realm.training.pretrain.task import PretrainTask

BLOCKS, BEGINNING = ["Arvad\nPeople pay with the Tirel.", "", "It is long and dark there in the winters of Belmor."], "People in Arvad pay"


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def directory(request, tmp_path_factory):
    return write_language_model(tmp_path_factory.mktemp("lm") / request.param, request.param)


@pytest.fixture(scope="module")
def recipe(directory, tiny_run):
    pretrain = {"fill": "lm", "language_model": str(directory), "held_out": 2, "eval_every": 2, "publish": "better", "force": False}
    return load_recipe(tiny_run / "config.toml", {"pretrain": pretrain})


def test_likelihoods_are_those_of_one_text_alone(directory, monkeypatch, capfd):
    """In batches of any size, with padding; the greedy choice; and the longest block gives way."""
    capfd.readouterr()
    reader, rests = LanguageModel.load(directory), ["with the Tirel.", "by day", "x"]
    assert capfd.readouterr() == ("", ""), "no bars"
    log_probs, greedy, there = reader.log_probs(BLOCKS, [BEGINNING, BEGINNING, ""], rests)
    for i, (block, beginning, rest) in enumerate(zip(BLOCKS, [BEGINNING, BEGINNING, ""], rests, strict=True)):
        head = [0, *reader.tokenizer(f"{block}\n\n" * bool(block) + beginning)["input_ids"]]
        tail = reader.tokenizer(" " * bool(beginning) + rest)["input_ids"]
        with torch.no_grad():
            alone = reader.model(torch.tensor([head + tail])).logits[0, len(head) - 1 : -1].log_softmax(-1)
        torch.testing.assert_close(log_probs[i, : len(tail)], alone[range(len(tail)), tail], atol=1e-5, rtol=1e-4)
        assert greedy[i, : len(tail)].tolist() == [bool(row.argmax() == one) for row, one in zip(alone, tail, strict=True)]
        assert there[i].tolist() == [at < len(tail) for at in range(there.shape[1])] and not log_probs[i, len(tail) :].any()
    monkeypatch.setattr("realm.models.continuing.LOGITS_AT_ONCE", 1)
    torch.testing.assert_close(reader.log_probs(BLOCKS, [BEGINNING, BEGINNING, ""], rests)[0], log_probs, atol=1e-5, rtol=1e-4)
    cut = 128 - 1 - len(BEGINNING) - len(" day")
    assert reader._tokens("ab" * 400, BEGINNING, "day")[0][1 : cut + 1] == reader.tokenizer("ab" * 400)["input_ids"][:cut]


def test_the_marginal_sums_to_one_over_all_texts(directory):
    """Sum over y of the sum over z of p(z|x) p(y|z,x), all texts of one token tried; and the loss is its logarithm."""
    reader, log_p_z = LanguageModel.load(directory), torch.tensor([[0.2, 0.7, 0.1]]).log()
    words = [word for word in reader.tokenizer.get_vocab() if word.strip() and word != "<end>"]
    by_block = torch.stack([reader.log_probs([block] * len(words), [""] * len(words), words)[0][:, 0] for block in BLOCKS], 1)
    total = (log_p_z.exp() * by_block.exp()).sum(1)
    nll, _ = losses.marginal_nll_joint(by_block.unsqueeze(-1), log_p_z.expand(len(words), -1), torch.ones(len(words), 1).bool())
    torch.testing.assert_close(-nll, total.log(), atol=1e-5, rtol=1e-4)
    with torch.no_grad():  # what is left out: the end, the space and the line's end
        heads = [torch.tensor([reader._tokens(block, "", "x")[0]]) for block in BLOCKS]
        left = sum(s * reader.model(h).logits[0, -1].softmax(-1)[:3].sum() for s, h in zip(log_p_z[0].exp(), heads, strict=True))
    assert float(total.sum() + left) == pytest.approx(1.0, abs=1e-5)


def test_a_sentence_is_cut_before_what_it_hides(tiny_run):
    store = open_run(tiny_run).inputs.store
    whole = store.tokenizer.encode(["People in Arvad pay with the Tirel."])[0]
    for first, beginning in ((len(whole) - 3, None), (1, len(whole) // 2)):
        cut = first if beginning is None else beginning
        masked = [*whole]
        masked[first] = store.tokenizer.special.mask
        query = begun(store, MaskedQuery(masked, [first], [whole[first]], origin=int(store.block_ids[0])))
        assert (query.ids, query.positions, query.whole) == (whole[:cut], [], whole[:cut])
        assert "".join(query.begun).split() == ["People", "in", "Arvad", "pay", "with", "the", "Tirel."] and all(query.begun)


def test_the_gradient_is_the_papers_identity(recipe, run_copy):
    """The retriever's scores get r(z), summed over a batch; the language model and the encoder get nothing."""
    context = open_context(RunPaths(run_copy), recipe, lambda *_: None)
    task = PretrainTask(context, starting_model(context))
    task.between(0)
    read = score_step(task.view, task.queries, 0, WHOLE)
    log_p_z = read.scored.log_p_z.detach().requires_grad_()
    targets, slots = read.scored.target_log_probs, read.scored.slots
    assert (
        not targets.requires_grad
        and targets.shape[1] == 4
        and slots.any(1).all()
        and (targets[slots.unsqueeze(1).expand_as(targets)] < 0).all()
    )
    scores = log_p_z.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(-losses.marginal_nll_joint(targets, scores.log_softmax(-1), slots)[0].sum(), scores)
    torch.testing.assert_close(losses.retriever_gradient(targets, log_p_z.detach(), slots), gradient, atol=1e-5, rtol=1e-4)
    assert gradient.abs().max() > 1e-3
    pretraining_loss(read.scored, recipe.pretrain)[0].sum().backward()
    learnt = {name.partition(".")[0] for name, value in task.model.named_parameters() if value.grad is not None and value.grad.any()}
    assert learnt == {"embedder"}
    for query, asked in zip(read.queries, asked_inputs(context, read.queries), strict=True):
        assert asked.ids[1:-1] == query.ids and context.inputs.featurizer.mask not in asked.ids and len(query.whole) == len(query.ids)


def test_a_run_learns_by_it(recipe, tmp_path):
    """The same bits after a second run; the language model is not part of what is published; the reader's words stay the warm stage's."""
    stages = ("corpus", "warm", "ict", "pretrain")
    for name in ("one", "two"):
        run_recipe(recipe, tmp_path / name, stages=stages, progress=Progress(quiet=True))
    contexts = [open_context(RunPaths(tmp_path / name), recipe, lambda *_: None) for name in ("one", "two")]
    one, two, before = load_stage(contexts[0], "pretrain"), load_stage(contexts[1], "pretrain"), load_stage(contexts[0], "warm")
    assert state_sha256(one) == state_sha256(two) and state_sha256(one.encoder) == state_sha256(before.encoder)
    rows = [json.loads(line) for line in RunPaths(tmp_path / "one").metrics.read_text().splitlines()]
    measured = [row for row in rows if "held_out_loss" in row]
    assert measured and all(row["held_out_loss"] > 0 and 0 <= row["held_out_accuracy"] <= 1 for row in measured)
    assert open_run(tmp_path / "one").search("the currency of Arvad", 3)


LM = {"fill": "lm", "language_model": "x"}


@pytest.mark.parametrize(("values", "said"), [
    ({"fill": "lm"}, "language_model"), ({"language_model": "x"}, "language_model"), (LM | {"retriever_rate": 0.0}, "retriever_rate"),
    (LM | {"reader": "frozen"}, "pretrain.reader"), (LM | {"reader_first": 2}, "points"),
])  # fmt: skip
def test_what_is_refused(values, said):
    with pytest.raises(ConfigError, match=said):
        build_recipe({"pretrain": values})


def test_a_directory_without_a_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for place, said in ((tmp_path / "none", "no such directory"), (tmp_path, "no causal language model can be loaded")):
        with pytest.raises(ConfigError, match=said):
            LanguageModel.load(place)
