"""A causal language model as the likelihood of pre-training: log p of a sentence's rest after a block and the sentence's beginning (REPLUG,
Shi et al. 2023). It stays as it is; the retriever learns by what the model makes of the blocks."""

from collections.abc import Sequence as SequenceOf
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from realm.models.fusion import load_transformers

MAX_REST_TOKENS = 64  # tokens of a rest that are predicted, in the model's own vocabulary
MAX_INPUT_TOKENS = 512  # tokens of a block, a beginning and a rest together
LOGITS_AT_ONCE = 2**26  # values of the logits in one forward pass: 256 MB


class LanguageModel(nn.Module):
    """A causal model of transformers with its tokenizer, whose weights never change."""

    def __init__(self, model: Any, tokenizer: Any):
        super().__init__()
        self.model, self.tokenizer = model.requires_grad_(False).eval(), tokenizer
        self.room = min(MAX_INPUT_TOKENS, getattr(model.config, "max_position_embeddings", None) or MAX_INPUT_TOKENS)

    @classmethod
    def load(cls, directory: Path) -> "LanguageModel":
        """Load a directory of transformers, executing nothing. Raises ConfigError: no causal language model in safetensors."""
        return cls(*load_transformers(directory, "AutoModelForCausalLM", "causal language model", "a GPT-2, a Llama or the like"))

    @torch.no_grad()
    def log_probs(self, blocks: SequenceOf[str], beginnings: SequenceOf[str], rests: SequenceOf[str]) -> tuple[Tensor, Tensor, Tensor]:
        """log p of each token of n rests after a block ("": none) and a beginning, [n, m]; which are the greedy choice; and which exist."""
        if not blocks:
            return torch.zeros(0, 1), torch.zeros(0, 1).bool(), torch.zeros(0, 1).bool()
        pairs = [self._tokens(*texts) for texts in zip(blocks, beginnings, rests, strict=True)]
        order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))
        each = max(1, LOGITS_AT_ONCE // (self.room * self.model.config.vocab_size))
        scored: dict[int, tuple[Tensor, Tensor]] = {}
        for at in range(0, len(order), each):
            some = order[at : at + each]
            scored |= zip(some, self._scored([pairs[i] for i in some]), strict=True)
        lengths = torch.tensor([len(rest) for _, rest in pairs]).unsqueeze(-1)
        log_probs, greedy = (pad_sequence([scored[i][part] for i in range(len(pairs))], batch_first=True) for part in (0, 1))
        return log_probs, greedy, (torch.arange(log_probs.shape[1]) < lengths).to(log_probs.device)

    def _scored(self, pairs: list[tuple[list[int], list[int]]]) -> list[tuple[Tensor, Tensor]]:
        device = next(self.model.parameters()).device
        whole = [torch.tensor([*head, *rest]) for head, rest in pairs]
        ids = pad_sequence(whole, batch_first=True).to(device)
        mask = pad_sequence([torch.ones_like(one) for one in whole], batch_first=True).to(device)
        first = min(len(head) for head, _ in pairs) - 1
        logits = self.model(ids, attention_mask=mask, use_cache=False, logits_to_keep=ids.shape[1] - first).logits
        log_p = logits[:, first - ids.shape[1] :].float().log_softmax(-1)
        begins = [len(head) - 1 - first for head, _ in pairs]
        here = [log_p[i, begin : begin + len(rest)] for i, (begin, (_, rest)) in enumerate(zip(begins, pairs, strict=True))]
        what = [torch.tensor(rest, device=device) for _, rest in pairs]
        return [(p.gather(-1, w.unsqueeze(-1)).squeeze(-1), p.argmax(-1) == w) for p, w in zip(here, what, strict=True)]

    def _tokens(self, block: str, beginning: str, rest: str) -> tuple[list[int], list[int]]:
        """Tokens before the rest, a token that opens a text first, and of the rest, which are the same after every block."""
        opening = next(one for one in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id, 0) if one is not None)
        texts = [f"{block}\n\n" if block else "", beginning.rstrip(), f" {rest.strip()}" if beginning.strip() else rest.strip()]
        passage, head, tail = (self.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts)
        tail = tail[: min(MAX_REST_TOKENS, self.room // 2)]
        head = head[-(self.room - 1 - len(tail)) :]
        return [opening, *passage[: self.room - 1 - len(head) - len(tail)], *head], tail


@lru_cache(maxsize=1)
def language_model(directory: str, device: torch.device) -> LanguageModel:
    """The model of a recipe, which is loaded once. Raises ConfigError: as ``LanguageModel.load``."""
    return LanguageModel.load(Path(directory)).to(device)
