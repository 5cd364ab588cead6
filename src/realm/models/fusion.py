"""A reader that writes: a local sequence-to-sequence model reads each block with the question, and its decoder attends to all blocks at
once (fusion in the decoder, Izacard and Grave 2021)."""

from collections.abc import Sequence as SequenceOf
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from realm.errors import ConfigError, said
from realm.models.bodies.body import refuse_kernels, silenced

MAX_INPUT_TOKENS = 256  # tokens of one "question, title, block", in the model's own vocabulary
MAX_ANSWER_TOKENS = 16  # tokens of an answer
IGNORE_INDEX = -100
Passage = tuple[str, str]  # title and text


def load_transformers(directory: Path, auto: str, kind: str, examples: str) -> tuple[Any, Any]:
    """A model of transformers' class ``auto`` and its tokenizer, executing nothing. Raises ConfigError: no such model in safetensors."""
    import transformers

    cure = f"Name a directory with config.json, model.safetensors and tokenizer files of {examples}."
    if not Path(directory).is_dir():
        raise ConfigError("no such directory", path=directory, cure=cure)
    try:
        refuse_kernels(transformers.AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False))
        load = getattr(transformers, auto).from_pretrained
        with silenced():
            model = load(directory, use_safetensors=True, local_files_only=True, trust_remote_code=False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises whatever the damaged file makes its parts raise
        raise ConfigError(f"no {kind} can be loaded: {said(error)}", path=directory, cure=cure) from error
    return model, tokenizer


class FusionReader(nn.Module):
    """A transformers sequence-to-sequence model with its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any):
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer

    @classmethod
    def load(cls, directory: Path) -> "FusionReader":
        """Load a directory of transformers, executing nothing. Raises ConfigError: no sequence-to-sequence model in safetensors."""
        return cls(*load_transformers(directory, "AutoModelForSeq2SeqLM", "sequence-to-sequence model", "a T5, a BART or the like"))

    def save(self, directory: Path) -> None:
        """Write the files of :meth:`load`."""
        self.model.save_pretrained(directory, safe_serialization=True)
        self.tokenizer.save_pretrained(directory)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Clone shared tensors (input and output embeddings), which safetensors refuses to write twice."""
        state: dict[str, Any] = super().state_dict(*args, **kwargs)
        seen: dict[int, str] = {}
        for name, value in list(state.items()):
            if isinstance(value, Tensor) and seen.setdefault(value.data_ptr(), name) != name:
                state[name] = value.clone()
        return state

    def loss(self, questions: SequenceOf[str], passages: SequenceOf[SequenceOf[Passage]], answers: SequenceOf[str]) -> Tensor:
        """-log p(answer) of each question, summed over the answer's tokens. [b]"""
        hidden, mask = self._fused(questions, passages)
        labels = self._encode(list(answers), MAX_ANSWER_TOKENS)
        targets = labels["input_ids"].masked_fill(labels["attention_mask"] == 0, IGNORE_INDEX)
        logits = self.model(encoder_outputs=self._outputs(hidden), attention_mask=mask, labels=targets).logits
        return F.cross_entropy(logits.float().transpose(1, 2), targets, ignore_index=IGNORE_INDEX, reduction="none").sum(-1)

    @torch.inference_mode()
    def generate(self, questions: SequenceOf[str], passages: SequenceOf[SequenceOf[Passage]]) -> tuple[list[str], Tensor]:
        """The greedy answer to each question, and log p of its tokens together, [b]."""
        hidden, mask = self._fused(questions, passages)
        done = self.model.generate(
            encoder_outputs=self._outputs(hidden), attention_mask=mask, max_new_tokens=MAX_ANSWER_TOKENS, num_beams=1, do_sample=False,
            output_scores=True, return_dict_in_generate=True,
        )  # fmt: skip
        steps = self.model.compute_transition_scores(done.sequences, done.scores, normalize_logits=True)
        written = done.sequences[:, -steps.shape[1] :] != self.model.config.pad_token_id
        log_p = torch.where(written & torch.isfinite(steps), steps, 0.0).sum(-1)
        return [text.strip() for text in self.tokenizer.batch_decode(done.sequences, skip_special_tokens=True)], log_p

    def _fused(self, questions: SequenceOf[str], passages: SequenceOf[SequenceOf[Passage]]) -> tuple[Tensor, Tensor]:
        """Encoder states of all blocks of a question side by side, [b, k * t, h], and True at real ones, [b, k * t]."""
        most = max(1, *(len(found) for found in passages))
        texts, real = [], []
        for question, found in zip(questions, passages, strict=True):
            padded = [*found, *[("", "")] * (most - len(found))]
            texts += [f"question: {question} title: {title} context: {text}" for title, text in padded]
            real += [at < len(found) or (at == 0 and not found) for at in range(most)]
        inputs = self._encode(texts, MAX_INPUT_TOKENS)
        states = self.model.get_encoder()(**inputs).last_hidden_state
        mask = inputs["attention_mask"] * torch.tensor(real, device=states.device).long().unsqueeze(1)
        return states.reshape(len(questions), -1, states.shape[-1]), mask.reshape(len(questions), -1)

    def _encode(self, texts: list[str], length: int) -> dict[str, Tensor]:
        found = self.tokenizer(texts, truncation=True, max_length=length, padding=True, return_tensors="pt")
        device = next(self.model.parameters()).device
        return {name: found[name].to(device) for name in ("input_ids", "attention_mask")}

    def _outputs(self, hidden: Tensor) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        return BaseModelOutput(last_hidden_state=hidden)
