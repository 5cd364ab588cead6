"""Transformer bodies of transformers' AutoModel behind one call: padded token inputs in, hidden states out; and the precision of products.

Pooling and segment ids belong to the specification and are saved with the weights, which mean nothing under others."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence as SequenceOf
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from realm.errors import ConfigError, RealmError, said
from realm.models.bodies.init import start_copying
from realm.models.featurize import length_buckets
from realm.models.spec import BodySpec
from realm.models.types import Sequence

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True)
class TokenInputs:
    """A padded batch: ``ids``, ``mask`` (True at real tokens) and ``segments``, each [b, t]."""

    ids: Tensor
    mask: Tensor
    segments: Tensor
    unpadded: bool = False  # the mask is True everywhere; asking the mask would wait for a GPU
    words: Tensor | None = None  # [b, t, h], embeddings of ``ids`` looked up before

    def to(self, device: torch.device) -> "TokenInputs":
        words = None if self.words is None else self.words.to(device)
        return TokenInputs(self.ids.to(device), self.mask.to(device), self.segments.to(device), self.unpadded, words)


def pad_batch(sequences: SequenceOf[Sequence], pad: int) -> TokenInputs:
    """Stack sequences of any lengths to [b, t], t the longest."""
    lengths = [len(s) for s in sequences]
    ids = pad_sequence([torch.tensor(s.ids) for s in sequences], batch_first=True, padding_value=pad)
    segments = pad_sequence([torch.tensor(s.segments) for s in sequences], batch_first=True)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return TokenInputs(ids, mask, segments, unpadded=min(lengths) == max(lengths))


def has_bf16(device: str) -> bool:
    """True if ``device`` ("cpu" or "cuda") multiplies bfloat16 in hardware; emulated on a CPU it is forty times slower than float32."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # AVX512-BF16, AMX-BF16 and the bf16 extension of Arm are what oneDNN multiplies bfloat16 with.
    return any(present for name, present in torch.cpu.get_capabilities().items() if "bf16" in name and isinstance(present, bool))


def multiplying(device: str, *, bf16: bool) -> torch.autocast:
    """Context in which networks multiply in bfloat16, if wanted and supported by the hardware."""
    return torch.autocast(device, dtype=torch.bfloat16, enabled=bf16 and has_bf16(device))


@contextmanager
def answering(network: nn.Module) -> Iterator[None]:
    """Let a network compute without gradients and dropout, whatever it does besides."""
    learning = network.training
    network.eval() if learning else None  # it takes milliseconds even if nothing changes
    try:
        with torch.inference_mode():
            yield
    finally:
        network.train() if learning else None


def rounded_once(network: Network, device: str) -> Network:
    """Copy a network with bfloat16 weights in its linear layers, for use inside ``multiplying(device, bf16=True)`` only.

    Rounding once instead of at every call gives the same bits. Other weights are shared; without bfloat16 hardware ``network`` is returned.
    """
    if not has_bf16(device):
        return network
    kept = {id(parameter): parameter for parameter in network.parameters()}
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            for parameter in layer.parameters():
                kept[id(parameter)] = nn.Parameter(parameter.detach().to(torch.bfloat16), requires_grad=False)
    return copy.deepcopy(network, kept)


ATTENTION_NAME = "realm"  # registered with transformers


def attend(query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, dropout: float = 0.0) -> Tensor:
    """Attention of each head, softmax(query key^T / sqrt(d)) value: [b, heads, q, d] over [b, heads, t, d] -> [b, heads, q, d].

    ``keep`` is bool, broadcastable to [b, heads, q, t], True at visible positions; None: all are visible."""
    if query.dtype == torch.bfloat16 and query.device.type == "cpu":
        return by_products(query, key, value, keep, dropout)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=keep, dropout_p=dropout)


def by_products(query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, dropout: float = 0.0) -> Tensor:
    """:func:`attend` by matrix products, with all probabilities in memory.

    In bfloat16 on a CPU this takes a quarter to three fifths of torch's time (benchmarks/results/2026-11-22-step-bf16-2-cores.md); in
    float32, and on a GPU, torch's fused attention is faster."""
    scores = torch.matmul(query * (1.0 / math.sqrt(query.shape[-1])), key.transpose(-1, -2))
    if keep is not None:
        # Added in place: nothing of the scores' size is copied, and the gradient needs no second look at the mask.
        scores += torch.zeros(keep.shape, dtype=scores.dtype, device=keep.device).masked_fill_(~keep, torch.finfo(scores.dtype).min)
    return torch.matmul(F.dropout(scores.softmax(-1), dropout), value)


def refuse_kernels(config: Any) -> None:
    """Refuse attention that transformers would fetch from the hub, which is code. Raises ConfigError: the configuration names it."""
    if "/" in str(config._attn_implementation):
        problem = f"its attention would be code from elsewhere ({config._attn_implementation})"
        raise ConfigError(problem, cure="Remove attn_implementation from its config.json.")


def attend_by_name(model: Any) -> None:
    """Register :func:`attend` for the layers of a transformers model; a model with another attention than torch's stays unchanged."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    if model.config._attn_implementation != "sdpa":
        return
    AttentionInterface.register(ATTENTION_NAME, _called_by_transformers)
    AttentionMaskInterface.register(ATTENTION_NAME, sdpa_mask)
    model.set_attn_implementation(ATTENTION_NAME)


def _called_by_transformers(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: float = 0.0, **options: Any
) -> tuple[Tensor, None]:
    """Adapt :func:`attend` to the call of transformers' BERT. -> [b, q, heads, d]."""
    return attend(query, key, value, attention_mask, dropout).transpose(1, 2).contiguous(), None


BERT_LIKE = ("bert", "roberta", "xlm-roberta")  # model types with the modules that states_at calls

WITH_POOLER = (*BERT_LIKE, "mpnet")  # model types with an optional tanh pooler


def has_bert_layers(model: nn.Module) -> bool:
    """True for a BERT with the attention of :func:`attend`, which :func:`states_at` can run."""
    config: Any = model.config
    return config.model_type in BERT_LIKE and config._attn_implementation == ATTENTION_NAME


def states_at(model: Any, inputs: TokenInputs, segments: Tensor | None, positions: Tensor) -> Tensor:
    """Final hidden states at the positions [b, m] of each row: [CLS] in an embedder, the masks in an encoder. -> [b, m, h].

    The last layer computes queries, attention and feed-forward net at these positions alone: the same numbers for a share of the work."""
    # torch's attention takes its faster path where there is nothing to mask.
    keep = None if inputs.unpadded else inputs.mask[:, None, None, :]
    hidden = model.embeddings(**_words(inputs), token_type_ids=segments)
    for layer in model.encoder.layer[:-1]:
        hidden = layer(hidden, keep)
    return _layer_at(model.encoder.layer[-1], hidden, keep, positions)


def _words(inputs: TokenInputs) -> dict[str, Tensor]:
    """Wordpieces of a batch, as transformers names them."""
    return {"input_ids": inputs.ids} if inputs.words is None else {"inputs_embeds": inputs.words}


def _layer_at(layer: Any, hidden: Tensor, keep: Tensor | None, positions: Tensor) -> Tensor:
    """Output of one layer at ``positions`` [b, m], which attend to every position."""
    read = hidden.gather(1, positions.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))
    attention = layer.attention.self

    def heads(values: Tensor) -> Tensor:
        return values.unflatten(-1, (-1, attention.attention_head_size)).transpose(1, 2)

    query, key, value = heads(attention.query(read)), heads(attention.key(hidden)), heads(attention.value(hidden))
    dropout = attention.dropout.p if attention.training else 0.0
    found = attend(query, key, value, keep, dropout)
    attended = layer.attention.output(found.transpose(1, 2).flatten(2), read)
    output: Tensor = layer.feed_forward_chunk(attended)
    return output


class Body(nn.Module):
    """A transformers encoder with a fixed call: ``body(inputs) -> hidden states [b, t, h]``."""

    def __init__(self, spec: BodySpec, model: Any):
        super().__init__()
        self.spec = spec
        self.model = model

    def forward(self, inputs: TokenInputs) -> Tensor:
        # Without padding there is nothing to mask, and attention takes its faster path.
        mask = None if inputs.unpadded else inputs.mask.long()
        extra = {"token_type_ids": inputs.segments} if self.spec.segments else {}
        states: Tensor = self.model(**_words(inputs), attention_mask=mask, **extra).last_hidden_state
        return states

    def states_at(self, inputs: TokenInputs, positions: Tensor) -> Tensor:
        """Hidden states at a few positions of each row, [b, m] -> [b, m, h]; a BERT computes its last layer only there."""
        if has_bert_layers(self.model):
            return states_at(self.model, inputs, inputs.segments if self.spec.segments else None, positions)
        states = self(inputs)
        return states.gather(1, positions.unsqueeze(-1).expand(-1, -1, states.shape[-1]))

    def pooled(self, inputs: TokenInputs) -> Tensor:
        """One vector per row, [b, h], by the pooling of the specification."""
        if self.spec.pooling == "mean":
            states = self(inputs)
            weights = inputs.mask.unsqueeze(-1).to(states.dtype)
            return (states * weights).sum(1) / weights.sum(1)
        first = self.states_at(inputs, torch.zeros_like(inputs.ids[:, :1], dtype=torch.long))
        return self.model.pooler(first) if self.spec.pooling == "pooler" else first[:, 0]

    def copied(self, *, pooling: str, segments: bool) -> "Body":
        """Copy the body with weights of its own, without a tanh pooler; ``pooling`` and ``segments`` as in :class:`BodySpec`."""
        model = copy.deepcopy(self.model)
        if getattr(model, "pooler", None) is not None:
            model.pooler = None
        return Body(replace(self.spec, pooling=pooling, segments=segments), model)


def freeze_words(networks: nn.Module) -> None:
    """Freeze the word embeddings of all bodies in ``networks``."""
    for network in networks.modules():
        if isinstance(network, Body):
            network.model.get_input_embeddings().weight.requires_grad_(False)


CPU_BUCKET_TOKENS = 4096  # padded tokens per bucket on a CPU: large for matrix products, small for its caches
CPU_BUCKET_COST = 64  # cost of one more bucket on a CPU, in padded tokens
GPU_BUCKET_TOKENS, GPU_BUCKET_COST = 65536, 2048  # a GPU is idle between small products


def in_buckets(body: Body, sequences: SequenceOf[Sequence], run: Callable[[TokenInputs, list[int]], Tensor]) -> Tensor:
    """Run ragged inputs in buckets of similar length: ``run`` of a bucket and its places gives one row each. -> [n, ...] in order."""
    table = body.model.get_input_embeddings()
    device = table.weight.device
    sizes = (CPU_BUCKET_TOKENS, CPU_BUCKET_COST) if device.type == "cpu" else (GPU_BUCKET_TOKENS, GPU_BUCKET_COST)
    groups = list(length_buckets([len(s) for s in sequences], *sizes))
    buckets = [pad_batch([sequences[i] for i in group], 0).to(device) for group in groups]
    # All words at once: the gradient of a lookup is as large as the whole table, and so is made once and not for every bucket.
    words = table(torch.cat([bucket.ids.flatten() for bucket in buckets])).split([bucket.ids.numel() for bucket in buckets])
    found = zip(groups, buckets, words, strict=True)
    rows = [run(replace(bucket, words=own.view(*bucket.ids.shape, -1)), group) for group, bucket, own in found]
    back = torch.tensor([i for group in groups for i in group], device=device).argsort()
    return torch.cat(rows)[back]


def at_least_float32(values: Tensor) -> Tensor:
    """Widen half precision to float32; float64 stays."""
    return values.float() if values.dtype.itemsize < 4 else values


def build_body(spec: BodySpec, *, pooler: bool, drawn: bool = True) -> Body:
    """A body with random weights; ``pooler`` False drops one that is not read, so that every parameter gets a gradient.

    Without ``drawn`` the structured start of a BERT is left out: weights are loaded next (:class:`.init.Undrawn`). Raises ConfigError:
    transformers does not know the model type, or the sizes do not fit together."""
    from transformers import AutoConfig, AutoModel

    values = dict(spec.config)
    try:
        config = AutoConfig.for_model(values.pop("model_type"), **values)
        refuse_kernels(config)
        model = AutoModel.from_config(config, trust_remote_code=False, **_pooler_option(config, spec.pooling, spec.segments, pooler))
    except (KeyError, ValueError) as error:
        raise ConfigError(f"the body cannot be built: {error}", cure="Check [model] in the recipe.") from error
    if drawn and config.model_type == "bert":
        start_copying(model)
    return Body(spec, _attending(model))


DROPOUT_PLACES = {
    "hidden_dropout_prob": "hidden",  # BERT, XLM-R, MPNet
    "attention_probs_dropout_prob": "attention",
    "embedding_dropout": "hidden",  # ModernBERT
    "mlp_dropout": "hidden",
    "attention_dropout": "attention",
}  # dropout rates in configurations, by their place


def load_body(
    source: str | Path, *, pooling: str, segments: bool, pooler: bool, dropout: float = 0.0, attention_dropout: float = 0.0
) -> Body:
    """A body with published weights from a local directory or the hub; only safetensors are read, and no remote code runs.

    Args:
        pooling, segments: as in :class:`BodySpec`.
        pooler: keep the tanh pooler, where the family has one.
        dropout, attention_dropout: training rates on hidden states and attention weights, instead of the published ones.

    Raises ConfigError: no such source, or no encoder that transformers knows."""
    from transformers import AutoConfig, AutoModel

    rates = {"hidden": dropout, "attention": attention_dropout}
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        refuse_kernels(config)
        for name, on in DROPOUT_PLACES.items():
            if hasattr(config, name):
                setattr(config, name, rates[on])
        options = _pooler_option(config, pooling, segments, pooler)
        with silenced():
            model = AutoModel.from_pretrained(source, config=config, use_safetensors=True, trust_remote_code=False, **options)
    except RealmError:
        raise
    except Exception as error:  # transformers raises whatever a strange file makes its parts raise
        hint = "Give a directory with config.json and model.safetensors, or a hub name while online."
        raise ConfigError(f"no body can be loaded from '{source}': {said(error)}", cure=hint) from error
    return Body(BodySpec(config=model.config.to_dict(), pooling=pooling, segments=segments), _attending(model))


@contextmanager
def silenced() -> Iterator[None]:
    """Silence transformers' progress bars and its list of unused tensors."""
    from transformers.utils import logging

    said, showed = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(said)
        if showed:
            logging.enable_progress_bar()


def _attending(model: Any) -> Any:
    """A BERT looks around by our attention; another family keeps what transformers gives it."""
    if model.config.model_type in BERT_LIKE:
        attend_by_name(model)
    return model


def _pooler_option(config: Any, pooling: str, segments: bool, pooler: bool) -> dict[str, bool]:
    """Option ``add_pooling_layer`` of model types with a pooler. Raises ConfigError: the family lacks the pooler or the segments."""
    has_pooler = config.model_type in WITH_POOLER
    if pooling == "pooler" and not has_pooler:
        raise ConfigError(f"'{config.model_type}' has no pooler", cure='Set model.pooling to "cls" or "mean".')
    if segments and getattr(config, "type_vocab_size", 0) < 2:
        raise ConfigError(f"'{config.model_type}' has no second segment", cure="Set model.segments to false.")
    return {"add_pooling_layer": pooler and pooling == "pooler"} if has_pooler else {}
