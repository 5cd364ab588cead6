"""Hide the demo's part of the atlas among tens of thousands of other documents, and write the recipe that pre-trains on it.

    realm ablate atlas.toml --rows orqa --out ablation                      once: a warm encoder, and ICT's retriever
    python benchmarks/atlas_among_others.py simplewiki.jsonl.xz --start ablation/stages/combined-.../stages/pretrain --out among
    realm ablate among/atlas.toml --rows realm,stale,frozen --seeds 1

Z is the atlas and the first words of other articles, chosen by a hash of their ids; X is the atlas alone. Networks and tokenizer are those
of a stage that was trained on the atlas and has never seen the others. The last line of its output is one JSON object.
"""

import argparse
import hashlib
import json
import tomllib
from importlib.resources import files
from pathlib import Path

from realm.config import build_recipe
from realm.config.loading import dump_recipe
from realm.demo.atlas import write_atlas
from realm.pipeline.demo_from_nothing import ASKED, DEMO_DOMAINS
from realm.storage.files import write_atomic
from realm.text.files import open_text

CHANGES = {
    "run": {"threads": 1, "checkpoint_every": 20},
    "pretrain": {"steps": 200, "probe_queries": 50, "from_ict": False, "from_warm": False, "force": True},
    "finetune": {"steps": 280, "eval_every": 280},
    "eval": {"baselines": False},
}
"""The lengths of the table of ablations on the atlas, without its first two stages."""
LEAST_WORDS = 12
"""Of an article that is taken."""


def others(articles: Path, count: int, words: int) -> list[dict[str, str]]:
    """The beginnings of ``count`` articles, each another text; the same ones on every machine."""
    with open_text(articles) as lines:
        documents = [json.loads(line) for line in lines if line.strip()]
    documents.sort(key=lambda document: hashlib.sha256(str(document["id"]).encode()).digest())
    found: dict[str, dict[str, str]] = {}
    for document in documents:
        text = " ".join(document["text"].split()[:words])
        if len(found) < count and len(text.split()) >= LEAST_WORDS:
            found.setdefault(text, {"id": str(document["id"]), "title": document["title"], "text": text.removesuffix(".") + "."})
    return list(found.values())


def recipe_text(start: Path, out: Path) -> str:
    """The demo's recipe on both sources, from the networks of ``start``."""
    values = tomllib.loads((files("realm.demo") / "recipe.toml").read_text("utf-8"))
    for section, changes in CHANGES.items():
        values[section] |= changes
    atlas = str((out / "atlas" / "documents.jsonl").resolve())
    values["corpus"] |= {"sources": [atlas, str((out / "others.jsonl").resolve())], "tokenizer": str(start.resolve())}
    values["model"]["body"] = str(start.resolve())
    values["pretrain"]["sentences"] = [atlas]
    return dump_recipe(build_recipe(values, path=out / "atlas.toml"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("articles", type=Path, help="JSONL of documents, compressed or not")
    parser.add_argument("--start", type=Path, required=True, help="directory of a whole REALM trained on the atlas")
    parser.add_argument("--others", type=int, default=49_000)
    parser.add_argument("--words", type=int, default=14)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    write_atlas(options.out / "atlas", domains=DEMO_DOMAINS, asked=ASKED)
    rows = others(options.articles, options.others, options.words)
    write_atomic(options.out / "others.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    write_atomic(options.out / "atlas.toml", recipe_text(options.start, options.out))
    print(json.dumps({"others": len(rows), "recipe": str(options.out / "atlas.toml")}))


if __name__ == "__main__":
    main()
