"""Every kind of file that we write, damaged in every way: the same answers, one clear line, or a repair after which they are the same.

Never another answer without a word, a traceback, or the end of the process. A sample runs always, 10,000 cases with ``make test-slow``."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import pytest
from knn_models import OPTIONS, write_models

import realm
from realm.answering.opening import open_run
from realm.documents.change.updates import add_documents, remove_documents
from realm.knn.datastore import build_from_texts, is_datastore, verify_datastore
from realm.knn.network import load_network
from realm.runs import mending
from realm.runs.cached import open_cached
from realm.runs.needed_index import whole_index
from realm.storage.generations import current_generation, generation_path
from realm.storage.layout import RunPaths, write_run_format
from realm.training.loop.checkpoint import checkpoint_problem

from .fuzz import GOOD, SUBJECTS
from .harms import HARMS, Case, Drawer
from .subjects import QUIET, write_checkpoints, write_corpus

SEED = 38
SAMPLE = 40
CASES, CHUNK = 10_000, 500


@pytest.fixture(scope="module")
def world(tiny_run, tmp_path_factory):
    """One of everything: a run with hybrid search and an added document, the same with its index built again, a corpus of two segments
    with documents removed, a datastore, two checkpoints, a cache with an indexed folder."""
    root = tmp_path_factory.mktemp("world")
    run = Path(shutil.copytree(tiny_run, root / "run"))
    config = (run / "config.toml").read_text("utf-8")
    (run / "config.toml").write_text(config.replace('kind = "auto"\nweight', 'kind = "hybrid"\nweight'), "utf-8")
    write_run_format(RunPaths(run), realm.__version__)
    add_documents(run / "corpus", [tiny_run.parent / "more.jsonl"])
    open_run(run).with_added()
    rebuilt = Path(shutil.copytree(run, root / "rebuilt"))
    shutil.rmtree(generation_path(rebuilt / "index", current_generation(rebuilt / "index") or 0))
    whole_index(rebuilt, QUIET, lambda _: None)
    shutil.copytree(tiny_run / "stages" / "pretrain", root / "body")
    remove_documents(write_corpus(root), ["Arvad5"])
    write_models(root / "models")
    build_from_texts(root / "datastore", load_network(root / "models" / "causal"), [root / "first.jsonl"], OPTIONS)
    write_checkpoints(root / "checkpoints")
    (root / "notes").mkdir()
    for name, money in (("arvad", "Tirel"), ("belmor", "crown")):
        (root / "notes" / f"{name}.txt").write_text(f"People in {name} pay with the {money}. The winters are long.", "utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(root / "cache"))
        open_cached([root / "notes"], str(root / "body"), QUIET)
    return root


def run_chunk(world, work, first, count):
    """{"case", "outcome", "said"} of each case; one that ended the process is among them, and the rest is run by another."""
    found = []
    while len(found) < count:
        command = [
            sys.executable, "-P", "-m", "damage.fuzz", str(world), str(work), str(SEED), str(first + len(found)),
            str(count - len(found)),
        ]  # fmt: skip
        tests = Path(__file__).resolve().parents[1]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(tests), str(tests / "shared"), *filter(None, [os.environ.get("PYTHONPATH")])])
        }
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        found += [line for line in lines if "case" in line]
        if done.returncode == 0:
            break
        if not lines or "begun" not in lines[-1]:
            raise AssertionError(f"no case was begun: {done.stderr[-2000:]}")
        found.append({"case": lines[-1]["begun"], "outcome": f"ENDED WITH {done.returncode}", "said": done.stderr[-1000:]})
    return found


def judge(found):
    bad = {(one["outcome"], one["case"].partition(": ")[2].split(":")[0]): one for one in found if one["outcome"] not in GOOD}
    assert not bad, "\n".join(f"{one['outcome']}: {one['case']}: {one['said'][-600:]}" for one in bad.values())
    return Counter(one["outcome"] for one in found)


def test_every_kind_of_file_is_drawn(world):
    kinds = Drawer(world, SUBJECTS).kinds
    for wanted in (
        "segments/n.arrow", "tombstones-n.npy", "/CURRENT", "config.toml", "run.json", "sparse.json",
        "datastore.json", "values.npy",
    ):  # fmt: skip
        assert any(kind.endswith(wanted) or f"/{wanted}" in kind for kind in kinds), wanted
    assert len({kind.rpartition("/")[2] for kind in kinds}) > 40


UNCHECKED = {
    "run//report.html": "written again from the rest",
    "run//seconds.json": "shown in the report alone",
    "run//sources.json": "compared with the sources themselves",
    "cache/realm/sources.json": "compared with the sources themselves",
    "run//config.toml": "a warning says that it is not what realm run wrote",
    "run/index/CURRENT": "a generation is opened by the number in its stage",
    "cache/realm/CURRENT": "a number; others there are older states of the same",
    "datastore/index/CURRENT": "a number; there is one generation",
}
"""Kinds of files without a checksum that verify compares, and why not; a bit in every other kind is found."""
UNMISSED = {
    "run//report.html": "written again from the rest",
    "run/answers/*.npy": "located again",
    "run//sources.json": "the corpus is there; realm run then takes it as it is",
    "cache/realm/sources.json": "the corpus is there, and followed by documents.json",
}
"""Kinds of files that verify does not miss, and why not; every other kind is found to be lost."""


@pytest.mark.parametrize(("harm", "unfound"), [("bit", UNCHECKED), ("lost", UNMISSED)])
def test_harm_to_every_kind_of_file_is_found_but_for_those_that_need_it_not(world, tmp_path, harm, unfound):
    drawer, missed = Drawer(world, SUBJECTS), set()
    for kind, (*_, (subject, name)) in drawer.kinds.items():  # the newest: older versions are not read
        work = tmp_path / "work" / name
        shutil.copytree(world / subject, tmp_path / "work")
        drawer.apply(Case(subject, name, harm, 8 * (work.stat().st_size // 2) + 3), tmp_path / "work")
        place = next(iter((tmp_path / "work").glob("realm/documents/*")), tmp_path / "work")
        if subject == "checkpoints":
            found = [checkpoint_problem(work.parent)]
        else:
            found = verify_datastore(place) if is_datastore(place) else [one.path.name for one in mending.verify(place, QUIET)]
        missed |= set() if any(found) else {kind}
        shutil.rmtree(tmp_path / "work")
    assert not {kind for kind in missed if not any(fnmatch(kind, known) for known in unfound)}
    assert all(any(fnmatch(kind, known) for kind in drawer.kinds) for known in unfound)


def test_a_sample_of_damage_ends_well(world, tmp_path):
    found = run_chunk(world, tmp_path, 0, SAMPLE)
    assert len(found) == SAMPLE and judge(found)["same"] < 2 * SAMPLE // 3, "much of what is drawn is noticed"


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_ten_thousand_cases_of_damage_end_well(world, tmp_path):
    found = [one for first in range(0, CASES, CHUNK) for one in run_chunk(world, tmp_path, first, CHUNK)]
    print(json.dumps({"cases": len(found), "seed": SEED, "outcomes": judge(found)}))
    assert len(found) == CASES and {one["case"].rpartition(": ")[2].split()[0] for one in found} == set(HARMS)
