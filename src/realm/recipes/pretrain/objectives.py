"""What a pre-training step minimises: the marginal likelihood, or one term for the encoder and another for the retriever."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from realm import losses
from realm.config import PretrainConfig
from realm.pointer import Pointed

LIKELIHOODS = {"token": losses.marginal_nll_per_token, "joint": losses.marginal_nll_joint}
RETRIEVER_LOSSES: dict[str, Callable[[PretrainConfig], Callable[[Tensor, Tensor, Tensor], losses.Loss]]] = {
    "emdr2": lambda section: losses.emdr2_retriever,
    "distill": lambda section: partial(losses.distilled_retriever, temperature=section.temperature),
}
"""The objectives that teach the retriever by a loss of its own; ``marginal`` is the other one."""


@dataclass(frozen=True)
class ScoredCandidates:
    """One batch through both networks: live scores and target log-probabilities.

    log_p_z: [b, k] log p(z|x) over a query's own candidates. target_log_probs: [b, k, m]. slots: [b, m]. tokens: wordpieces read.
    encoded: wordpieces that the encoder read, a part of ``tokens``. pointed: what a reader that points made of them, whose own loss it
    learns by while it learns alone.
    """

    log_p_z: Tensor
    target_log_probs: Tensor
    slots: Tensor
    tokens: int
    encoded: int = 0
    pointed: Pointed | None = None


def pretraining_loss(scored: ScoredCandidates, section: PretrainConfig) -> losses.Loss:
    """The loss of each example, summed over its masked wordpieces, and whether it is valid: [b] each.

    With ``marginal`` one likelihood teaches both networks. With the other objectives the encoder learns from the same likelihood and the
    candidates as they were weighed, the retriever from what the encoder makes of each candidate; gradients are not shared.
    """
    nll = LIKELIHOODS[section.marginal]
    if section.objective == "marginal":
        return nll(scored.target_log_probs, scored.log_p_z, scored.slots)
    reading, valid = nll(scored.target_log_probs, scored.log_p_z.detach(), scored.slots)
    retriever_loss = RETRIEVER_LOSSES[section.objective](section)
    retrieving, _ = retriever_loss(scored.target_log_probs, scored.log_p_z, scored.slots)
    return reading + retrieving, valid
