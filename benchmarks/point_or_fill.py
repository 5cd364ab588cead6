"""Pointing at hidden spans, or filling them wordpiece by wordpiece: which teaches more in the same time?

    python benchmarks/point_or_fill.py recipes/squad-pointer.toml --seconds 970 --test DATA/squad/qa_dev.jsonl.xz \
        --train DATA/squad/qa_train.jsonl.xz --sizes 0 16 128 1024 --out point-or-fill

Both forms start from the recipe's body, hide the same kind of spans and search the same index, and their training may take --seconds of
processor time of one thread; a few real steps of each say beforehand how many steps that is. "pointer" is the recipe as it is: the reader
first, then the retriever, in its own shares. "mlm" is the paper's order: a warm start that teaches the encoder to read (--warm of the
time), then both networks together by the marginal likelihood. Then both learn from the same questions (few_questions.py), where the
mlm form needs a new span head. Without --train and --test the demo's part of the atlas and its own questions are used, which the recipe's
[corpus] is replaced by. The last line is one JSON object.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from common import result
from few_questions import add_options, measure
from realm.config import Recipe, build_recipe, load_recipe
from realm.demo.atlas import write_atlas
from realm.opening import read_run_recipe
from realm.paths import RunPaths
from realm.pipeline import run_recipe
from realm.pipeline.demo_from_nothing import DEMO_DOMAINS
from realm.pipeline.plan import plan
from realm.progress import Progress
from realm.recipes.context import stage_facts

POINTER_ALONE = {"reader_first": 0, "questions": 0.0, "own_block": 0.0, "after_reader": "both"}
"""What the recipe says of pointing alone, taken back for the other form."""
STAGES = ("corpus", "warm", "pretrain")
QUIET = Progress(quiet=True)


def changed(recipe: Recipe, **sections: dict[str, Any]) -> Recipe:
    """The recipe with other values, by section."""
    return build_recipe(dataclasses.asdict(recipe), overrides=sections)


def untaught(path: Path, options: argparse.Namespace) -> Recipe:
    """The recipe's pre-training alone, without questions, on the atlas where no questions are named."""
    recipe = load_recipe(path)
    corpus: dict[str, Any] = {}
    if not options.train:
        atlas = options.out / "atlas"
        write_atlas(atlas, domains=DEMO_DOMAINS)
        corpus = {"sources": [str(atlas / "documents.jsonl")], "gazetteer": str(atlas / "gazetteer.txt")}
        options.train, options.test = atlas / "qa_train.jsonl", atlas / "qa_test.jsonl"
    run = {"seed": options.seed, "threads": options.threads}
    return changed(recipe, run=run, corpus=corpus, finetune={"train": "", "dev": ""}, eval={"qa": ""})


def seconds_of(recipe: Recipe, run: Path) -> dict[str, float]:
    """Processor seconds of a step of each stage."""
    stages = plan(recipe, run, progress=QUIET)["stages"]
    return {name: stages[name]["seconds_per_step"] for name in ("warm", "pretrain") if name in stages}


def pointing(recipe: Recipe, run: Path, seconds: float) -> Recipe:
    """The recipe, as many steps long as there is time for, the reader's part in its own share."""
    each, section = seconds_of(recipe, run), recipe.pretrain
    steps = round(seconds / each["pretrain"])
    values = {"steps": steps, "reader_first": round(steps * section.reader_first / section.steps), "eval_every": steps}
    return changed(recipe, pretrain=values)


def filling(recipe: Recipe, run: Path, seconds: float, warm: float) -> Recipe:
    """The paper's form: ``warm`` of the time for the warm start, the rest for both networks together."""
    form = changed(recipe, pretrain={"fill": "mlm", "from_warm": True, "force": True} | POINTER_ALONE)
    each = seconds_of(form, run)
    before, steps = round(seconds * warm / each["warm"]), round(seconds * (1 - warm) / each["pretrain"])
    return changed(form, warm={"steps": before, "least_steps": before}, pretrain={"steps": steps, "eval_every": steps})


def planned(form: str, recipe: Recipe, run: Path, options: argparse.Namespace) -> Recipe:
    """A form of the recipe; as it was begun, where it was."""
    if RunPaths(run).config.exists():
        return read_run_recipe(RunPaths(run))
    return pointing(recipe, run, options.seconds) if form == "pointer" else filling(recipe, run, options.seconds, options.warm)


def trained(recipe: Recipe, run: Path) -> dict[str, Any]:
    """Pre-train, and what the run says of it."""
    done = run_recipe(recipe, run, stages=STAGES, progress=QUIET)
    row = {f"{name}_wall_seconds": round(stage["seconds"]) for name, stage in done["stages"].items()}
    facts = stage_facts(RunPaths(run), "pretrain")
    return row | {name: facts[name] for name in ("gate", "own_em") if name in facts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--seconds", type=float, default=970, help="processor time of one thread for the training of either form")
    parser.add_argument("--warm", type=float, default=0.5, help="the warm start's share of the mlm form's time")
    parser.add_argument("--forms", nargs="+", choices=["pointer", "mlm"], default=["pointer", "mlm"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    add_options(parser)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    recipe, forms, rows = untaught(options.recipe, options), [], []
    for form in options.forms:
        run = options.out / f"{form}-{options.seed}"
        told = planned(form, recipe, run, options)
        steps = {
            "steps": told.pretrain.steps,
            "reader_first": told.pretrain.reader_first,
            "warm": told.warm.steps * told.pretrain.from_warm,
        }
        forms.append({"form": form} | steps | trained(told, run))
        print(json.dumps(forms[-1]), flush=True)
        scratch = options.out / f"{form}-{options.seed}-questions"
        scratch.mkdir(exist_ok=True)
        for size in options.sizes:
            rows.append({"form": form} | measure(run, scratch, size, options))
            print(json.dumps(rows[-1]), flush=True)
    facts = {"recipe": options.recipe.name, "seed": options.seed, "asked": options.asked, "seconds": options.seconds}
    print(json.dumps(result("point or fill", options.threads, **facts, forms=forms, rows=rows)))


if __name__ == "__main__":
    main()
