"""kNN-LM proof: perplexity of small language models trained here with and without a datastore, and adaptation to a domain without training.

Models: GPT-2 of three layers, 192 wide, own BPE of 4,000, 600 steps of 1,024 tokens on 2,000 articles of Simple English Wikipedia.
Datastores: 500 of the same articles (simple), 300 articles of English Wikipedia created since 2018 (english), which no model saw. k, a
and temperature are tuned on other held-out articles of the datastore's kind. Wikitext-2 is in running spelling (``wikitext``), its
perplexity per original word, <unk> left out: comparable between the rows here, not with the literature.

    python -m benchmarks.knn.knn_lm --data DATA --work DIRECTORY
"""

import argparse
import hashlib
import json
import lzma
import math
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from benchmarks.common import result
from realm.knn.datastore import Datastore, Progress, build_from_texts
from realm.knn.network import HubNetwork, load_network
from realm.knn.scoring import Mixing, ScoredTokens, score_windows
from realm.knn.session import perplexities, tune
from realm.knn.windows import TextOptions, windows_of_texts
from realm.storage.files import publish_directory, write_json

JOINED = ((" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", "."), (" n't", "n't"), (" \n", "\n"))
PAD, UNK, BOS, EOS = "<pad>", "<unk>", "<s>", "</s>"
STEPS, NEIGHBOURS = 600, 64
SIMPLE, ENGLISH = "simplewiki_2021", "enwiki_new2018_part"
OPTIONS = TextOptions(context=128, stride=96)
WIKITEXT_WORDS = 2_000


class Kept:
    """Results in one JSON file: what is there is not measured again."""

    def __init__(self, path: Path):
        self._path = path
        self.rows: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}

    def get(self, name: str, measure: Callable[[], Any]) -> Any:
        """The result ``name``, measured now if it is not there."""
        if name not in self.rows:
            started = time.perf_counter()
            self.rows[name] = measure()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, self.rows)
            print(f"{self._path.stem}: {name} ({time.perf_counter() - started:.0f} s)", file=sys.stderr, flush=True)
        return self.rows[name]


def arguments(about: str) -> argparse.Namespace:
    """--data, --work and --seeds."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the data directory of the tests")
    parser.add_argument("--work", type=Path, required=True, help="where models, datastores and results are kept; a killed run goes on here")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    return parser.parse_args()


def telling(what: str) -> Progress:
    """Progress on standard error, a line every 20 seconds."""
    last = [time.perf_counter()]

    def tell(done: int, total: int) -> None:
        if time.perf_counter() - last[0] > 20:
            last[0] = time.perf_counter()
            print(f"{what}: {done}/{total}", file=sys.stderr, flush=True)

    return tell


def mean_and_range(values: list[float]) -> str:
    """ "12.3 (11.9 to 12.8)"."""
    return f"{sum(values) / len(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def articles(data: Path, name: str, first: int, count: int, longest: int) -> list[str]:
    """Texts of ``count`` articles of 600 characters or more from the ``first`` on in order of their ids' hashes, cut at ``longest``."""
    with lzma.open(data / "corpus" / f"{name}.jsonl.xz", "rt", encoding="utf8") as lines:
        rows = [(hashlib.sha256(row["id"].encode()).digest(), row["text"]) for row in map(json.loads, lines) if len(row["text"]) >= 600]
    return [text[:longest] for _, text in sorted(rows)[first : first + count]]


def wikitext(data: Path, name: str) -> list[str]:
    """Articles of Wikitext-2 in running spelling. The rule: @-@ @,@ @.@ lose their marks and spaces; no space before . , ; : ! ? ) ] %
    's n't, none after ( [; double quotes lose the space inside, in turns; headings keep = signs; no space before <unk>, which stays."""
    with lzma.open(data / "wikitext2" / f"{name}.txt.xz", "rt", encoding="utf8") as file:
        text = file.read().replace(" <unk>", "<unk>")
    for marked, plain in JOINED:
        text = text.replace(marked, plain)
    text = re.sub(r" ([.,;:!?)\]%]|'s\b|'(?= ))", r"\1", text)
    text = re.sub(r"([(\[]) ", r"\1", text)
    text = re.sub(r'" ([^"\n]*) "', r'"\1"', text)
    parts = re.split(r"\n(?= = [^=])", text)
    return [part.strip() for part in parts if part.strip()]


def write_lines(path: Path, rows: list[dict[str, str]]) -> Path:
    """A JSONL file, written once."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf8")
    return path


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


def write_texts(data: Path, work: Path) -> dict[str, Path]:
    """Name of a text -> its JSONL file; no article stands in two."""
    wanted = {
        "train": (SIMPLE, 0, 2000),
        "store simple": (SIMPLE, 0, 500),
        "dev simple": (SIMPLE, 2000, 15),
        "simple": (SIMPLE, 2020, 10),
        "store english": (ENGLISH, 0, 300),
        "dev english": (ENGLISH, 1000, 10),
        "english": (ENGLISH, 1020, 10),
    }
    files = {name: work / "texts" / f"{name}.jsonl" for name in [*wanted, "wikitext2 valid", "wikitext2 test"]}
    for name, (corpus, first, count) in wanted.items():
        if not files[name].exists():
            _write(files[name], articles(data, corpus, first, count, 2000))
    for part in ("valid", "test"):
        if not files[f"wikitext2 {part}"].exists():
            _write(files[f"wikitext2 {part}"], _first_words(wikitext(data, part), WIKITEXT_WORDS))
    return files


def _write(path: Path, texts: list[str]) -> None:
    write_lines(path, [{"id": str(number), "title": "", "text": text} for number, text in enumerate(texts)])


def _first_words(texts: list[str], words: int) -> list[str]:
    """The first so many words, at most a quarter of them from one article."""
    kept: list[str] = []
    for text in texts:
        left = min(words - sum(len(some.split()) for some in kept), words // 4)
        if left > 0:
            ends = [word.end() for word in re.finditer(r"\S+", text)]
            kept.append(text[: ends[min(left, len(ends)) - 1]])
    return kept


def measure_seed(work: Path, files: dict[str, Path], seed: int) -> dict[str, Any]:
    """All results of one model."""
    vocabulary = train_vocabulary(work / "lm-vocabulary", _texts(files["train"]), 4000, bos=True)
    train_causal(work / f"lm-{seed}", vocabulary, _texts(files["train"]), seed, STEPS)
    network, kept = load_network(work / f"lm-{seed}"), Kept(work / "results" / f"lm-{seed}.json")
    for domain in ("simple", "english"):
        if f"{domain} / wikitext2 test" in kept.rows:
            continue
        store = build_from_texts(
            work / f"lm-{seed}-{domain}", network, [files[f"store {domain}"]], OPTIONS, progress=telling(f"lm-{seed} {domain} keys")
        )
        settings = kept.get(f"{domain}: settings", lambda store=store, domain=domain: _tuned(network, store, files[f"dev {domain}"], seed))
        mixing = Mixing(settings["k"], settings["a"], settings["temperature"])
        for test in ("simple", "english", "wikitext2 valid", "wikitext2 test"):

            def measured(test: str = test, store: Datastore = store, mixing: Mixing = mixing) -> dict[str, Any]:
                scored, words = _scored(network, store, files[test], f"lm-{seed} {test}")
                return perplexities(scored, mixing, words) | {"keys": len(store), "build_seconds": store.facts.seconds}

            kept.get(f"{domain} / {test}", measured)
    return kept.rows


def _tuned(network: HubNetwork, store: Datastore, dev: Path, seed: int) -> dict[str, Any]:
    scored, _ = _scored(network, store, dev, f"lm-{seed} dev")
    best = tune(scored).best
    return {"k": best.k, "a": best.a, "temperature": best.temperature}


def _scored(network: HubNetwork, store: Datastore, file: Path, name: str) -> tuple[ScoredTokens, int]:
    """The wanted tokens of a text but unknown ones, and its words."""
    windows = windows_of_texts(network, [file], OPTIONS)
    scored = score_windows(network, windows, store.index(), NEIGHBOURS, telling(name))
    return scored.without(network.tokenizer.unk_token_id), windows.counts["words"]


def _texts(file: Path) -> list[str]:
    return [json.loads(line)["text"] for line in file.read_text("utf-8").splitlines()]


def main() -> None:
    given = arguments(__doc__ or "")
    files = write_texts(given.data, given.work)
    found = {seed: measure_seed(given.work, files, seed) for seed in given.seeds}
    rows, ratios = [], {}
    for domain in ("simple", "english"):
        for test in ("simple", "english", "wikitext2 valid", "wikitext2 test"):
            cells = [rows_of[f"{domain} / {test}"] for rows_of in found.values()]
            row = {"method": f"datastore {domain}, text {test}", "keys": cells[0]["keys"], "tokens": cells[0]["tokens"]}
            for name in ("perplexity", "knn_perplexity", "word_perplexity", "knn_word_perplexity", "found"):
                row[name] = [cell[name] for cell in cells]
            rows.append(row)
            shares = [cell["knn_word_perplexity"] / cell["word_perplexity"] for cell in cells]
            ratios[f"word perplexity with / without: {domain}, {test}"] = max(shares)
            print(row["method"], *(f"{name} {mean_and_range(row[name])}" for name in row if isinstance(row[name], list)), sep="\n    ")
    settings = {f"{seed} {domain}": rows_of[f"{domain}: settings"] for seed, rows_of in found.items() for domain in ("simple", "english")}
    print(json.dumps(result("knn_lm", 1, rows=rows, ratios=ratios, settings=settings)))


if __name__ == "__main__":
    main()
