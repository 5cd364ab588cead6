"""Every family's last feed-forward block is found, and a key is what the module takes there."""

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from realm.errors import ConfigError
from realm.knn.network import HubNetwork, KeyTap, Window, find_layer

SMALL = {"vocab_size": 40, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
LLAMA = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
BART = {"d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "encoder_layers": 2, "decoder_layers": 2}
BART |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "decoder_start_token_id": 2, "max_position_embeddings": 32}
OPT = {"hidden_size": 16, "ffn_dim": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "word_embed_proj_dim": 16}
T5 = {"d_model": 16, "d_ff": 24, "d_kv": 8, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
FAMILIES = [
    ("gpt2", {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}, "transformer.h.1.mlp"),
    ("llama", LLAMA, "model.layers.1.mlp"), ("qwen2", LLAMA, "model.layers.1.mlp"),
    ("gpt_neox", {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}, "gpt_neox.layers.1.mlp"),
    ("opt", {**OPT, "max_position_embeddings": 32}, "model.decoder.layers.1.fc1"),
    ("bart", BART, "model.decoder.layers.1.fc1"), ("marian", BART, "model.decoder.layers.1.fc1"),
    ("m2m_100", BART, "model.decoder.layers.1.fc1"), ("t5", T5, "decoder.block.1.layer.2.DenseReluDense"),
]  # fmt: skip


class Vocabulary:
    """A tokenizer that nothing is asked of but its identity."""

    def get_vocab(self):
        return {str(number): number for number in range(SMALL["vocab_size"])}


def network_of(family, values, layer=""):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **SMALL, **values)
    auto = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    return HubNetwork(auto.from_config(config), Vocabulary(), layer=layer)


@pytest.mark.parametrize(("family", "values", "expected"), FAMILIES, ids=[family for family, _, _ in FAMILIES])
def test_the_last_feed_forward_block(family, values, expected):
    """Of a padded batch and of one window at a time the keys are those of the module itself, and so are the log-probabilities."""
    network = network_of(family, values)
    assert (network.layer.name, network.dim) == (expected, 16)
    rng, windows = np.random.default_rng(0), []
    for length in (5, 2, 9):
        source = rng.integers(4, 40, length + 1).astype(np.int32) if network.kind == "translation" else np.zeros(0, np.int32)
        ids = rng.integers(4, 40, length).astype(np.int32)
        windows.append(Window(ids, np.arange(1, length, dtype=np.int32), ids[1:], source))
    together, start = network.read(windows, log_probs=True), 0
    for window in windows:
        seen = []
        handle = network.layer.module.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0]))
        ids = torch.from_numpy(window.ids).long()[None]
        encoder = {"input_ids": torch.from_numpy(window.source).long()[None], "decoder_input_ids": ids}
        with torch.no_grad():
            logits = network.model(**(encoder if len(window.source) else {"input_ids": ids})).logits
        handle.remove()
        rows = slice(start, start := start + len(window.places))
        torch.testing.assert_close(together.keys[rows], seen[0].reshape(-1, 16)[window.places.tolist()], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(together.log_probs[rows], logits[0, window.places.tolist()].log_softmax(-1), atol=1e-5, rtol=1e-5)
        alone = network.read([window], log_probs=False)
        assert alone.log_probs is None
        torch.testing.assert_close(together.keys[rows], alone.keys, atol=1e-5, rtol=1e-5)


def test_modules_have_names_and_states():
    assert network_of("gpt2", FAMILIES[0][1], "transformer.h.0.mlp.c_proj").dim == 64
    network = network_of("gpt2", FAMILIES[0][1], "transformer.wte")
    with pytest.raises(ConfigError, match="no state of every token"):
        assert network.dim
    with pytest.raises(ConfigError, match=r"no layer .*transformer\.h\.0\.mlp, transformer\.h\.1\.mlp"):
        network_of("gpt2", FAMILIES[0][1], "transformer.h.9.mlp")
    with pytest.raises(ConfigError, match="no feed-forward block"):
        find_layer(nn.Sequential(nn.Linear(2, 2)))


def test_a_tap_is_closed():
    network = network_of("gpt2", FAMILIES[0][1])
    with KeyTap(network.layer) as tap:
        network.model(torch.tensor([[5, 6]]))
        assert tap.states(1).shape == (1, 2, 16)
        with pytest.raises(ConfigError, match="ran on 1 rows where 2"):
            tap.states(2)
    network.model(torch.tensor([[5, 6]]))
    assert tap.state is None
