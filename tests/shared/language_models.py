"""Causal language models of some thousand random weights, with a tokenizer of single characters."""

import torch


def write_language_model(directory, family="llama"):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<end>", *" \nabcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:?.,"]
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<end>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", pad_token="<end>", unk_token="<end>")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    torch.manual_seed(0)
    sizes = {"vocab_size": len(words), "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0, "initializer_range": 0.4}
    if family == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(n_positions=128, n_embd=16, n_layer=2, n_head=2, **sizes))
    else:
        heads = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        model = LlamaForCausalLM(LlamaConfig(max_position_embeddings=128, **heads, **sizes))
    model.save_pretrained(directory, safe_serialization=True)
    tokenizer.save_pretrained(directory)
    return directory
