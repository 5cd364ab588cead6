"""Models of seconds: a causal and an encoder-decoder transformer with a word vocabulary, their text, and a datastore of each."""

import json

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import GPT2Config, GPT2LMHeadModel, MarianConfig, MarianMTModel, PreTrainedTokenizerFast

from realm.knn.datastore import build_from_texts
from realm.knn.network import load_network
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


@pytest.fixture(scope="session")
def text_files(tmp_path_factory):
    root, draw = tmp_path_factory.mktemp("knn-texts"), torch.Generator().manual_seed(5)

    def sentence(length):
        return " ".join(WORDS[int(i)] for i in torch.randint(len(WORDS), (length,), generator=draw))

    for name, count in (("docs", 30), ("held_out", 6)):
        rows = [{"id": str(i), "title": "", "text": sentence(3 + (i * 7) % 50)} for i in range(count)]
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    pairs = [{"en": sentence(3 + i % 9), "de": sentence(2 + i % 7)} for i in range(60)]
    (root / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs), "utf-8")
    return root


@pytest.fixture(scope="session")
def model_directories(tmp_path_factory):
    """Kind -> directory of a model with random weights."""
    root, tokenizer = tmp_path_factory.mktemp("knn-models"), tokenizer_of(WORDS)
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
    return {"causal": root / "causal", "translation": root / "translation"}


@pytest.fixture(params=["causal", "translation"])
def kind(request):
    return str(request.param)


@pytest.fixture(scope="session")
def networks(model_directories):
    return {kind: load_network(directory) for kind, directory in model_directories.items()}


@pytest.fixture(scope="session")
def source_of(text_files):
    return {"causal": text_files / "docs.jsonl", "translation": text_files / "pairs.jsonl"}


@pytest.fixture(scope="session")
def built(tmp_path_factory, networks, source_of):
    """A finished datastore of each kind and dtype; nobody changes it."""
    root = tmp_path_factory.mktemp("knn-built")

    def build(kind, dtype="float32"):
        return build_from_texts(root / f"{kind}-{dtype}", networks[kind], [source_of[kind]], OPTIONS, dtype=dtype)

    return build


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr("realm.knn.windows.PART_ROWS", 100)
