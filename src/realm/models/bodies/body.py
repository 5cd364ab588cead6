"""Transformer bodies through transformers' AutoModel, behind one seam: padded token inputs in, hidden states out.

A body comes from a configuration (training from nothing), from a local directory, or from the hub. Which output is pooled and whether
segment ids are fed is part of the specification and is saved with the weights: fed otherwise, the same weights say something else.
"""

import copy
from collections.abc import Callable, Iterator, Sequence as SequenceOf
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from realm.errors import ConfigError
from realm.models.bodies.attention import NAME, attend, attend_by_name
from realm.models.bodies.init import start_copying
from realm.models.featurize import length_buckets, pad_batch
from realm.models.spec import BodySpec
from realm.models.types import Sequence, TokenInputs

BERT_LIKE = ("bert", "roberta", "xlm-roberta")
"""Model types whose layers are made of the modules that :func:`states_at` calls."""

WITH_POOLER = (*BERT_LIKE, "mpnet")
"""Model types that have a tanh pooler, which may be left out."""


def has_bert_layers(model: nn.Module) -> bool:
    """Whether the body is a BERT with the attention of :func:`.attention.attend`, so that :func:`states_at` can run it."""
    config: Any = model.config
    return config.model_type in BERT_LIKE and config._attn_implementation == NAME


def states_at(model: Any, inputs: TokenInputs, segments: Tensor | None, positions: Tensor) -> Tensor:
    """Final hidden states at a few positions of each row: at [CLS] in an embedder, at the masks in an encoder.

    Below the last layer every position is attended to. The last one's queries, attention and feed-forward net run where it is read alone:
    the same numbers for a share of the work (with two layers half of the step).

    Args:
        model: a body with :func:`has_bert_layers`.
        inputs: b padded rows.
        segments: segment ids, or None for a body that is not fed any.
        positions: [b, m].

    Returns:
        [b, m, h].
    """
    # torch's attention takes its faster path where there is nothing to mask.
    keep = None if inputs.unpadded else inputs.mask[:, None, None, :]
    words = {"input_ids": inputs.ids} if inputs.words is None else {"inputs_embeds": inputs.words}
    hidden = model.embeddings(**words, token_type_ids=segments)
    for layer in model.encoder.layer[:-1]:
        hidden = layer(hidden, keep)
    return _layer_at(model.encoder.layer[-1], hidden, keep, positions)


def _layer_at(layer: Any, hidden: Tensor, keep: Tensor | None, positions: Tensor) -> Tensor:
    """One layer's output at ``positions`` [b, m]: every position is looked at, only these look."""
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


def first_positions(inputs: TokenInputs) -> Tensor:
    """Position 0 of each row, [b, 1]."""
    return torch.zeros_like(inputs.ids[:, :1], dtype=torch.long)


class Body(nn.Module):
    """A transformers encoder with a fixed call: ``body(inputs) -> hidden states [b, t, h]``."""

    def __init__(self, spec: BodySpec, model: Any):
        super().__init__()
        self.spec = spec
        self.model = model

    def forward(self, inputs: TokenInputs) -> Tensor:
        return self._run(inputs).last_hidden_state

    def states_at(self, inputs: TokenInputs, positions: Tensor) -> Tensor:
        """Hidden states at a few positions of each row, [b, m] -> [b, m, h]; a BERT computes its last layer only there."""
        if has_bert_layers(self.model):
            return states_at(self.model, inputs, self._segments(inputs), positions)
        states = self(inputs)
        return states.gather(1, positions.unsqueeze(-1).expand(-1, -1, states.shape[-1]))

    def pooled(self, inputs: TokenInputs) -> Tensor:
        """One vector a row, [b, h], by the specification's pooling."""
        if self.spec.pooling == "mean":
            states = self(inputs)
            weights = inputs.mask.unsqueeze(-1).to(states.dtype)
            return (states * weights).sum(1) / weights.sum(1)
        first = self.states_at(inputs, first_positions(inputs))
        return self.model.pooler(first) if self.spec.pooling == "pooler" else first[:, 0]

    def copied(self, *, pooling: str, segments: bool) -> "Body":
        """A body of the same weights that are its own, without a tanh pooler; ``pooling`` and ``segments`` as in :class:`BodySpec`."""
        model = copy.deepcopy(self.model)
        if getattr(model, "pooler", None) is not None:
            model.pooler = None
        return Body(replace(self.spec, pooling=pooling, segments=segments), model)

    def _segments(self, inputs: TokenInputs) -> Tensor | None:
        return inputs.segments if self.spec.segments else None

    def _run(self, inputs: TokenInputs) -> Any:
        # Without padding there is nothing to mask, and attention takes its faster path.
        mask = None if inputs.unpadded else inputs.mask.long()
        extra = {"token_type_ids": inputs.segments} if self.spec.segments else {}
        words = {"input_ids": inputs.ids} if inputs.words is None else {"inputs_embeds": inputs.words}
        return self.model(**words, attention_mask=mask, **extra)


def freeze_words(networks: nn.Module) -> None:
    """No gradient to the tables of word embeddings of all bodies in ``networks``."""
    for network in networks.modules():
        if isinstance(network, Body):
            network.model.get_input_embeddings().weight.requires_grad_(False)


TOKENS_PER_BUCKET = 4096
"""Padded tokens of one bucket at most: large enough for good matrix products, small enough for the caches of a CPU."""
TOKENS_OF_A_CUT = 64
"""What starting another bucket costs on a CPU, in tokens: less than that is padded rather than cut."""
TOKENS_PER_BUCKET_OF_ACCELERATOR, TOKENS_OF_A_CUT_OF_ACCELERATOR = 65536, 2048
"""The same for a GPU, which is idle between small products."""


def in_buckets(body: Body, sequences: SequenceOf[Sequence], run: Callable[[TokenInputs, list[int]], Tensor]) -> Tensor:
    """Run ragged inputs in buckets of similar length, so that little padding is computed, and put the rows back in order.

    Args:
        body: what ``run`` calls; the inputs go to its device.
        sequences: n inputs.
        run: a padded bucket and the places of its rows among the sequences -> one tensor row for each.

    Returns:
        [n, ...] in the order of ``sequences``.
    """
    table = body.model.get_input_embeddings()
    device = table.weight.device
    groups = list(length_buckets([len(s) for s in sequences], *_bucket_sizes(device)))
    buckets = [pad_batch([sequences[i] for i in group], 0).to(device) for group in groups]
    # All words at once: the gradient of a lookup is as large as the whole table, and so is made once and not for every bucket.
    words = table(torch.cat([bucket.ids.flatten() for bucket in buckets])).split([bucket.ids.numel() for bucket in buckets])
    found = zip(groups, buckets, words, strict=True)
    rows = [run(replace(bucket, words=own.view(*bucket.ids.shape, -1)), group) for group, bucket, own in found]
    back = torch.tensor([i for group in groups for i in group], device=device).argsort()
    return torch.cat(rows)[back]


def _bucket_sizes(device: torch.device) -> tuple[int, int]:
    """Tokens of a bucket and of a cut."""
    if device.type == "cpu":
        return TOKENS_PER_BUCKET, TOKENS_OF_A_CUT
    return TOKENS_PER_BUCKET_OF_ACCELERATOR, TOKENS_OF_A_CUT_OF_ACCELERATOR


def at_least_float32(values: Tensor) -> Tensor:
    """Half precision widened to float32, for what must be exact; float64 stays as it is."""
    return values.float() if values.dtype.itemsize < 4 else values


def build_body(spec: BodySpec, *, pooler: bool, drawn: bool = True) -> Body:
    """A body with random weights. ``pooler`` is dropped where nothing reads it, so that every parameter gets a gradient.

    Without ``drawn`` nothing is drawn for the structured start of a BERT: the weights are loaded next (:class:`.init.Undrawn`).

    Raises:
        ConfigError: transformers does not know the model type or the sizes do not fit together.
    """
    from transformers import AutoConfig, AutoModel

    values = dict(spec.config)
    try:
        config = AutoConfig.for_model(values.pop("model_type"), **values)
        model = AutoModel.from_config(config, **_pooler_option(config, spec.pooling, spec.segments, pooler))
    except (KeyError, ValueError) as error:
        raise ConfigError(f"the body cannot be built: {error}", cure="Check [model] in the recipe.") from error
    if drawn and config.model_type == "bert":
        start_copying(model)
    return Body(spec, _attending(model))


DROPOUTS = {
    "hidden_dropout_prob": "hidden",  # BERT, XLM-R, MPNet
    "attention_probs_dropout_prob": "attention",
    "embedding_dropout": "hidden",  # ModernBERT
    "mlp_dropout": "hidden",
    "attention_dropout": "attention",
}
"""Names of dropout rates in configurations, and what they are on."""


def load_body(
    source: str | Path, *, pooling: str, segments: bool, pooler: bool, dropout: float = 0.0, attention_dropout: float = 0.0
) -> Body:
    """A body with published weights from a local directory or the hub. Only safetensors are read, and no remote code runs.

    Args:
        source: a directory or a hub name.
        pooling, segments: as in :class:`BodySpec`.
        pooler: whether the tanh pooler is kept, where the family has one.
        dropout, attention_dropout: on hidden states and on attention weights in training, in place of the published ones.

    Raises:
        ConfigError: the source is not there or is no encoder that transformers knows.
    """
    from transformers import AutoConfig, AutoModel

    rates = {"hidden": dropout, "attention": attention_dropout}
    try:
        config = AutoConfig.from_pretrained(source)
        for name, on in DROPOUTS.items():
            if hasattr(config, name):
                setattr(config, name, rates[on])
        options = _pooler_option(config, pooling, segments, pooler)
        with _silenced():
            model = AutoModel.from_pretrained(source, config=config, use_safetensors=True, **options)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        hint = "Give a directory with config.json and model.safetensors, or a hub name while online."
        raise ConfigError(f"no body can be loaded from '{source}': {str(error).splitlines()[0]}", cure=hint) from error
    spec = BodySpec(config=model.config.to_dict(), pooling=pooling, segments=segments)
    return Body(spec, _attending(model))


@contextmanager
def _silenced() -> Iterator[None]:
    """No progress bars and no account of tensors that a body does not need: our own progress says what takes time."""
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
    """Models with a pooler take ``add_pooling_layer``; others have none to drop.

    Raises:
        ConfigError: the family has no pooler or no segment embeddings, and the specification wants them.
    """
    has_pooler = config.model_type in WITH_POOLER
    if pooling == "pooler" and not has_pooler:
        raise ConfigError(f"'{config.model_type}' has no pooler", cure='Set model.pooling to "cls" or "mean".')
    if segments and getattr(config, "type_vocab_size", 0) < 2:
        raise ConfigError(f"'{config.model_type}' has no second segment", cure="Set model.segments to false.")
    return {"add_pooling_layer": pooler and pooling == "pooler"} if has_pooler else {}
