"""Small models for the kNN proofs, trained here from nothing on real text: a vocabulary, a causal and an encoder-decoder transformer.

Every function writes a directory that transformers loads, and does nothing where that directory is whole already.
"""

import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GPT2Config, GPT2LMHeadModel, M2M100Config, M2M100ForConditionalGeneration, PreTrainedTokenizerFast

from realm.storage.files import publish_directory

PAD, UNK, BOS, EOS = "<pad>", "<unk>", "<s>", "</s>"


def train_vocabulary(directory: Path, texts: list[str], size: int, *, bos: bool) -> PreTrainedTokenizerFast:
    """A byte-level BPE vocabulary of its own. ``bos``: sequences begin with <s>; all end with </s>."""
    if not directory.exists():
        backend = Tokenizer(models.BPE(unk_token=UNK))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        backend.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        special = [PAD, UNK, BOS, EOS]
        backend.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=alphabet))
        single = f"{BOS} $A {EOS}" if bos else f"$A {EOS}"
        backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=[(BOS, 2), (EOS, 3)])
        made = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token=PAD, unk_token=UNK, bos_token=BOS, eos_token=EOS)
        with publish_directory(directory) as staging:
            made.save_pretrained(staging)
    return PreTrainedTokenizerFast.from_pretrained(directory)


def train_causal(directory: Path, tokenizer: PreTrainedTokenizerFast, texts: list[str], seed: int, steps: int, context: int = 128) -> None:
    """A GPT-2 of three layers, 192 wide, on windows of one long stream of ``texts``; an epoch sees every window once, in random order."""
    if directory.exists():
        return
    stream = torch.tensor([i for ids in tokenizer(texts)["input_ids"] for i in ids])
    windows = stream[: len(stream) // context * context].view(-1, context)
    torch.manual_seed(seed)
    sizes = {"n_embd": 192, "n_layer": 3, "n_head": 4, "n_positions": 256, "vocab_size": len(tokenizer)}
    config = GPT2Config(**sizes, attn_pdrop=0.0, bos_token_id=2, eos_token_id=3, pad_token_id=0)
    model = GPT2LMHeadModel(config)

    def batches() -> Iterator[Callable[[], torch.Tensor]]:
        order = random.Random(seed)
        while True:
            rows = list(range(len(windows)))
            order.shuffle(rows)
            for at in range(0, len(rows) - 7, 8):
                ids = windows[rows[at : at + 8]]
                yield lambda ids=ids: model(input_ids=ids, labels=ids).loss

    _train(model, batches(), steps, 2e-3, directory.name)
    _save(directory, model, tokenizer, {"seed": seed, "steps": steps, "tokens": len(stream), "context": context})


def train_translation(directory: Path, tokenizer: PreTrainedTokenizerFast, pairs: list[tuple[str, str]], seed: int, steps: int) -> None:
    """A pre-norm transformer (M2M-100) of two layers a side, 128 wide, on ``pairs`` in batches of similar length."""
    if directory.exists():
        return
    sources = tokenizer([source for source, _ in pairs])["input_ids"]
    targets = tokenizer([target for _, target in pairs])["input_ids"]
    torch.manual_seed(seed)
    widths = {"d_model": 128, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "max_position_embeddings": 128}
    depths = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    ends = {"pad_token_id": 0, "eos_token_id": 3, "bos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": 3}
    rates = {"dropout": 0.1, "attention_dropout": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
    config = M2M100Config(**widths, **depths, **ends, **rates, vocab_size=len(tokenizer), init_std=0.088)
    model = M2M100ForConditionalGeneration(config)

    def batches() -> Iterator[Callable[[], torch.Tensor]]:
        order = random.Random(seed)
        while True:
            rows = sorted(range(len(pairs)), key=lambda row: (len(targets[row]) + order.random(), len(sources[row])))
            groups = [rows[at : at + 32] for at in range(0, len(rows), 32)]
            order.shuffle(groups)
            for group in groups:
                yield lambda group=group: _translation_loss(model, [sources[row] for row in group], [targets[row] for row in group])

    _train(model, batches(), steps, 2e-3, directory.name)
    _save(directory, model, tokenizer, {"seed": seed, "steps": steps, "pairs": len(pairs)})


def _translation_loss(model: M2M100ForConditionalGeneration, sources: list[list[int]], targets: list[list[int]]) -> torch.Tensor:
    ids, labels = _padded(sources, 0), _padded(targets, 0)
    inputs = torch.cat([torch.full((len(labels), 1), 2), labels[:, :-1]], 1)
    logits = model(input_ids=ids, attention_mask=(ids != 0).long(), decoder_input_ids=inputs).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0)


def _padded(rows: list[list[int]], value: int) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)


def _train(model: torch.nn.Module, losses: Iterator[Callable[[], torch.Tensor]], steps: int, peak: float, name: str) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.01)
    warm = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))
    )
    model.train()
    started, mean = time.perf_counter(), 0.0
    for step in range(steps):
        loss = next(losses)()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        mean = loss.item() if not step else 0.95 * mean + 0.05 * loss.item()
        if step % 50 == 49:
            print(f"{name}: step {step + 1}/{steps}, loss {mean:.3f}, {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    model.eval()


def _save(directory: Path, model: torch.nn.Module, tokenizer: PreTrainedTokenizerFast, facts: dict) -> None:
    with publish_directory(directory) as staging:
        model.save_pretrained(staging)
        tokenizer.save_pretrained(staging)
        (staging / "training.json").write_text(json.dumps(facts))
