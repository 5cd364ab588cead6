"""kNN-LM proof: perplexity of small language models trained here with and without a datastore, and adaptation to a domain without training.

Models: GPT-2 of three layers, 192 wide, own BPE of 4,000, 600 steps of 1,024 tokens on 2,000 articles of Simple English Wikipedia.
Datastores: 500 of the same articles (simple), 300 articles of English Wikipedia created since 2018 (english), which no model saw. k, a
and temperature are tuned on other held-out articles of the datastore's kind. Wikitext-2 is in running spelling (``knn_data.wikitext``), its
perplexity per original word, <unk> left out: comparable between the rows here, not with the literature.

    python benchmarks/knn_lm.py --data DATA --work DIRECTORY
"""

import json
import re
from pathlib import Path
from typing import Any

import knn_data
from common import result
from knn_common import Kept, arguments, mean_and_range, telling
from knn_training import train_causal, train_vocabulary
from realm.knn.datastore import Datastore
from realm.knn.evaluation import perplexities
from realm.knn.network import HubNetwork, load_network
from realm.knn.scoring import ScoredTokens, score_windows
from realm.knn.settings import Mixing
from realm.knn.texts import TextOptions, build_from_texts, windows_of_texts
from realm.knn.tuning import tune, with_gate
from realm.knn.windows import WindowSet

STEPS, NEIGHBOURS = 600, 64
SIMPLE, ENGLISH = "simplewiki_2021", "enwiki_new2018_part"
OPTIONS = TextOptions(context=128, stride=96)
WIKITEXT_WORDS = 2_000


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
            _write(files[name], knn_data.articles(data, corpus, first, count, 2000))
    for part in ("valid", "test"):
        if not files[f"wikitext2 {part}"].exists():
            _write(files[f"wikitext2 {part}"], _first_words(knn_data.wikitext(data, part), WIKITEXT_WORDS))
    return files


def _write(path: Path, texts: list[str]) -> None:
    knn_data.write_lines(path, [{"id": str(number), "title": "", "text": text} for number, text in enumerate(texts)])


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
        settings = kept.get(
            f"{domain}: settings", lambda store=store, domain=domain: _tuned(work, network, store, files[f"dev {domain}"], seed)
        )
        mixing = Mixing(settings["k"], settings["a"], settings["temperature"])
        for test in ("simple", "english", "wikitext2 valid", "wikitext2 test"):
            gated = Mixing.load(work / f"lm-{seed}-{domain}.gate.json")

            def measured(test: str = test, store: Datastore = store, mixing: Mixing = mixing, gated: Mixing = gated) -> dict[str, Any]:
                scored, words = _scored(work, network, store, files[test], f"lm-{seed} {test}")
                gate = perplexities(scored, gated, words)
                own = {"keys": len(store), "build_seconds": store.facts.seconds, "gate_word_perplexity": gate["knn_word_perplexity"]}
                return perplexities(scored, mixing, words) | own

            kept.get(f"{domain} / {test}", measured)
    return kept.rows


def _tuned(work: Path, network: HubNetwork, store: Datastore, dev: Path, seed: int) -> dict[str, Any]:
    scored, _ = _scored(work, network, store, dev, f"lm-{seed} dev")
    best = tune(scored, "l2").best
    with_gate(scored, best).save(store.path.with_name(f"{store.path.name}.gate.json"))
    return {"k": best.k, "a": best.a, "temperature": best.temperature}


def _scored(work: Path, network: HubNetwork, store: Datastore, file: Path, name: str) -> tuple[ScoredTokens, int]:
    """The wanted tokens of a text but unknown ones, and its words."""
    path = work / "windows" / file.stem
    windows = WindowSet(path) if path.exists() else windows_of_texts(path, network, [file], OPTIONS)
    scored = score_windows(network, windows, store.index(), NEIGHBOURS, telling(name))
    return scored.without(network.tokenizer.unk_token_id), int(windows.facts["words"])


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
            for name in ("perplexity", "knn_perplexity", "word_perplexity", "knn_word_perplexity", "gate_word_perplexity", "found"):
                row[name] = [cell[name] for cell in cells]
            rows.append(row)
            shares = [cell["knn_word_perplexity"] / cell["word_perplexity"] for cell in cells]
            ratios[f"word perplexity with / without: {domain}, {test}"] = max(shares)
            print(row["method"], *(f"{name} {mean_and_range(row[name])}" for name in row if isinstance(row[name], list)), sep="\n    ")
    settings = {f"{seed} {domain}": rows_of[f"{domain}: settings"] for seed, rows_of in found.items() for domain in ("simple", "english")}
    print(json.dumps(result("knn_lm", 1, rows=rows, ratios=ratios, settings=settings)))


if __name__ == "__main__":
    main()
