"""Runs that start from a published body: found at once, with its own tokenizer, its own rates, and refused where the words differ."""

import importlib
import json
import math
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from realm.answering.opening import open_run
from realm.cli import main
from realm.documents.ingest.builder import build_corpus
from realm.documents.store.blocks import BlockStore
from realm.errors import ConfigError
from realm.models.bodies.body import has_bf16
from realm.models.model import RealmModel, part_sizes
from realm.progress import Progress
from realm.recipe import build_recipe, dump_recipe, load_recipe
from realm.runs.checks import meta_model
from realm.runs.exporting import export_run
from realm.runs.run import run_recipe
from realm.storage.paths import RunPaths
from realm.text.tokenizer import TextTokenizer, train_wordpiece
from realm.training.context import open_context
from realm.training.starting import new_model

PLACES = ("Oslo", "Lima", "Cairo", "Quito", "Hanoi", "Accra", "Sofia", "Dakar", "Minsk", "Tunis", "Delhi", "Seoul")
TEXTS = [
    f"{place} has {n + 3} bridges. The river of {place} is called Branta {n}. Every bridge of {place} is old."
    for n, place in enumerate(PLACES)
]

MANUAL = """\
To mute a track, press the red button. If the disk is full, the backup stops at once.
Use the -q option to hide all messages. A snapshot is a picture of the disk at one moment.
The log cannot be read because the daemon owns it. Notes are stored in the home folder.

OPTIONS
  -v, --verbose
         Print each name that is copied.
"""
ANSWERS = {
    "purpose": {"press the red button"},
    "condition": {"the backup stops at once"},
    "means": {"Use the -q option"},
    "which": {"-q"},
    "definition": {"a picture of the disk at one moment"},
    "reason": {"the daemon owns it"},
    "place": {"the home folder"},
    "does": {"Print each name that is copied"},
    "option": {"-v, --verbose", "-v", "--verbose"},
}
FEW_STEPS = {"warm": {"steps": 2, "batch": 4}, "ict": {"steps": 2, "batch": 4}}


@pytest.fixture(scope="module")
def body(tmp_path_factory, make_body):
    return make_body(tmp_path_factory.mktemp("body"), TEXTS)


@pytest.fixture
def documents(tmp_path):
    rows = [{"id": place, "title": place, "text": text} for place, text in zip(PLACES, TEXTS, strict=True)]
    (tmp_path / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "documents.jsonl"


def recipe_of(body, documents, **sections):
    values = {"model": {"body": str(body)}, "corpus": {"sources": [str(documents)]}, "run": {"threads": 1, "device": "cpu"}}
    return build_recipe({**values, **sections})


def indexed(body, documents, run):
    """A run of documents that the body's embedder finds as it is."""
    with Progress(quiet=True) as progress:
        run_recipe(recipe_of(body, documents), run, stages=("corpus", "pretrain"), progress=progress)
    return open_run(run)


@pytest.fixture
def float32(monkeypatch):
    """A processor that does not multiply bfloat16."""
    monkeypatch.setattr("realm.models.bodies.body.has_bf16", lambda device: False)


@pytest.mark.usefixtures("float32")
def test_documents_are_searched_at_once_by_the_body_as_it_is(body, documents, tmp_path):
    """Vectors of the index are the published embedder's, and the words are its tokenizer's."""
    run = tmp_path / "run"
    opened = indexed(body, documents, run)
    assert opened.inputs.store.tokenizer.same_wordpieces(TextTokenizer.load(body))
    published, rows = RealmModel.from_pretrained(body).embedder, list(range(len(PLACES)))
    with torch.inference_mode():
        vectors = published(opened.inputs.blocks(rows))
    assert np.allclose(opened.generation.snapshot.vectors, vectors.numpy(), atol=1e-6)
    assert opened.search(TEXTS[3].split(".")[1], 3)[0].score <= 20.0 + 1e-4  # a cosine times the learned scale
    assert main(["index", "search", str(run), "old bridges", "--k", "2", "--json"]) == 0


def test_an_export_is_the_published_embedder_again(body, documents, tmp_path):
    """A sentence-transformers directory in, the same out: modules, pooling, tokenizer and every bit of the body's weights."""
    run, out = tmp_path / "run", tmp_path / "out"
    indexed(body, documents, run)
    assert main(["export", str(run), "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == {"embedder"}
    exported = out / "embedder"
    kinds = [[(module["path"], module["type"]) for module in json.loads((at / "modules.json").read_text())] for at in (body, exported)]
    assert kinds[0] == kinds[1]
    pooling = json.loads((exported / "1_Pooling" / "config.json").read_text())
    assert pooling == {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    before, after = (load_file(at / "model.safetensors") for at in (body, exported))
    assert {name for name in before if not name.startswith("pooler.")} == set(after)
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())
    assert str(body) not in (exported / "config.json").read_text()  # nothing of this machine is published
    assert TextTokenizer.load(exported).same_wordpieces(TextTokenizer.load(body))
    inputs = open_run(run).inputs
    with torch.inference_mode():
        vectors = [RealmModel.from_pretrained(at).embedder(inputs.blocks([0, 1])) for at in (body, exported)]
    assert torch.equal(*vectors)


def test_a_run_without_pre_training_learns_questions(body, documents, tmp_path):
    """No step of pre-training: fine-tuning starts from the body, its scale and null offset included, and answers."""
    questions = [{"id": p, "question": f"What is the river of {p} called?", "answers": [f"Branta {n}"]} for n, p in enumerate(PLACES)]
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(q) + "\n" for q in questions))
    recipe = recipe_of(body, documents, finetune={"train": str(tmp_path / "qa.jsonl"), "steps": 3, "batch": 4, "warmup": 0})
    with Progress() as progress:
        done = run_recipe(recipe, tmp_path / "run", stages=None, progress=progress)
    assert any("from_ict is false" in reason for reason in done["skipped"])
    opened = open_run(tmp_path / "run")
    tuned = opened.networks.finetuned
    assert tuned is not None and tuned.embedder.log_scale is not None and tuned.reader.spec.span_hidden == 256
    words = [network.body.model.get_input_embeddings().weight for network in (tuned.embedder, tuned.reader)]
    before = RealmModel.from_pretrained(body).embedder.body.model.get_input_embeddings().weight
    assert all(torch.equal(table, before) for table in words)  # the recipe leaves them as they are
    assert not torch.equal(tuned.embedder.log_scale, torch.tensor(math.log(20.0)))
    assert opened.answerer.answer(["What is the river of Oslo called?"])[0].evidence
    assert set(export_run(tmp_path / "run", tmp_path / "out")["forms"]) == {"embedder", "questions"}
    exported, tensors = tuned.embedder.body.model.state_dict(), load_file(tmp_path / "out" / "questions" / "model.safetensors")
    assert set(exported) == set(tensors) and all(torch.equal(tensors[name], tensor) for name, tensor in exported.items())


def taught(body, documents, out, **model):
    questions = [{"id": p, "question": f"What is the river of {p} called?", "answers": [f"Branta {n}"]} for n, p in enumerate(PLACES)]
    (out.parent / "qa.jsonl").write_text("".join(json.dumps(q | {"positive_ids": [q["id"]]}) + "\n" for q in questions))
    named = {"train": str(out.parent / "qa.jsonl"), "dev": str(out.parent / "qa.jsonl")}
    sections = {"finetune": {**named, "steps": 3, "batch": 4, "warmup": 0, "presence": 1.0, "publish": "last", "retriever_rate": 0.0}}
    with Progress(quiet=True) as progress:
        run_recipe(recipe_of(body, documents, **sections, **model), out, stages=None, progress=progress)
    return out


def released(name, monkeypatch, *arguments):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "released")
    script = importlib.import_module(name)
    monkeypatch.setattr("sys.argv", [f"{name}.py", *map(str, arguments)])
    return script


def test_fine_tuned_runs_are_shipped_as_what_they_changed(body, documents, tmp_path, monkeypatch):
    """released/ship.py: the reader and the published embedder for both sides in 8 bits; twice the same bytes; a start for other runs."""
    first = taught(body, documents, tmp_path / "first")
    goes_on = {"pretrain": {"steps": 0, "from_ict": False, "from_warm": False}}
    second = taught(first / "stages" / "finetune", documents, tmp_path / "second", **goes_on)
    facts = {"read": {"qa.jsonl": {"sha256": "0" * 64, "licence": "CC0", "taken": 12}}, "words_in_a_row": 8, "left_out_of": ["x"]}
    (tmp_path / "data.json").write_text(json.dumps(facts))
    out = tmp_path / "shipped"
    ship = released("ship", monkeypatch, first, second, "--data", tmp_path, "--out", out)
    ship.main()
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "data.json").write_bytes(files["data.json"])
    shutil.rmtree(out)
    ship.main()
    assert files == {path.name: path.read_bytes() for path in out.iterdir()}, "bit for bit"
    assert {"README.md", "centred.safetensors", "config.json", "data.json", "model.safetensors", "tokenizer.json"} <= set(files)
    card = files["README.md"].decode()
    assert "| qa.jsonl | CC0 | 12 |" in card and "paragraphs: 12 of 12 in 3 steps, then 12 of 12 in 3 steps" in card
    released("ship", monkeypatch, second, "--data", tmp_path / "before", "--out", tmp_path / "later").main()
    assert card.count("12 in 3 steps") + 1 == (tmp_path / "later" / "README.md").read_text("utf-8").count("12 in 3 steps")
    assert not any("reader.body.model.embeddings.word" in name for name in load_file(out / "model.safetensors"))
    tuned, shipped = open_run(second), RealmModel.from_pretrained(out)
    assert shipped.reader.spec.pointer and shipped.reader.spec.taught
    fitted = tuned.networks.reader.confidence
    assert fitted is not None and (shipped.reader.spec.slope, shipped.reader.spec.bias) == (fitted.slope, fitted.bias)
    with Progress(quiet=True) as progress:
        run_recipe(recipe_of(out, documents, **goes_on), tmp_path / "other", stages=("corpus", "pretrain"), progress=progress)
    opened = open_run(tmp_path / "other")
    answers = [run.answerer.answer([f"What is the river of {PLACES[0]} called?"])[0] for run in (tuned, opened)]
    assert answers[0].p == pytest.approx(answers[1].p, rel=0.1) and answers[1].confidence is not None and not opened.without_questions


def test_sentences_of_a_manual_become_questions_that_they_answer(tmp_path, monkeypatch):
    """released/manuals.py."""
    manuals = released("manuals", monkeypatch)
    (tmp_path / "manual.txt").write_text(MANUAL)
    build_corpus([tmp_path / "manual.txt"], tmp_path / "corpus", vocab_size=300)
    store = BlockStore.open(tmp_path / "corpus")
    made = [one for row in range(len(store)) for one in manuals.block_questions(store, row, {"print"}, random.Random(0))]
    assert {kind: set(question.answers) for kind, question in made} == ANSWERS
    assert all(question.context[start:end] in question.answers for _, question in made for start, end in question.places)
    assert "Why can the log not be read?" in [question.text for _, question in made]


def test_pre_training_starts_the_null_document_at_its_share(body, documents, tmp_path):
    steps = {"steps": 2, "batch": 4, "candidates": 4, "force": True, "refresh": "inline", "held_out": 0}
    with Progress() as progress:
        run_recipe(recipe_of(body, documents, pretrain=steps, **FEW_STEPS), tmp_path / "run", stages=None, progress=progress)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    shares = [row["p_null"] for row in rows if "p_null" in row]
    assert shares and all(0.05 < share < 0.6 for share in shares)
    offset = open_run(tmp_path / "run").networks.pretrained.embedder.null_offset
    assert offset is not None and float(offset.detach()) != 0.0


def test_other_words_are_refused(body, documents, tmp_path):
    """A corpus of another vocabulary would give every word a foreign embedding."""
    other = tmp_path / "other"
    other.mkdir()
    train_wordpiece(["quite other words in here", *PLACES], 250).save(other)
    recipe = recipe_of(body, documents, corpus={"sources": [str(documents)], "tokenizer": str(other)})
    with Progress() as progress, pytest.raises(ConfigError, match="vocabulary is not the corpus's") as caught:
        run_recipe(recipe, tmp_path / "run", stages=None, progress=progress)
    assert "leave corpus.tokenizer empty" in str(caught.value)


def test_blocks_longer_than_the_body_reads_are_refused(body, documents, tmp_path):
    recipe = recipe_of(body, documents, corpus={"sources": [str(documents)], "block_length": 500})
    with Progress() as progress, pytest.raises(ConfigError, match="reads 512 wordpieces, and a question with a block has up to 563"):
        run_recipe(recipe, tmp_path / "run", stages=None, progress=progress)


def test_rates_suit_published_weights_unless_the_recipe_says_otherwise(tmp_path):
    nothing, minilm = build_recipe({}), build_recipe({"model": {"body": "minilm"}})
    assert minilm.finetune.lr == 2e-4 and minilm.finetune.lr * minilm.finetune.retriever_rate <= 2.1e-5
    assert minilm.finetune.rename_rate == 0.0 and minilm.model.freeze_words and not minilm.pretrain.steps
    assert nothing.finetune.lr == 5e-4 and nothing.finetune.rename_rate == 0.5 and not nothing.model.freeze_words
    assert build_recipe({"model": {"body": "some/body"}}).finetune.lr == 5e-5
    (tmp_path / "mine.toml").write_text('[model]\nbody = "minilm"\n[finetune]\nlr = 1e-4\n')
    assert load_recipe(tmp_path / "mine.toml").finetune.lr == 1e-4


def test_a_stage_of_another_run_is_given_what_suited_that_runs_body(tmp_path):
    """As often as one run starts from another; what began from nothing, or says nothing of itself, is taken as it was."""
    bodies = {"first": "minilm", "second": tmp_path / "first", "nothing": "", "silent": None, "circle": tmp_path / "circle"}
    for name, body in bodies.items():
        stage = tmp_path / name / "stages" / "finetune"
        stage.mkdir(parents=True)
        (stage / "config.json").write_text('{"library": "realm"}')
        if body is not None:
            named = body / "stages" / "finetune" if isinstance(body, Path) else body
            (tmp_path / name / "config.toml").write_text(dump_recipe(build_recipe({"model": {"body": str(named)}})))
            (tmp_path / name / "run.json").write_text("{}")

    def rates(name):
        recipe = build_recipe({"model": {"body": str(tmp_path / name / "stages" / "finetune")}})
        return recipe.finetune.lr, recipe.corpus.block_length, recipe.model.projection, recipe.pretrain.from_ict

    assert rates("first") == rates("second") == (2e-4, 160, 0, False)
    nothing = build_recipe({})
    for name in ("nothing", "silent", "circle"):
        assert rates(name) == (nothing.finetune.lr, nothing.corpus.block_length, nothing.model.projection, True)


def test_a_pointer_over_a_body_needs_two_lines():
    """The reader learns, then the queries' side; what the recipe says wins, and other sentences stand in no block."""
    two = {"model": {"body": "minilm"}, "pretrain": {"fill": "pointer", "steps": 1000}}
    found = build_recipe(two).pretrain
    assert (found.masking, found.exclude, found.own_block, found.retriever_rate, found.lr) == ("recurring", "document", 0.6, 0.1, 2e-4)
    assert (found.reader_first, found.reader_stays(700), found.queries_alone) == (700, True, True)
    assert not build_recipe({**two, "pretrain": {**two["pretrain"], "steps": 400}}).pretrain.queries_alone, "too few for a second phase"
    assert not found.from_warm and found.refresh == "inline" and found.publish == "better"
    taught = build_recipe({**two, "model": {"body": "realm-minilm-en"}}).pretrain
    assert (taught.reader_first, taught.queries_alone, taught.masking) == (1, True, "recurring"), "questions have taught its reader"
    assert build_recipe({"model": {"body": "realm-minilm-en"}}).pretrain.reader_first == 0
    other = build_recipe({**two, "pretrain": {**two["pretrain"], "masking": "salient", "sentences": ["news.jsonl"]}}).pretrain
    assert (other.masking, other.own_block, other.questions) == ("salient", 0.0, 0.5)
    assert build_recipe({"pretrain": {"fill": "pointer"}}).pretrain.own_block == 0.0, "from nothing nobody reads yet"


def test_the_body_is_counted_and_not_the_preset(body, documents, tmp_path):
    """Parameters of the networks that a run makes; the width of its index; a body that is not here has the sizes of the table."""
    recipe = recipe_of(body, documents)
    with Progress() as progress:
        run_recipe(recipe, tmp_path / "run", stages=("corpus",), progress=progress)
    made, expected = part_sizes(new_model(open_context(RunPaths(tmp_path / "run"), recipe, lambda *_: None))), meta_model(recipe)
    assert {part: part_sizes(expected)[part] for part in made} == made
    assert expected.embedder.spec.projection == 32
    granite = meta_model(build_recipe({"model": {"body": "granite"}}), 300).encoder.body.spec.config
    assert (granite["num_hidden_layers"], granite["hidden_size"]) == (6, 384)


def test_the_corpus_has_the_bodys_tokens(body, documents, tmp_path):
    with Progress() as progress:
        run_recipe(recipe_of(body, documents), tmp_path / "run", stages=("corpus",), progress=progress)
    store = BlockStore.open(tmp_path / "run" / "corpus")
    assert store.tokenizer.vocab_size == TextTokenizer.load(body).vocab_size and store.manifest.block_length == 160


def test_bfloat16_moves_no_vector_far(body, documents, tmp_path, monkeypatch):
    """On a processor that multiplies it the index of a body is made in bfloat16: cosines with float32's stay above .999."""
    found = []
    for name, half in (("exact", False), ("half", has_bf16("cpu"))):
        monkeypatch.setattr("realm.models.bodies.body.has_bf16", lambda device, half=half: half)
        found.append(np.asarray(indexed(body, documents, tmp_path / name).generation.snapshot.vectors))
    exact, half = found
    assert (exact * half).sum(1).min() > 0.999 and np.array_equal(exact, half) is not has_bf16("cpu")


def test_dimensions_that_cannot_be_had_are_refused(body, documents, tmp_path):
    wide = recipe_of(body, documents, model={"body": str(body), "projection": 8})
    with (
        Progress(quiet=True) as progress,
        pytest.raises(ConfigError, match=r"'model\.projection' is 8, and the body's embeddings have 32"),
    ):
        run_recipe(wide, tmp_path / "wide", stages=("corpus", "pretrain"), progress=progress)
    for values in ({"projection": 0}, {"body": "minilm", "projection": 5}):
        with pytest.raises(ConfigError, match=r"'model\.projection' cannot be"):
            build_recipe({"model": values})
    assert build_recipe({"model": {"body": "minilm"}}).model.projection == 0 and build_recipe({}).model.projection == 128
