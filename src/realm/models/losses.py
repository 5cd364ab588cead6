"""The mathematics of REALM and ORQA as pure functions.

Shapes: b examples, k candidates (null at 0), m mask slots, d projection, c retriever beam, s candidate spans.
Every loss returns ``(loss [b], valid [b])``: an example with nothing to learn from has ``valid`` False, a loss of exactly 0 and a
gradient of exactly 0 (never NaN), so callers decide how to average. Masked candidates get probability exactly zero."""

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = tuple[Tensor, Tensor]


def _logsumexp(values: Tensor, keep: Tensor, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Log-sum-exp over the kept entries, and whether there were any; 0 with zero gradient where there were none."""
    some = keep.any(dim=dim)
    # An all-masked row would give NaN gradients: it is computed over zeros and then cut off by `where`.
    safe = values.masked_fill(~keep, float("-inf")).masked_fill(~some.unsqueeze(dim), 0.0)
    return torch.where(some, torch.logsumexp(safe, dim=dim), 0.0), some


def _candidates(log_p_z: Tensor) -> Tensor:
    """Mask of existing candidates. NaN counts as one: damaged weights must give a loss of NaN instead of leaving an example out."""
    return log_p_z != float("-inf")


def ict(query_emb: Tensor, block_emb: Tensor, positive: Tensor, collision: Tensor | None = None) -> Loss:
    """Inverse cloze task: softmax cross-entropy of each pseudo-query against all blocks of the batch (ORQA, section 5).

    ``query_emb`` [b, d] against ``block_emb`` [n, d], the blocks of every rank; ``positive`` [b] is the column of each query's own block,
    and ``collision`` [b, n] True at columns of the same block drawn twice, which are no negatives."""
    scores = inner_products(query_emb, block_emb)
    if collision is not None:
        own = F.one_hot(positive, scores.shape[1]).bool()
        scores = scores.masked_fill(collision & ~own, float("-inf"))
    return F.cross_entropy(scores, positive, reduction="none"), torch.ones_like(positive, dtype=torch.bool)


def inner_products(query_emb: Tensor, block_emb: Tensor) -> Tensor:
    """Inner products of [b, d] with [n, d] -> [b, n], or with [b, k, d] -> [b, k], in float32 or better despite autocast.

    In bfloat16, scores near 120 are steps of .5, too coarse to order a beam."""
    equation = "bd,nd->bn" if block_emb.dim() == 2 else "bd,bkd->bk"
    with torch.autocast(query_emb.device.type, enabled=False):
        return torch.einsum(equation, *(values.float() if values.dtype.itemsize < 4 else values for values in (query_emb, block_emb)))


def relevance_scores(query_emb: Tensor, block_emb: Tensor, null: Tensor | None = None, null_offset: Tensor | None = None) -> Tensor:
    """f(x, z) [b, k]: inner products (REALM, section 3.1), plus a learned scalar ``null_offset`` at the null document.

    ``query_emb`` [b, d] is scaled already; ``block_emb`` is [b, k, d], or [k, d] if every query has the same documents; ``null`` [b, k] or
    [k]."""
    scores = inner_products(query_emb, block_emb)
    return scores if null is None or null_offset is None else scores + torch.where(null, null_offset, 0.0)


def candidate_log_probs(scores: Tensor, valid: Tensor) -> Tensor:
    """log p(z|x): log-softmax of relevance scores [b, k] over the valid candidates [b, k] (REALM, equation 2).

    >>> candidate_log_probs(torch.zeros(1, 3), torch.tensor([[True, True, False]])).exp()
    tensor([[0.5000, 0.5000, 0.0000]])

    Returns [b, k], -inf at masked candidates and at scores of -inf; a row without any valid candidate is all -inf."""
    kept = valid & (scores != float("-inf"))
    # Scores of fresh embeddings are large: taking the maximum off first keeps the digits of the difference.
    highest = scores.detach().masked_fill(~kept, torch.finfo(scores.dtype).min).amax(-1, keepdim=True)
    shifted = scores - highest
    total, _ = _logsumexp(shifted, kept)
    return (shifted - total.unsqueeze(-1)).masked_fill(~kept, float("-inf"))


def even_null_offset(log_p_z: Tensor) -> Tensor:
    """Offset of the null document's score that gives it a probability of 1/k in the mean of the queries, from log p(z|x) [b, k].

    Without it p(null) starts below 1e-7 after ICT, and gets no gradient. A scalar; 0 if no query has another candidate."""
    kept = _candidates(log_p_z[:, 1:])
    others, some = _logsumexp(log_p_z[:, 1:], kept)
    wanted = -torch.log(kept.sum(-1).clamp(min=1).to(log_p_z.dtype))
    return (wanted - (log_p_z[:, 0] - others))[some].mean() if bool(some.any()) else log_p_z.new_zeros(())


def marginal_token_log_probs(target_log_probs: Tensor, log_p_z: Tensor, slots: Tensor) -> Tensor:
    """log p(y_j|x) = log sum over z of p(z|x) p(y_j|z,x), each masked wordpiece on its own (as in the released code).

    Of target_log_probs [b, k, m], log_p_z [b, k] from :func:`candidate_log_probs`, and real ``slots`` [b, m]: [b, m], 0 at padding slots.
    """
    kept = _candidates(log_p_z)
    keep = kept.unsqueeze(-1) & slots.unsqueeze(1)
    joint = target_log_probs + log_p_z.masked_fill(~kept, 0.0).unsqueeze(-1)
    return _logsumexp(joint, keep, dim=1)[0]


def marginal_nll_per_token(target_log_probs: Tensor, log_p_z: Tensor, slots: Tensor) -> Loss:
    """Negative marginal log-likelihood, marginalised per masked wordpiece and summed over the slots of an example.

    The objective of the released code; with one masked wordpiece it equals the joint form. Arguments as in
    :func:`marginal_token_log_probs`; the released mean is the batch's sum divided by ``slots.sum()``."""
    valid = slots.any(-1) & _candidates(log_p_z).any(-1)
    loss = -marginal_token_log_probs(target_log_probs, log_p_z, slots).sum(-1)
    return torch.where(valid, loss, 0.0), valid


def span_log_probs(target_log_probs: Tensor, slots: Tensor) -> Tensor:
    """log p(y|z,x) of a whole masked span: the sum over its slots. [b, k, m], [b, m] -> [b, k] (REALM, section 3.2)."""
    return target_log_probs.masked_fill(~slots.unsqueeze(1), 0.0).sum(-1)


def marginal_nll_joint(target_log_probs: Tensor, log_p_z: Tensor, slots: Tensor) -> Loss:
    """-log p(y|x) with p(y|x) = sum over z of p(z|x) times the product over j of p(y_j|z,x) (REALM, equation 1)."""
    kept = _candidates(log_p_z)
    joint = span_log_probs(target_log_probs, slots) + log_p_z.masked_fill(~kept, 0.0)
    total, some = _logsumexp(joint, kept)
    valid = slots.any(-1) & some
    return torch.where(valid, -total, 0.0), valid


def retrieval_utility(target_log_probs: Tensor, slots: Tensor) -> Tensor:
    """RU(z|x) = log p(y|z,x) - log p(y|null,x) of every candidate (REALM, section 5.2, equation 3). -> [b, k]."""
    joint = span_log_probs(target_log_probs, slots)
    return joint - joint[:, :1]


def marginal_utility(target_log_probs: Tensor, log_p_z: Tensor, slots: Tensor) -> Tensor:
    """log p(y_j|x) - log p(y_j|null,x) per masked wordpiece: ``retrieval_utility`` in the released code. -> [b, m]."""
    marginal = marginal_token_log_probs(target_log_probs, log_p_z, slots)
    return (marginal - target_log_probs[:, 0]).masked_fill(~slots, 0.0)


def retriever_gradient(target_log_probs: Tensor, log_p_z: Tensor, slots: Tensor) -> Tensor:
    """r(z) = [p(y|z,x)/p(y|x) - 1] p(z|x), the gradient of log p(y|x) by f(x,z) in closed form (REALM, section 3.3). -> [b, k]."""
    joint = span_log_probs(target_log_probs, slots)
    kept = _candidates(log_p_z)
    total, _ = _logsumexp(joint + log_p_z.masked_fill(~kept, 0.0), kept)
    # p(y|z,x) / p(y|x) alone may overflow where p(z|x) is tiny; their product is a posterior, at most 1.
    return torch.where(kept, (joint + log_p_z - total.unsqueeze(-1)).exp() - log_p_z.exp(), 0.0)


def span_log_posterior(span_scores: Tensor, not_here: Tensor, valid: Tensor) -> Tensor:
    """log p(s|z,x) = f(s) - log(exp n + sum over S(z) of exp f): a document's spans share their probability with "not here".

    Of span_scores f [..., s], ``not_here`` n [...], the score of an absent span, and ``valid`` [..., s], True at S(z): [..., s], -inf where
    not valid. The rest to 1 is p(none|z,x)."""
    everything = _log_normaliser(span_scores, not_here, valid)
    return (span_scores - everything.unsqueeze(-1)).masked_fill(~valid, float("-inf"))


def not_here_log_posterior(span_scores: Tensor, not_here: Tensor, valid: Tensor) -> Tensor:
    """log p(none|z,x) [...], the rest to 1 beside :func:`span_log_posterior`; arguments as there."""
    return not_here - _log_normaliser(span_scores, not_here, valid)


def presence_nll(log_here: Tensor, log_none: Tensor, holding: Tensor, asked: Tensor) -> Loss:
    """Mean over the asked blocks of -log p(here|z,x) if a block holds an answer, else -log p(none|z,x); [b, k] each.

    The marginal likelihood teaches only which block is likelier, and not whether any holds an answer. ``asked`` blocks have a known label.
    """
    return _mean_nll(torch.where(holding, log_here, log_none), asked)


def _mean_nll(log_p: Tensor, asked: Tensor) -> Loss:
    """Mean of -log p [b, k] over the asked entries; 0 and False in a row without any."""
    return -log_p.masked_fill(~asked, 0.0).sum(-1) / asked.sum(-1).clamp(min=1), asked.any(-1)


def _log_normaliser(span_scores: Tensor, not_here: Tensor, valid: Tensor) -> Tensor:
    """log(exp n + sum over S(z) of exp f), [...]; n alone if a document has no span."""
    found, some = _logsumexp(span_scores, valid)
    return torch.logaddexp(found.masked_fill(~some, float("-inf")), not_here)


def pointer_log_probs(span_scores: Tensor, not_here: Tensor, equal: Tensor, valid: Tensor, log_prior: Tensor) -> Tensor:
    """log p(y|z,x) of a reader that points: y is a span of z, or else as likely as in the whole corpus.

    p(y|z,x) = sum over the spans s of z equal to y of p(s|z,x) + p(none|z,x) pi(y); without spans, as in the null document, pi(y) alone.
    As the one slot of :func:`marginal_nll_joint` it gives p(y|x), and r(z) holds as before. (Relatives: Splinter, Ram et al. 2021, arXiv
    2101.00438; SSPT, Glass et al. 2020, arXiv 1909.04120.)

    Args:
        span_scores, not_here, valid: as for :func:`span_log_posterior`; [b, k, s], [b, k], [b, k, s].
        equal: [b, k, s] True at the spans with the normalised text of y.
        log_prior: [b] log pi(y), finite.

    Returns [b, k]."""
    found, some = _logsumexp(span_scores, valid & equal)
    everything = _log_normaliser(span_scores, not_here, valid)
    elsewhere = not_here + log_prior.unsqueeze(-1)
    return torch.where(some, torch.logaddexp(found, elsewhere), elsewhere) - everything


def pointing_nll(span_scores: Tensor, not_here: Tensor, equal: Tensor, valid: Tensor) -> Loss:
    """Pointing loss before documents are judged: y against all other spans of all candidates, and "not here" in those without y.

    -log of the share of exp f at spans equal to y, if a candidate holds y, plus the mean of -log p(none|z,x) over the candidates without y.
    The marginal likelihood teaches neither: while one document has y, wrong spans elsewhere cost nothing, and "not here" everywhere is a
    plateau. Arguments as for :func:`pointer_log_probs`; candidates without a valid span do not count. No gradient reaches the retriever."""
    here = valid & equal
    pointing, some = _correct_mass_nll(span_scores.flatten(1), here.flatten(1), valid.flatten(1))
    absent, lacking = _mean_nll(not_here_log_posterior(span_scores, not_here, valid), valid.any(-1) & ~here.any(-1))
    known = some | lacking
    return torch.where(known, torch.where(some, pointing, 0.0) + absent, 0.0), known


def _correct_mass_nll(logits: Tensor, correct: Tensor, valid: Tensor) -> Loss:
    """Log of all mass minus log of the correct mass, over one row of logits. [b, n] each -> [b]."""
    kept = valid & (logits != float("-inf"))
    everything, _ = _logsumexp(logits, kept)
    right, some = _logsumexp(logits, kept & correct)
    return torch.where(some, everything - right, 0.0), some


def retriever_marginal(scores: Tensor, correct: Tensor, valid: Tensor) -> Loss:
    """-log of the retriever's mass on blocks with an answer, over a wide beam (ORQA, section 4.2, "early update").

    Of ``scores`` question_emb . block_emb, ``correct`` blocks with an answer, and ``valid`` candidates, [b, c] each."""
    return _correct_mass_nll(scores, correct, valid)


def span_marginal(span_logits: Tensor, correct: Tensor, valid: Tensor) -> Loss:
    """-log of the mass on correct spans, normalised jointly over the spans of all candidates (ORQA, section 4.2).

    Of ``span_logits`` (span score + relevance of its block), ``correct`` spans, and ``valid`` spans in a block, [b, s] each."""
    return _correct_mass_nll(span_logits, correct, valid)


def span_hard(span_logits: Tensor, correct: Tensor, valid: Tensor) -> Loss:
    """-log of the mass on the likeliest correct span alone: hard EM (Min et al. 2019, arXiv 1909.04849). As :func:`span_marginal`."""
    likeliest = span_logits.masked_fill(~(correct & valid), float("-inf")).argmax(-1)
    return _correct_mass_nll(span_logits, correct & F.one_hot(likeliest, span_logits.shape[-1]).bool(), valid)
