"""What a pre-training step minimises: the marginal likelihood."""

from dataclasses import dataclass

from torch import Tensor

from realm import losses
from realm.config import PretrainConfig
from realm.pointer import Pointed

LIKELIHOODS = {"token": losses.marginal_nll_per_token, "joint": losses.marginal_nll_joint}


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
    """-log of the marginal likelihood of each example, summed over its masked wordpieces, and whether it is valid: [b] each."""
    return LIKELIHOODS[section.marginal](scored.target_log_probs, scored.log_p_z, scored.slots)
