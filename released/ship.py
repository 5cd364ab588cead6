"""The files that the package ships, from finished runs: the whole model in 8 bits, and its card.

    python released/ship.py runs/first runs/second --data runs/reader-data --out src/realm/released/realm-minilm-en

The first run started from the published body, each other one from what the run before it had learnt; one run alone will do, too. A run that
started from what was shipped before takes its directory as --data: the card goes on from what stands there. The same runs give the same
files, bit for bit. The last line is one JSON object with the digest that the table of known bodies names.

Runs of given paragraphs fit no confidence: --fitted names what released/fit.py wrote, for the mean of their readers, which then ships; or
for the reader of --model, such as released/mean.py makes of the last run's and its start's.
"""

import argparse
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bake import bake
from fit import mean_reader
from safetensors.numpy import save_file
from torch import Tensor

from realm import __version__
from realm.answering.opening import read_run_recipe
from realm.models.bodies.known import WEIGHTS, known_body
from realm.models.model import RealmModel
from realm.models.runtime.weights import in_eight_bits
from realm.models.spec import spec_to_json
from realm.runs.directory import read_seconds
from realm.storage.files import sha256_file, write_atomic, write_json
from realm.storage.layout import RunPaths, stage_facts

LEAST_SECONDS = 180
"""A stage that took less is not told: it copied the weights of the run before."""
TRAINED = ("pretrain", "finetune")
CARD = """# {name}

{base} ({licence}) taught to answer questions from documents, by this project: a retriever and an extractive reader. English.

The embedder is the published one. The reader learnt from questions with their paragraphs: {learnt}; runs that shipped
together were averaged.
`recipes/{name}*.toml` are the recipes; seed {seed}. {stored}

## What it learnt from

| file | licence | questions taken | SHA-256 |
|---|---|---|---|
{rows}

No question of these was taken that is also one of the sets it is tested on, or shares {words} words in a row with one:
{left_out}. Texts of Wikipedia are CC BY-SA.

## What it cost

{cost}, besides the index of its documents. Made by realm {version}, torch {torch},
transformers {transformers}.
What it answers: `benchmarks/reading/released_model.py`, and a page in `benchmarks/results`.
"""


def facts_of(run: RunPaths) -> dict[str, Any]:
    """What a run has learnt from, and what it cost."""
    recipe, tuned = read_run_recipe(run), stage_facts(run, "finetune")
    spent = read_seconds(run)
    return {
        **{name: tuned[name] for name in ("questions", "steps")},
        "batch": recipe.finetune.batch,
        "seed": recipe.run.seed,
        "hours": {stage: round(spent[stage] / 3600, 1) for stage in TRAINED if spent.get(stage, 0) > LEAST_SECONDS},
        "where": f"{recipe.run.device}, threads {recipe.run.threads}",
    }


WHOLE = "The weights are stored in 8 bits, with a scale for each row of a matrix."


def card(name: str, base: str, data: dict[str, Any], stored: str = WHOLE) -> str:
    """The model card, from what the runs and their data say of themselves."""
    known = known_body(base)
    read, runs = data["read"], data["runs"]
    rows = [f"| {file} | {facts['licence']} | {facts.get('taken', '')} | `{facts['sha256'][:16]}…` |" for file, facts in read.items()]
    spent = [f"{stage} {took} h ({run['where']})" for run in runs for stage, took in run["hours"].items()]
    return CARD.format(
        name=name,
        base=base if known is None else known.repository,
        licence="" if known is None else known.licence,
        learnt=", then ".join(
            f"{min(run['questions'], run['steps'] * run['batch']):,} of {run['questions']:,} in {run['steps']:,} steps"
            + (f" taught by {run['teacher']}" if run.get("teacher") else "")
            for run in runs
        ),
        seed=runs[0]["seed"],
        stored=stored,
        rows="\n".join(rows),
        words=data["words_in_a_row"],
        left_out=", ".join(data["left_out_of"]),
        cost=", ".join(spent),
        version=__version__,
        torch=version("torch").partition("+")[0],
        transformers=version("transformers"),
    )


def shipped(first: RealmModel, model: RealmModel, facts: dict[str, Any]) -> RealmModel:
    """One embedder for both sides and the reader, with what was fitted to it.

    The embedder is that of the first run's documents, which is the published one: what the question side learnt showed in no recall, and
    costs 11 MB.
    """
    model = model.with_parts(embedder=first.documents, document_embedder=None)
    model.reader.spec = replace(
        model.reader.spec, taught=True, **{name: facts[name] for name in ("slope", "bias", "pooled", "abstain_below")}
    )
    return model.only("embedder", "reader")


def write_rounded(state: Mapping[str, Tensor], path: Path) -> None:
    """Write a model's state with its matrices in 8 bits."""
    stored, metadata = in_eight_bits({name: value.detach().cpu().float().numpy() for name, value in state.items()})
    save_file(stored, path, metadata)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="in the order of training")
    parser.add_argument("--data", type=Path, required=True, help="what prepare.py wrote, or what was shipped before")
    parser.add_argument("--fitted", type=Path, help="JSON with slope, bias and abstain_below, of the mean of the runs' readers")
    parser.add_argument("--model", type=Path, help="a model whose reader ships, in place of the mean of the runs' readers")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data = json.loads((arguments.data / "data.json").read_text("utf-8"))
    runs = [RunPaths(run) for run in arguments.runs]
    data["runs"] = [*data.get("runs", []), *map(facts_of, runs)]
    base = data.setdefault("base", read_run_recipe(runs[0]).model.body)
    stage = runs[-1].stage("finetune")
    first, last = (RealmModel.from_pretrained(run.stage("finetune")) for run in (runs[0], runs[-1]))
    if arguments.fitted:
        last = RealmModel.from_pretrained(arguments.model) if arguments.model else mean_reader(arguments.runs)
    fitted = json.loads(arguments.fitted.read_text("utf-8")) if arguments.fitted else stage_facts(runs[-1], "finetune")
    model = shipped(first, last, fitted)
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_rounded(model.state_dict(), arguments.out / WEIGHTS)
    write_json(arguments.out / "config.json", spec_to_json(model.spec))
    write_json(arguments.out / "data.json", data)
    write_atomic(arguments.out / "README.md", card(arguments.out.name, base, data))
    for file in stage.glob("tokenizer*.json"):
        shutil.copy(file, arguments.out / file.name)
    bake(arguments.out)
    size = sum(path.stat().st_size for path in arguments.out.iterdir())
    print(json.dumps({"sha256": sha256_file(arguments.out / WEIGHTS), "megabytes": round(size / 1e6, 2), "parts": model.spec.parts}))


if __name__ == "__main__":
    main()
