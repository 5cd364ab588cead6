"""Models of seconds: a causal and an encoder-decoder transformer with random weights and a word vocabulary."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import GPT2Config, GPT2LMHeadModel, MarianConfig, MarianMTModel, PreTrainedTokenizerFast

from realm.knn.windows import TextOptions

ENGLISH = "the a cat dog bird sat ran flew on under over mat hill tree and then again slowly"
WORDS = f"{ENGLISH} der die katze hund vogel sass lief flog".split(" ")
OPTIONS = TextOptions(context=16, stride=8, source_column="en", target_column="de")


def tokenizer_of(words):
    vocabulary = {token: number for number, token in enumerate(["<pad>", "<unk>", "<s>", "</s>", *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def write_models(root):
    """Write both into directories below ``root``, named by their kind."""
    tokenizer = tokenizer_of(WORDS)
    size, ends = len(tokenizer), {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    torch.manual_seed(1)
    causal = GPT2LMHeadModel(GPT2Config(n_embd=24, n_layer=2, n_head=2, n_positions=32, vocab_size=size, initializer_range=0.3, **ends))
    wide = {"d_model": 24, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 32, "init_std": 0.3}
    deep = {"encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    starts = {"decoder_start_token_id": 2, "forced_eos_token_id": None}
    translation = MarianMTModel(MarianConfig(vocab_size=size, **wide, **deep, **ends, **starts))
    for name, model in (("causal", causal), ("translation", translation)):
        model.save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
