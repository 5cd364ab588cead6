"""The model in the package: what it learnt from, that its files can be made again, and that it answers."""

import importlib.util
import json
import lzma
from pathlib import Path

import pytest

from realm.evaluation.questions.loading import load_questions
from realm.evaluation.questions.rows import QuestionOptions
from realm.experiments.atlas import read_atlas
from realm.models.bodies.known import KNOWN_BODIES, WEIGHTS, body_directory
from realm.models.model import RealmModel
from realm.models.runtime.model import RuntimeModel
from realm.storage.files import sha256_file
from realm.text.matching.answers import normalize_answer

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = [known for known in KNOWN_BODIES if (known.shipped / WEIGHTS).is_file()]
MEGABYTES = 40
KEPT = QuestionOptions(id_column="no column", unanswerable=True)


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "released" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def folder(name):
    return ROOT / "src" / "realm" / "released" / name


def prepared(name, data_dir, out):
    module = script(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [f"{name}.py", str(data_dir), "--out", str(out)])
        module.main()
    return out


def in_a_row(text, count=8):
    """Each ``count`` words in a row, and a shorter text as a whole."""
    words = normalize_answer(text).split()
    yield from (" ".join(words[at : at + count]) for at in range(max(1, len(words) - count + 1)))


def asked_of_the_demo():
    return lzma.decompress(script("prepare").ATLAS.read_bytes()).decode("utf-8").splitlines()


@pytest.fixture(scope="module")
def given(tmp_path_factory, data_dir):
    """The data of the reader: SQuAD's training questions with their paragraphs, and other sets."""
    return prepared("prepare", data_dir, tmp_path_factory.mktemp("given"))


@pytest.mark.slow
def test_it_learnt_nothing_that_it_is_tested_on(given, data_dir):
    """All of SQuAD dev, its 2.0 form, its shifts, TyDi dev, NQ's gold passages and covidqa are tests; dev shares no article with train."""
    prepare = script("prepare")
    tested = [question for name in prepare.TESTED for question in load_questions(data_dir / name, KEPT)]
    forbidden = {mark for question in tested for mark in in_a_row(question.text)} | {
        m for text in asked_of_the_demo() for m in in_a_row(text)
    }
    train, dev = (load_questions(given / f"given-{part}.jsonl", KEPT) for part in ("train", "dev"))
    assert len(train) > 110_000 and len(dev) == prepare.DEV
    learnt = [load_questions(given / f"{part}.jsonl", QuestionOptions(unanswerable=True)) for part in ("first", "second")]
    known = {question.text for question in train}
    assert all(question.text in known for part in learnt for question in part)
    assert not {question.id for question in learnt[0]} & {question.id for question in learnt[1]}
    for questions in (train, dev, load_questions(given / "open-train.jsonl"), load_questions(given / "open-dev.jsonl")):
        assert not [question.text for question in questions if forbidden & set(in_a_row(question.text))]
    assert not {question.title.lower() for question in train} & {question.title.lower() for question in dev}
    passages = {mark for question in tested for mark in in_a_row(question.context)}
    texts = {question.context for question in train}
    overlaps = [text for text in texts if len(own := set(in_a_row(text))) > 20 and len(own & passages) > prepare.SHARED * len(own)]
    assert not overlaps
    facts = json.loads((given / "data.json").read_text("utf-8"))
    assert {name: fact["taken"] + sum(fact["left_out"].values()) for name, fact in facts["read"].items()} == {
        name: fact["questions"] for name, fact in facts["read"].items()
    }


def test_written_questions_are_answered_where_they_say_and_none_is_tested(data_dir):
    parts = ("", "-among", "-tempted", "-records", "-docs")
    learnt, held = ([row for of in parts for row in written_rows(name + of)] for name in ("written", "held"))
    asked = [json.loads(line)["question"] for line in (data_dir / "folders" / "questions.jsonl").read_text("utf-8").splitlines()]
    asked += [question.text for name in script("prepare").TESTED for question in load_questions(data_dir / name, KEPT)]
    forbidden = {mark for text in asked for mark in in_a_row(text)}
    assert len(learnt) > 60_000 and not {row["source"] for row in learnt} & {row["source"] for row in held}
    for row in (*learnt, *held):
        assert all(answer in row["context"] for answer in row["answers"]) and not forbidden & set(in_a_row(row["question"]))


def written_rows(name):
    return [json.loads(line) for line in lzma.decompress((ROOT / "released" / f"{name}.jsonl.xz").read_bytes()).splitlines()]


@pytest.mark.slow
def test_the_demos_documents_are_in_none_of_what_it_read(given):
    """Its sentences are made by a grammar of our own: eight of their words in a row stand nowhere else, but those of a city."""
    sentences = {mark for line in read_atlas()["documents.jsonl"].splitlines() for mark in in_a_row(json.loads(line)["text"])}
    texts = {question.context for question in load_questions(given / "given-train.jsonl", KEPT)}
    assert {mark for text in texts for mark in in_a_row(text)} & sentences <= {"new york city is most populous city in"}


@pytest.mark.parametrize("known", SHIPPED, ids=lambda known: known.name)
def test_the_files_that_were_read_lie_here(known, data_dir):
    """What they become, and that no test is in it, is worked out again by the slow tests."""
    read = json.loads((folder(known.name) / "data.json").read_text("utf-8"))["read"]
    public = {name: facts for name, facts in read.items() if "packages" not in facts}  # manuals are where their packages are
    assert len(public) > 4 and all(sha256_file(data_dir / name) == facts["sha256"] for name, facts in public.items())
    assert all(facts["taken"] + sum(facts["left_out"].values()) == facts["questions"] for facts in read.values())


@pytest.mark.slow
@pytest.mark.parametrize("known", SHIPPED, ids=lambda known: known.name)
def test_what_the_card_names_is_what_was_read(known, given):
    stated, found = (json.loads((where / "data.json").read_text("utf-8")) for where in (folder(known.name), given))
    public = {name: facts for name, facts in stated["read"].items() if "packages" not in facts}
    assert public == found["read"] and stated["left_out_of"] == found["left_out_of"] and stated["runs"] and stated["base"] == "minilm"
    card = (folder(known.name) / "README.md").read_text("utf-8")
    assert all(name in card and facts["licence"] in card for name, facts in stated["read"].items())


@pytest.mark.parametrize("known", SHIPPED, ids=lambda known: known.name)
def test_what_is_shipped_is_small_and_is_what_the_table_names(known):
    assert sum(file.stat().st_size for file in list(folder(known.name).iterdir())) < MEGABYTES * 1e6
    assert sha256_file(folder(known.name) / WEIGHTS) == known.sha256
    model, folders = RealmModel.from_pretrained(body_directory(known.name)), folder("").glob("*/config.json")
    assert model.spec.parts == ("embedder", "reader") and model.reader.spec.taught and model.reader.spec.pointer
    assert 0 < model.reader.spec.abstain_below < 1 and not any("_name_or_path" in path.read_text("utf-8") for path in folders)
    read = RuntimeModel(folder(known.name), model.spec, eight_bit=True)
    assert read.embedder.body._baked() and read.reading().body._baked(), f"python released/bake.py {folder(known.name)}"
