"""The mathematics against its definition: explicit sums over candidates, slots and spans in Python loops, in float64."""

import math

import pytest
import torch
from hypothesis import given, strategies as st

from realm.models import losses
from realm.recipe import PretrainConfig, build_recipe
from realm.training.pretrain.score import ScoredCandidates, pretraining_loss

NINF = float("-inf")


class Example:
    """A random batch: scores, valid candidates, target log-probabilities and slots, some of them ragged."""

    def __init__(self, seed, b=3, k=4, m=3, *, whole=False, scale=2.0):
        rng = torch.Generator().manual_seed(seed)
        self.scores = (torch.randn(b, k, generator=rng, dtype=torch.float64) * scale).requires_grad_()
        self.targets = (-torch.rand(b, k, m, generator=rng, dtype=torch.float64) * 5 - 1e-3).requires_grad_()
        self.valid = torch.ones(b, k, dtype=torch.bool) if whole else torch.rand(b, k, generator=rng) < 0.7
        self.slots = torch.ones(b, m, dtype=torch.bool)
        if not whole:
            self.slots = torch.arange(m) < torch.randint(0, m + 1, (b, 1), generator=rng)
        self.shape = b, k, m

    @property
    def log_p_z(self):
        return losses.candidate_log_probs(self.scores, self.valid)

    def p_z(self, i):
        exps = [math.exp(s) if v else 0.0 for s, v in zip(self.scores[i].tolist(), self.valid[i].tolist(), strict=True)]
        return [e / sum(exps) for e in exps] if sum(exps) else exps

    def p_token(self, i, z, j):
        return math.exp(self.targets[i, z, j].item())

    def p_span(self, i, z):
        return math.prod(self.p_token(i, z, j) for j in range(self.shape[2]) if self.slots[i, j])

    def real(self, i):
        return [j for j in range(self.shape[2]) if self.slots[i, j]]

    def alive(self, i):
        return bool(self.valid[i].any()) and bool(self.slots[i].any())


SHAPES = st.tuples(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 6), st.integers(1, 5))


@given(SHAPES)
def test_candidate_log_probs_are_a_softmax_over_the_valid(shape):
    e = Example(*shape)
    p = e.log_p_z.exp()
    for i in range(e.shape[0]):
        assert p[i].tolist() == pytest.approx(e.p_z(i), abs=1e-12)
        assert (p[i][~e.valid[i]] == 0).all()
    e.log_p_z.masked_fill(~e.valid, 0.0).pow(2).sum().backward()
    assert torch.isfinite(e.scores.grad).all() and (e.scores.grad[~e.valid] == 0).all()


@given(SHAPES)
def test_marginals_equal_the_enumerated_sum(shape):
    e = Example(*shape)
    per_token, valid_token = losses.marginal_nll_per_token(e.targets, e.log_p_z, e.slots)
    joint, valid_joint = losses.marginal_nll_joint(e.targets, e.log_p_z, e.slots)
    for i in range(e.shape[0]):
        assert bool(valid_token[i]) == bool(valid_joint[i]) == e.alive(i)
        if not e.alive(i):
            assert per_token[i] == joint[i] == 0
            continue
        p_z = e.p_z(i)
        tokens = [sum(p_z[z] * e.p_token(i, z, j) for z in range(e.shape[1])) for j in e.real(i)]
        assert per_token[i].item() == pytest.approx(-sum(map(math.log, tokens)), rel=1e-9)
        whole = sum(p_z[z] * e.p_span(i, z) for z in range(e.shape[1]))
        assert joint[i].item() == pytest.approx(-math.log(whole), rel=1e-9)


@given(SHAPES)
def test_joint_gradient_is_the_papers_identity_and_autograd_s(shape):
    """d log p(y|x) / d f(x,z) = [p(y|z,x) / p(y|x) - 1] p(z|x) (REALM, section 3.3)."""
    e = Example(*shape)
    (gradient,) = torch.autograd.grad(-losses.marginal_nll_joint(e.targets, e.log_p_z, e.slots)[0].sum(), e.scores)
    closed = losses.retriever_gradient(e.targets, e.log_p_z, e.slots)
    torch.testing.assert_close(closed, gradient, rtol=1e-9, atol=1e-12)
    assert closed.sum(-1).abs().max() < 1e-9, "moving all scores of an example together changes nothing"
    for i in range(e.shape[0]):
        p_z = e.p_z(i)
        p_y = sum(p_z[z] * e.p_span(i, z) for z in range(e.shape[1]))
        for z in range(e.shape[1]):
            expected = (e.p_span(i, z) / p_y - 1) * p_z[z] if e.alive(i) else 0.0
            assert gradient[i, z].item() == pytest.approx(expected, abs=1e-9)
            assert closed[i, z].item() == pytest.approx(expected, abs=1e-9)


@given(SHAPES)
def test_per_token_gradient_is_the_sum_of_the_identity_over_wordpieces(shape):
    e = Example(*shape)
    (-losses.marginal_nll_per_token(e.targets, e.log_p_z, e.slots)[0]).sum().backward()
    for i in range(e.shape[0]):
        p_z = e.p_z(i)
        for z in range(e.shape[1]):
            expected = 0.0
            for j in e.real(i) if e.alive(i) else []:
                p_y = sum(p_z[c] * e.p_token(i, c, j) for c in range(e.shape[1]))
                expected += (e.p_token(i, z, j) / p_y - 1) * p_z[z]
            assert e.scores.grad[i, z].item() == pytest.approx(expected, abs=1e-9)


def test_gradients_pass_the_numerical_check():
    e = Example(5, 2, 3, 2, whole=True)
    for form in (losses.marginal_nll_per_token, losses.marginal_nll_joint):

        def value(scores, targets, form=form):
            return form(targets, losses.candidate_log_probs(scores, e.valid), e.slots)[0]

        assert torch.autograd.gradcheck(value, (e.scores, e.targets))


def test_with_several_wordpieces_the_forms_differ():
    """One document knows the first wordpiece, the other the second: each alone is likely, the whole span is not."""
    targets = torch.tensor([[[0.9, 0.1], [0.1, 0.9]]]).log()
    log_p_z, slots = torch.tensor([[0.5, 0.5]]).log(), torch.ones(1, 2, dtype=torch.bool)
    assert losses.marginal_nll_per_token(targets, log_p_z, slots)[0].item() == pytest.approx(-2 * math.log(0.5))
    assert losses.marginal_nll_joint(targets, log_p_z, slots)[0].item() == pytest.approx(-math.log(0.09))


@given(SHAPES)
def test_utilities_against_their_definition(shape):
    e = Example(*shape)
    ru = losses.retrieval_utility(e.targets, e.slots)
    mu = losses.marginal_utility(e.targets, e.log_p_z, e.slots)
    assert (ru[:, 0] == 0).all() and (mu[~e.slots] == 0).all()
    for i in range(e.shape[0]):
        for z in range(e.shape[1]):
            assert ru[i, z].item() == pytest.approx(math.log(e.p_span(i, z)) - math.log(e.p_span(i, 0)), abs=1e-9)
        for j in e.real(i) if e.valid[i].any() else []:
            p_y = sum(p * e.p_token(i, z, j) for z, p in enumerate(e.p_z(i)))
            assert mu[i, j].item() == pytest.approx(math.log(p_y / e.p_token(i, 0, j)), abs=1e-9)


def test_masked_candidates_and_slots_cannot_be_felt():
    """Whatever stands at a masked place, infinities and NaN included: probability 0, gradient 0, the same loss."""
    e = Example(11, 3, 4, 3)
    e.valid = torch.tensor([[1, 1, 0, 1], [0, 0, 1, 0], [1, 1, 1, 0]]).bool()
    e.slots = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]]).bool()
    hidden = ~e.valid.unsqueeze(-1) | ~e.slots.unsqueeze(1)
    for form in (losses.marginal_nll_per_token, losses.marginal_nll_joint):
        clean, _ = form(e.targets, e.log_p_z, e.slots)
        for junk in (NINF, float("inf"), float("nan"), 1e4):
            scores = e.scores.detach().masked_fill(~e.valid, junk).requires_grad_()
            targets = e.targets.detach().masked_fill(hidden, junk).requires_grad_()
            loss, valid = form(targets, losses.candidate_log_probs(scores, e.valid), e.slots)
            assert valid.all()
            torch.testing.assert_close(loss, clean, rtol=1e-12, atol=0)
            loss.sum().backward()
            assert (scores.grad[~e.valid] == 0).all() and (targets.grad[hidden] == 0).all()
            assert torch.isfinite(scores.grad).all() and torch.isfinite(targets.grad).all()
        gradient = losses.retriever_gradient(e.targets.detach().masked_fill(hidden, NINF), e.log_p_z, e.slots)
        assert (gradient[~e.valid] == 0).all() and torch.isfinite(gradient).all()


@pytest.mark.parametrize("kind", ["no candidate", "no slot", "neither", "all scores -inf"])
@pytest.mark.parametrize("form", [losses.marginal_nll_per_token, losses.marginal_nll_joint])
def test_invalid_examples_contribute_exactly_nothing(form, kind):
    e = Example(3, 3, 4, 2, whole=True)
    scores = e.scores.detach().clone()
    if kind in ("no candidate", "neither"):
        e.valid[1] = False
    if kind in ("no slot", "neither"):
        e.slots[1] = False
    if kind == "all scores -inf":
        scores[1] = NINF
    scores.requires_grad_()
    log_p_z = losses.candidate_log_probs(scores, e.valid)
    loss, valid = form(e.targets, log_p_z, e.slots)
    assert valid.tolist() == [True, False, True] and loss[1] == 0
    assert torch.isfinite(loss).all()
    loss.sum().backward()
    assert (scores.grad[1] == 0).all() and (e.targets.grad[1] == 0).all()
    assert torch.isfinite(scores.grad).all() and torch.isfinite(e.targets.grad).all()
    assert torch.isfinite(losses.retriever_gradient(e.targets, log_p_z, e.slots)).all()


@given(SHAPES, st.floats(0.1, 0.9))
def test_span_and_retriever_marginals_against_enumeration(shape, density):
    seed, b, n, _ = shape
    rng = torch.Generator().manual_seed(seed)
    logits = (torch.randn(b, n, generator=rng, dtype=torch.float64) * 3).requires_grad_()
    valid = torch.rand(b, n, generator=rng) < 0.8
    correct = torch.rand(b, n, generator=rng) < density
    for form, mass in ((losses.retriever_marginal, sum), (losses.span_marginal, sum), (losses.span_hard, max)):
        logits.grad = None
        loss, found = form(logits, correct, valid)
        for i in range(b):
            every = [math.exp(logits[i, c].item()) for c in range(n) if valid[i, c]]
            right = [math.exp(logits[i, c].item()) for c in range(n) if valid[i, c] and correct[i, c]]
            assert bool(found[i]) == bool(right)
            assert loss[i].item() == pytest.approx(-math.log(mass(right) / sum(every)) if right else 0.0, abs=1e-9)
        loss.sum().backward()
        assert torch.isfinite(logits.grad).all()
        assert (logits.grad[~valid] == 0).all() and (logits.grad[~found] == 0).all()


@pytest.mark.parametrize("form", [losses.retriever_marginal, losses.span_marginal, losses.span_hard])
def test_correct_mass_ignores_what_is_not_there(form):
    logits = torch.tensor([[1.0, NINF, 2.0], [NINF, NINF, NINF], [1.0, 2.0, float("nan")]], requires_grad=True)
    correct = torch.tensor([[True, True, False], [True, True, True], [False, True, True]])
    loss, found = form(logits, correct, torch.tensor([[True, True, True], [True, True, True], [True, True, False]]))
    assert found.tolist() == [True, False, True] and loss[1] == 0
    assert loss[0].item() == pytest.approx(math.log(1 + math.e)) and loss[2].item() == pytest.approx(math.log(1 + math.exp(-1)))
    loss.sum().backward()
    assert torch.isfinite(logits.grad).all() and (logits.grad[1] == 0).all()


@pytest.mark.parametrize("span", [1e4, 1e6])
def test_extreme_values_stay_finite_in_float32(span):
    scores = torch.tensor([[span, -span, 0.0], [-span, -span, -span], [span, span, span]], requires_grad=True)
    targets = (torch.tensor([[-span, 0.0, -1.0]]).T * torch.ones(3, 3, 2)).requires_grad_()
    valid, slots = torch.ones(3, 3, dtype=torch.bool), torch.ones(3, 2, dtype=torch.bool)
    log_p_z = losses.candidate_log_probs(scores, valid)
    values = [losses.marginal_nll_per_token(targets, log_p_z, slots)[0], losses.marginal_nll_joint(targets, log_p_z, slots)[0]]
    values += [losses.retriever_marginal(scores, torch.eye(3).bool(), valid)[0], losses.ict(scores, scores / span, torch.arange(3))[0]]
    for value in values:
        assert torch.isfinite(value).all() and (value >= -1e-3).all()
    sum(v.sum() for v in values).backward()
    assert torch.isfinite(scores.grad).all() and torch.isfinite(targets.grad).all()
    assert torch.isfinite(losses.retriever_gradient(targets, log_p_z, slots)).all()


def test_pretraining_minimises_the_likelihood_that_the_recipe_names():
    e = Example(1, 3, 4, 3)
    scored = ScoredCandidates(e.log_p_z, e.targets, e.slots, 0)
    for marginal, nll in (("token", losses.marginal_nll_per_token), ("joint", losses.marginal_nll_joint)):
        section = build_recipe({"pretrain": {"marginal": marginal}}).pretrain
        torch.testing.assert_close(pretraining_loss(scored, section), nll(e.targets, e.log_p_z, e.slots))
    assert PretrainConfig().marginal == "token"


class Spans:
    """Random span scores of b sentences' k candidates; candidate 0 has no span, as the null document has none."""

    def __init__(self, seed, b=2, k=4, s=5):
        rng = torch.Generator().manual_seed(seed)
        self.f = (torch.randn(b, k, s, generator=rng, dtype=torch.float64) * 2).requires_grad_()
        self.n = torch.randn(b, k, generator=rng, dtype=torch.float64).requires_grad_()
        self.scores = torch.randn(b, k, generator=rng, dtype=torch.float64).requires_grad_()
        self.valid = torch.rand(b, k, s, generator=rng) < 0.8
        self.valid[:, 0] = False
        self.equal = torch.rand(b, k, s, generator=rng) < 0.3
        self.log_pi = torch.log(torch.rand(b, generator=rng, dtype=torch.float64) * 0.1 + 1e-3)
        self.shape = b, k, s

    @property
    def log_p(self):
        return losses.pointer_log_probs(self.f, self.n, self.equal, self.valid, self.log_pi)

    def p(self, i, z):
        exps = [math.exp(f) if v else 0.0 for f, v in zip(self.f[i, z].tolist(), self.valid[i, z].tolist(), strict=True)]
        n = math.exp(self.n[i, z].item())
        hits = sum(e for e, equal in zip(exps, self.equal[i, z].tolist(), strict=True) if equal)
        return (hits + n * math.exp(self.log_pi[i].item())) / (n + sum(exps))


@given(st.tuples(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 5), st.integers(1, 6)))
def test_a_pointer_is_the_enumerated_share_of_equal_spans_and_of_the_prior(shape):
    e = Spans(*shape)
    p = e.log_p.exp()
    for i in range(e.shape[0]):
        for z in range(e.shape[1]):
            assert p[i, z].item() == pytest.approx(e.p(i, z), rel=1e-9)
        assert e.log_p[i, 0].item() == pytest.approx(e.log_pi[i].item(), abs=1e-12)  # the null document: the prior alone
    each = losses.span_log_posterior(e.f, e.n, e.valid).exp()
    assert (each.sum(-1) <= 1 + 1e-12).all() and (each[~e.valid] == 0).all()


@given(st.tuples(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 5), st.integers(1, 6)))
def test_the_papers_identity_holds_for_a_pointer(shape):
    e = Spans(*shape)
    slots = torch.ones(e.shape[0], 1, dtype=torch.bool)
    log_p_z = losses.candidate_log_probs(e.scores, torch.ones(e.shape[:2], dtype=torch.bool))
    loss, valid = losses.marginal_nll_joint(e.log_p.unsqueeze(-1), log_p_z, slots)
    loss.sum().backward()
    assert valid.all()
    for i in range(e.shape[0]):
        p_z = log_p_z[i].exp().tolist()
        p_y = sum(p_z[z] * e.p(i, z) for z in range(e.shape[1]))
        assert loss[i].item() == pytest.approx(-math.log(p_y), rel=1e-9)
        for z in range(e.shape[1]):
            assert -e.scores.grad[i, z].item() == pytest.approx((e.p(i, z) / p_y - 1) * p_z[z], abs=1e-9)


@pytest.mark.parametrize("where", ["in no block", "twice in one block", "null only", "everywhere"])
def test_a_pointers_gradient_passes_the_numerical_check(where):
    e = Spans(3)
    if where == "in no block":
        e.equal[:] = False
    elif where == "twice in one block":
        e.equal[:], e.valid[:, 1] = False, True
        e.equal[:, 1, 1] = e.equal[:, 1, 3] = True
    elif where == "null only":
        e.valid[:] = False
    else:
        e.equal[:] = True

    def value(f, n):
        return losses.pointer_log_probs(f, n, e.equal, e.valid, e.log_pi)

    assert torch.autograd.gradcheck(value, (e.f, e.n))
    for i in range(e.shape[0]):
        for z in range(e.shape[1]):
            assert e.log_p[i, z].exp().item() == pytest.approx(e.p(i, z), rel=1e-9)


def test_a_pointer_stays_finite_in_float32():
    f, n = torch.tensor([[[1e4, -1e4, 0.0]]], requires_grad=True), torch.tensor([[0.0]], requires_grad=True)
    valid, equal = torch.ones(1, 1, 3, dtype=torch.bool), torch.tensor([[[False, True, False]]])
    p = losses.pointer_log_probs(f, n, equal, valid, torch.tensor([-9.0]))
    p.sum().backward()
    assert torch.isfinite(p).all() and torch.isfinite(f.grad).all() and torch.isfinite(n.grad).all()


@given(st.tuples(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 5), st.integers(1, 6)))
def test_pointing_is_learnt_over_all_documents_and_not_here_of_those_without(shape):
    e = Spans(*shape)
    loss, known = losses.pointing_nll(e.f, e.n, e.equal, e.valid)
    b, k, s = e.shape
    for i in range(b):
        exps = [[math.exp(e.f[i, z, j].item()) * bool(e.valid[i, z, j]) for j in range(s)] for z in range(k)]
        hits = [sum(exps[z][j] for j in range(s) if e.equal[i, z, j]) for z in range(k)]
        asked = [z for z in range(k) if e.valid[i, z].any()]
        without = [z for z in asked if not hits[z]]
        expected = 0.0 if not sum(hits) else -math.log(sum(hits) / sum(map(sum, exps)))
        nones = [-math.log(math.exp(e.n[i, z].item()) / (math.exp(e.n[i, z].item()) + sum(exps[z]))) for z in without]
        expected += sum(nones) / len(nones) if nones else 0.0
        assert loss[i].item() == pytest.approx(expected, rel=1e-9, abs=1e-12) and bool(known[i]) == bool(asked)
    loss.sum().backward()
    assert torch.isfinite(e.f.grad).all() and torch.isfinite(e.n.grad).all() and (e.n.grad[:, 0] == 0).all()


@given(st.tuples(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 5), st.integers(1, 6)))
def test_whether_a_block_holds_an_answer_is_learnt_of_the_blocks_asked(shape):
    e = Spans(*shape)
    holding, asked = torch.rand(e.shape[:2]) < 0.5, (torch.rand(e.shape[:2]) < 0.7) & e.valid.any(-1)
    log_none = losses.not_here_log_posterior(e.f, e.n, e.valid)
    here = losses.span_log_posterior(e.f, e.n, e.valid).exp().sum(-1)
    assert torch.allclose(log_none.exp() + here, torch.ones_like(here)), "spans and none share 1"
    loss, known = losses.presence_nll(here.clamp(min=1e-300).log(), log_none, holding, asked)
    for i in range(e.shape[0]):
        own = [-math.log(here[i, z].item() if holding[i, z] else 1 - here[i, z].item()) for z in range(e.shape[1]) if asked[i, z]]
        assert loss[i].item() == pytest.approx(sum(own) / len(own) if own else 0.0) and bool(known[i]) == bool(own)
    loss.sum().backward()
    assert torch.isfinite(e.f.grad).all() and (e.n.grad[~asked] == 0).all()
    assert (e.n.grad[asked & ~holding] < 0).all() and (e.n.grad[asked & holding] > 0).all()


def test_ict_is_cross_entropy_over_the_columns():
    rng = torch.Generator().manual_seed(0)
    queries = torch.randn(3, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    blocks = torch.randn(5, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    positive = torch.tensor([4, 0, 2])
    loss, valid = losses.ict(queries, blocks, positive)
    assert valid.all()
    for i, own in enumerate(positive.tolist()):
        scores = [math.exp(float(queries[i].detach() @ blocks[c].detach())) for c in range(5)]
        assert loss[i].item() == pytest.approx(-math.log(scores[own] / sum(scores)), rel=1e-9)
    loss.sum().backward()
    assert torch.isfinite(queries.grad).all() and torch.isfinite(blocks.grad).all()


def test_ict_collisions_are_no_negatives():
    """Block 7 was drawn twice: the second copy is no negative of the first, and a query's own column always counts."""
    rng = torch.Generator().manual_seed(1)
    queries = torch.randn(3, 4, generator=rng, dtype=torch.float64)
    blocks = torch.randn(3, 4, generator=rng, dtype=torch.float64).requires_grad_()
    ids = torch.tensor([7, 7, 9])
    collision = ids.unsqueeze(1) == ids.unsqueeze(0)
    loss, valid = losses.ict(queries, blocks, torch.arange(3), collision)
    assert valid.all()
    for i, kept in enumerate([(0, 2), (1, 2), (0, 1, 2)]):
        scores = {c: math.exp(float(queries[i].detach() @ blocks[c].detach())) for c in kept}
        assert loss[i].item() == pytest.approx(-math.log(scores[i] / sum(scores.values())), rel=1e-9)
    loss[0].backward()
    assert (blocks.grad[1] == 0).all() and (blocks.grad[0] != 0).any()
    everything, _ = losses.ict(queries, blocks, torch.arange(3), torch.ones(3, 3, dtype=torch.bool))
    assert everything.tolist() == [0, 0, 0]
