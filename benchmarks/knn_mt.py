"""kNN-MT proof: BLEU of small translation models trained here on 30 % of multi30k en-de, with and without a datastore.

Models: pre-norm transformers (M2M-100) of two layers a side, 128 wide, joint BPE of 3,000, 800 steps of 32 of 8,700 pairs. Datastores: all
29,000 pairs (all), the 8,700 that the model saw (part). k, a and temperature are tuned by teacher-forced likelihood on the validation set.
Greedy translation; BLEU and the paired bootstrap (1,000 resamples) by sacrebleu.

    python benchmarks/knn_mt.py --data DATA --work DIRECTORY
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import knn_data
from common import result
from knn_common import Kept, arguments, mean_and_range, telling
from knn_training import train_translation, train_vocabulary
from realm.knn.datastore import Datastore
from realm.knn.evaluation import Translations, translate, translation_scores
from realm.knn.network import HubNetwork, load_network
from realm.knn.pruning import Method, prune
from realm.knn.scoring import score_windows
from realm.knn.settings import Mixing
from realm.knn.texts import TextOptions, build_from_texts, windows_of_texts
from realm.knn.tuning import tune
from realm.knn.windows import WindowSet

STEPS, NEIGHBOURS = 800, 32
SEED_OF_PART, SHARE = 0, 0.3
OPTIONS = TextOptions(source_column="en", target_column="de")
TESTS = ("test_2016_flickr", "test_2017_flickr")
CURVE: list[tuple[Method, float]] = [("random", 0.5), ("random", 0.1), ("merge", 0.1), ("random", 0.01), ("known", 0.25)]
CURVE += [("random", 0.25), ("merge", 0.25), ("random", 0.03), ("merge", 0.03)]
CURVE_SENTENCES = 500


def write_pairs(data: Path, work: Path) -> tuple[dict[str, Path], list[tuple[str, str]]]:
    """The files of both datastores and of the validation set, and the pairs that models train on."""
    pairs = knn_data.caption_pairs(data, "train")
    part = [pairs[row] for row in sorted(random.Random(SEED_OF_PART).sample(range(len(pairs)), int(len(pairs) * SHARE)))]
    texts = {"all": pairs, "part": part, "val": knn_data.caption_pairs(data, "val")}
    files = {}
    for name, rows in texts.items():
        files[name] = knn_data.write_lines(work / "texts" / f"{name}.jsonl", [{"en": source, "de": target} for source, target in rows])
    return files, part


def measure_seed(data: Path, work: Path, seed: int) -> dict[str, Any]:
    """All results of one model but those of pruned datastores."""
    files, part = write_pairs(data, work)
    vocabulary = train_vocabulary(work / "mt-vocabulary", [text for pair in part for text in pair], 3000, bos=False)
    train_translation(work / f"mt-{seed}", vocabulary, part, seed, STEPS)
    network, kept = load_network(work / f"mt-{seed}"), Kept(work / "results" / f"mt-{seed}.json")
    kept.get("training", lambda: json.loads((work / f"mt-{seed}" / "training.json").read_text("utf-8")))
    plain = {test: kept.get(f"{test} / none", lambda test=test: _translated(data, network, test, None, None)) for test in TESTS}
    for name in ("all", "part"):
        store = build_from_texts(work / f"mt-{seed}-{name}", network, [files[name]], OPTIONS, progress=telling(f"mt-{seed} {name} keys"))
        settings = kept.get(f"{name}: settings", lambda store=store: _tuned(work, network, store, files["val"]))
        mixing = Mixing(settings["k"], settings["a"], settings["temperature"])
        for test in TESTS:
            made = kept.get(
                f"{test} / {name}", lambda test=test, store=store, mixing=mixing: _translated(data, network, test, store, mixing)
            )
            kept.get(f"{test} / {name}: bootstrap", lambda made=made, test=test: _compared(data, test, plain[test]["texts"], made["texts"]))
    return kept.rows


def measure_curve(data: Path, work: Path, seed: int) -> list[dict[str, Any]]:
    """BLEU on CURVE_SENTENCES of the first test set, with ever smaller datastores of all pairs, settings as tuned for the whole one."""
    network, kept = load_network(work / f"mt-{seed}"), Kept(work / "results" / f"mt-{seed}.json")
    store, settings = Datastore.open(work / f"mt-{seed}-all", network), kept.rows["all: settings"]
    mixing, points = Mixing(settings["k"], settings["a"], settings["temperature"]), []
    references = [target for _, target in knn_data.caption_pairs(data, TESTS[0])][:CURVE_SENTENCES]
    for name, keys in (("none", 0), ("all", len(store))):
        scores = translation_scores(kept.rows[f"{TESTS[0]} / {name}"]["texts"][:CURVE_SENTENCES], references)
        points.append({"method": f"curve {name}", "keys": keys, **scores})
    for method, share in CURVE:
        found = kept.get(f"curve {method} {share}", lambda m=method, s=share: _pruned(data, work, network, store, m, s, mixing))
        points.append({"method": f"curve {method} {share}", **found})
    return points


def _tuned(work: Path, network: HubNetwork, store: Datastore, dev: Path) -> dict[str, Any]:
    path = work / "windows" / "mt-val"
    windows = WindowSet(path) if path.exists() else windows_of_texts(path, network, [dev], OPTIONS)
    tuned = tune(score_windows(network, windows, store.index(), NEIGHBOURS, telling("mt dev")), "l2")
    best, keys = tuned.best, len(store)
    return {"k": best.k, "a": best.a, "temperature": best.temperature, "model_loss": tuned.model_loss, "loss": tuned.loss, "keys": keys}


def _translated(
    data: Path, network: HubNetwork, test: str, store: Datastore | None, mixing: Mixing | None, most: int | None = None
) -> dict[str, Any]:
    pairs = knn_data.caption_pairs(data, test)[:most]
    index = None if store is None else store.index()
    made: Translations = translate(
        network, [source for source, _ in pairs], index=index, mixing=mixing, beams=1, longest=60, progress=telling(test)
    )
    scores = translation_scores(made.texts, [target for _, target in pairs])
    return {**scores, "tokens_per_second": made.tokens / made.seconds, "texts": made.texts}


def paired_bootstrap(baseline: Sequence[str], system: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Whether ``system`` differs from ``baseline``: {"baseline_bleu", "bleu", "p"} by sacrebleu's paired bootstrap of BLEU."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.significance import PairedTest

    systems: Any = [("baseline", list(baseline)), ("system", list(system))]
    test = PairedTest(systems, {"BLEU": BLEU(references=[list(references)])}, None, test_type="bs", n_samples=1000)
    results: Any = test()[1]["BLEU"]
    first, second = results
    return {"baseline_bleu": float(first.score), "bleu": float(second.score), "p": float(second.p_value)}


def _compared(data: Path, test: str, plain: list[str], made: list[str]) -> dict[str, float]:
    return paired_bootstrap(plain, made, [target for _, target in knn_data.caption_pairs(data, test)])


def _pruned(data: Path, work: Path, network: HubNetwork, store: Datastore, method: Method, share: float, mixing: Mixing) -> dict[str, Any]:
    path = work / "pruned" / f"{store.path.name}-{method}-{share}"
    small = Datastore.open(path) if path.exists() else prune(store, path, method, share, network=network, progress=telling("known"))
    found = _translated(data, network, TESTS[0], small, mixing, CURVE_SENTENCES)
    return {"keys": len(small), "bleu": found["bleu"], "chrf": found["chrf"]}


def main() -> None:
    given = arguments(__doc__ or "")
    found = {seed: measure_seed(given.data, given.work, seed) for seed in given.seeds}
    rows, ratios = [], {}
    for test in TESTS:
        for name in ("none", "all", "part"):
            cells = [rows_of[f"{test} / {name}"] for rows_of in found.values()]
            row: dict[str, Any] = {"method": f"{test}, datastore {name}", **{x: [cell[x] for cell in cells] for x in ("bleu", "chrf")}}
            row["tokens_per_second"] = [cell["tokens_per_second"] for cell in cells]
            if name != "none":
                row["p"] = [rows_of[f"{test} / {name}: bootstrap"]["p"] for rows_of in found.values()]
                gains = [b - a for a, b in zip(rows[-1 if name == "all" else -2]["bleu"], row["bleu"], strict=True)]
                ratios[f"least gain of BLEU: {test}, {name}"] = min(gains)
            rows.append(row)
            print(row["method"], *(f"{key} {mean_and_range(row[key])}" for key in row if isinstance(row[key], list)), sep="\n    ")
    curve = measure_curve(given.data, given.work, given.seeds[0])
    for point in curve:
        print(point["method"], point["keys"], f"BLEU {point['bleu']:.2f}")
    facts = {seed: {"training": rows_of["training"], "settings": rows_of["all: settings"]} for seed, rows_of in found.items()}
    print(json.dumps(result("knn_mt", 1, rows=rows + curve, ratios=ratios, models=facts)))


if __name__ == "__main__":
    main()
