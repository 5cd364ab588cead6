"""The files that the package ships, from a finished run: what training changed in the published body, and the model's card.

    python released/ship.py runs/realm-minilm-en --data runs/realm-minilm-en-data --out src/realm/released/realm-minilm-en

The same run gives the same files, bit for bit. The last line is one JSON object with the digest that the table of known bodies names.
"""

import argparse
import json
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from realm import __version__
from realm.nn.differences import write_difference
from realm.nn.known_bodies import DIFFERENCE, known_body
from realm.nn.model import RealmModel
from realm.nn.spec import spec_to_json
from realm.opening import read_run_recipe
from realm.paths import RunPaths
from realm.pipeline.directory import read_seconds
from realm.stages import stage_facts
from realm.storage.files import sha256_file, write_atomic, write_json

BITS = {"embedder": 8, "reader": 8}

CARD = """# {name}

{base} ({licence}) taught to answer questions from documents, by this project: a retriever and an extractive reader. English.

It was pre-trained without questions, {pretrain_steps} steps of pointing at hidden spans in other documents and at answers of templated
questions in their own, and then learnt from {questions:,} questions ({finetune_steps} steps of {batch}). `recipes/{name}.toml` is the
recipe; seed {seed}.

## What it learnt from

| file | licence | questions taken | SHA-256 |
|---|---|---|---|
{rows}

No question of these was taken that is also one of the sets it is tested on, or shares {words} words in a row with one:
{left_out}. Texts of Wikipedia are CC BY-SA.

## What it cost

{cost} ({device}, {threads} threads), besides the index of its documents. Made by realm {version}, torch {torch},
transformers {transformers}.
What it answers: `benchmarks/released_model.py`, and a page in `benchmarks/results`.
"""


def card(name: str, run: Path, data: dict[str, Any]) -> str:
    """The model card, from what the run and its data say of themselves."""
    recipe, paths = read_run_recipe(RunPaths(run)), RunPaths(run)
    known = known_body(recipe.model.body)
    rows = [
        f"| {file} | {facts['licence']} | {facts.get('taken', '')} | `{facts['sha256'][:16]}…` |" for file, facts in data["read"].items()
    ]
    seconds = read_seconds(paths)
    return CARD.format(
        name=name,
        base=recipe.model.body if known is None else known.repository,
        licence="" if known is None else known.licence,
        pretrain_steps=stage_facts(paths, "pretrain")["steps"],
        finetune_steps=stage_facts(paths, "finetune")["steps"],
        batch=recipe.finetune.batch,
        questions=data["train"],
        seed=recipe.run.seed,
        rows="\n".join(rows),
        words=data["words_in_a_row"],
        left_out=", ".join(data["left_out_of"]),
        cost=", ".join(f"{stage} {took / 3600:.1f} h" for stage, took in seconds.items() if stage in ("pretrain", "finetune")),
        device=recipe.run.device,
        threads=recipe.run.threads,
        version=__version__,
        torch=version("torch").partition("+")[0],
        transformers=version("transformers"),
    )


def shipped(model: RealmModel, facts: dict[str, Any]) -> RealmModel:
    """One embedder for both sides and the reader, with what was fitted to it.

    The embedder is the documents', which is the published one: what the question side learnt showed in no recall, and costs 5 MB.
    """
    model = model.with_parts(embedder=model.documents, document_embedder=None)
    fitted = {"temperature": facts["temperature"], "abstain_below": facts["abstain_below"]}
    model.reader.spec = replace(model.reader.spec, **fitted)
    return model.only("embedder", "reader")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="what prepare.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data = json.loads((arguments.data / "data.json").read_text("utf-8"))
    paths, recipe = RunPaths(arguments.run), read_run_recipe(RunPaths(arguments.run))
    stage = paths.stage("finetune")
    model = shipped(RealmModel.from_pretrained(stage), stage_facts(paths, "finetune"))
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_difference(model.state_dict(), recipe.model.body, arguments.out, BITS)
    write_json(arguments.out / "config.json", spec_to_json(model.spec))
    write_json(arguments.out / "data.json", data)
    write_atomic(arguments.out / "README.md", card(arguments.out.name, arguments.run, data))
    for file in stage.glob("tokenizer*.json"):
        shutil.copy(file, arguments.out / file.name)
    size = sum(path.stat().st_size for path in arguments.out.iterdir())
    print(json.dumps({"sha256": sha256_file(arguments.out / DIFFERENCE), "megabytes": round(size / 1e6, 2), "parts": model.spec.parts}))


if __name__ == "__main__":
    main()
