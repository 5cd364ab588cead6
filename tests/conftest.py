"""What every test gets: no network, one thread, the shared data directory."""

import json
import os
import shutil
import sys
from pathlib import Path

# Before anything imports torch or transformers; the commands that tests start inherit it.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# One thread: on a busy machine two wait for each other longer than such small networks compute.
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import hypothesis
import pytest

# Two busy cores: a slow example is no failure. The same examples every time, so that a failure is the change's, not the day's.
hypothesis.settings.register_profile("realm", deadline=None, derandomize=True)
hypothesis.settings.load_profile("realm")

ROOT = Path(__file__).resolve().parents[1]


def pytest_collection_finish():
    """Fix the number of threads, on which bits of a sum depend, without importing torch for tests that need none."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def one_thread():
    """What a test computes with two threads it does alone: a process that the next one forks would wait for the second thread for ever."""
    yield
    if (torch := sys.modules.get("torch")) and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data_dir():
    """Real data: $REALM_DATA, else ../shared/data beside the repository. Tests that need it are skipped without it."""
    path = Path(os.environ.get("REALM_DATA") or ROOT.parent / "shared" / "data").resolve()
    if not path.is_dir():
        pytest.skip(f"no data at {path}: set REALM_DATA")
    return path


@pytest.fixture(scope="session")
def from_nothing():
    """recipes/from-nothing.toml with some changes, as if it lay in ``directory/recipes``: its atlas is ``directory/runs/atlas``."""
    import tomllib

    from realm.recipe import build_recipe

    name = "recipes/from-nothing.toml"

    def recipe_in(directory, changes):
        return build_recipe(tomllib.loads((ROOT / name).read_text("utf-8")), path=directory / name, overrides=changes)

    return recipe_in


COUNTRIES = [("Arvad", "Tirel"), ("Belmor", "Osten"), ("Carsin", "Levka"), ("Dulwen", "Marop"), ("Estrag", "Nivel"), ("Faldor", "Quessa")]
# Each file asks about all countries, in words and under ids of its own: what is measured is neither learnt from nor fitted to.
ASKED = {
    "qa_train": ("learn/{}", "What do people in {} pay with?"),
    "qa_dev": ("dev/{}", "Which money is the currency in {}?"),
    "qa": ("{}", "What is the currency of {}?"),
}
TINY_RECIPE = """
[run]
threads = 1
device = "cpu"
checkpoint_every = 2
[corpus]
sources = ["docs.jsonl"]
vocab_size = 300
block_length = 64
[model]
hidden = 32
layers = 1
heads = 2
intermediate = 64
projection = 16
span_hidden = 16
query_length = 32
dropout = 0.1
[warm]
steps = 5
batch = 4
check_every = 50
[ict]
steps = 5
batch = 4
[pretrain]
steps = 5
batch = 4
candidates = 4
refresh = "inline"
refresh_every = 2
force = true
[finetune]
train = "qa_train.jsonl"
dev = "qa_dev.jsonl"
steps = 5
batch = 4
read = 3
eval_every = 4
[eval]
qa = "qa.jsonl"
k = [1, 5]
"""


@pytest.fixture(scope="session")
def write_tiny():
    """Writes documents, questions and a recipe of seconds into a directory; returns the recipe."""

    def write(root):
        root.mkdir(parents=True, exist_ok=True)
        documents, questions = [], {name: [] for name in ASKED}
        for name, money in COUNTRIES:
            for part, text in enumerate(
                [
                    f"People in {name} pay with the {money}. The {money} has one hundred cents. Many visit {name} in 1950.",
                    f"The currency of {name} is the {money}. In {name} the winters are long. The {money} was made in 1950.",
                ]
            ):
                documents.append({"id": f"{name}/{part}", "title": name, "text": text})
            for file, (id, words) in ASKED.items():
                question = {"id": id.format(name), "question": words.format(name), "answers": [money]}
                questions[file].append(question | {"positive_ids": [f"{name}/0", f"{name}/1"]})
        more = {"id": "Novaria/0", "title": "Novaria", "text": "The currency of Novaria is the Belmor crown. Nobody lives there."}
        for file, rows in (("docs", documents), ("more", [more]), *questions.items()):
            (root / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        (root / "recipe.toml").write_text(TINY_RECIPE, "utf-8")
        return root / "recipe.toml"

    return write


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory, write_tiny):
    """A run that went through every stage, its files beside it. Tests that change it work on a copy."""
    from realm.progress import Progress
    from realm.runs.run import run_recipe

    root = tmp_path_factory.mktemp("tiny")
    run_recipe(write_tiny(root), root / "run", stages=None, progress=Progress(quiet=True))
    return root / "run"


@pytest.fixture
def run_copy(tiny_run, tmp_path):
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


@pytest.fixture
def say(capsys):
    """Runs a command that must succeed; returns the JSON object of its last line, or all it printed."""

    def run(*arguments):
        from realm.cli import main

        capsys.readouterr()
        code, captured = main([str(argument) for argument in arguments]), capsys.readouterr()
        assert code == 0 and "Traceback" not in captured.err, captured.err
        return json.loads(captured.out.splitlines()[-1]) if "--json" in arguments else captured.out

    return run


@pytest.fixture
def refused(capsys):
    """Runs a command that must end in one line and exit code 2; returns that line."""

    def run(*arguments):
        from realm.cli import main

        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == 2
        captured = capsys.readouterr()
        errors = [line for line in captured.err.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1 and captured.err.endswith(errors[0] + "\n") and "Traceback" not in captured.err + captured.out
        return errors[0]

    return run


@pytest.fixture(scope="session")
def small_atlas():
    """Writes what ``write_atlas`` does, of 150 articles on countries alone, and 40 questions of each split on them."""
    from realm.experiments.atlas import read_atlas

    def write(directory):
        files = read_atlas()
        kept = [line for line in files["documents.jsonl"].splitlines(keepends=True) if line.startswith('{"id": "countries/')][:150]
        ids = {json.loads(line)["id"] for line in kept}
        for name in ("qa_train.jsonl", "qa_dev.jsonl", "qa_test.jsonl"):
            asked = [line for line in files[name].splitlines(keepends=True) if ids & set(json.loads(line)["positive_ids"])]
            files[name] = "".join(asked[:40])
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in (files | {"documents.jsonl": "".join(kept)}).items():
            (directory / name).write_text(text, "utf-8")

    return write


@pytest.fixture
def waiting_run(run_copy):
    """A corpus and parameters whose index is asked for."""
    from realm.models.model import RealmModel
    from realm.search.publishing.parameters import request_index
    from realm.storage.layout import RunPaths

    paths = RunPaths(run_copy)
    model = RealmModel.from_pretrained(paths.stage("pretrain"))
    for name in ("stages", "index", "params", "results"):
        shutil.rmtree(run_copy / name)
    request_index(model, paths, 1)
    return paths


@pytest.fixture
def interrupt_each(monkeypatch):
    """Makes each of the named stages end with Ctrl-C before its fourth step, once; a name is taken out of the set when that happens."""
    import realm.training.loop.loop

    step_of = realm.training.loop.loop._one_step

    def arm(pending):
        def one_step(task, step, *rest):
            if task.name in pending and step == 3:
                pending.discard(task.name)
                raise KeyboardInterrupt
            return step_of(task, step, *rest)

        monkeypatch.setattr(realm.training.loop.loop, "_one_step", one_step)

    return arm


@pytest.fixture(scope="module")
def inputs(paths):
    """The corpus of the module's ``paths``."""
    from realm.search.blocks import open_inputs

    return open_inputs(paths.corpus, 64)


@pytest.fixture(scope="module")
def model(inputs):
    """Small networks for it, without training."""
    import torch

    from realm.models.model import RealmModel
    from realm.models.spec import bert_spec, one_body

    torch.manual_seed(0)
    sizes = {"vocab_size": inputs.store.tokenizer.vocab_size, "hidden": 16, "layers": 1, "heads": 2, "intermediate": 32}
    body = bert_spec(max_length=352, dropout=0.1, attention_dropout=0.0, **sizes)
    return RealmModel(one_body(body, projection=8)).fork_document_embedder().with_reader(0, span_hidden=8, max_span=10)


@pytest.fixture(scope="module")
def generation(paths, inputs, model):
    """Its index."""
    from realm.search.publishing.refresher import refresh_index

    return refresh_index(model, inputs, paths, step=0)
