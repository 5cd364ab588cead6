"""The model in the package: what it learnt from, that its files can be made again, and that it answers."""

import importlib.util
import json
from pathlib import Path

import pytest

from realm.evaluation.questions.loading import load_questions
from realm.evaluation.questions.rows import QuestionOptions
from realm.experiments.world.atlas import build_atlas
from realm.models.bodies.known import DIFFERENCE, KNOWN_BODIES, body_directory, local_directory
from realm.models.model import RealmModel
from realm.storage.files import sha256_file
from realm.text.files import json_lines
from realm.text.matching.answers import normalize_answer

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = [known for known in KNOWN_BODIES if known.base]
MEGABYTES = 16


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


@pytest.fixture(scope="module")
def data(tmp_path_factory, data_dir):
    return prepared("prepare", data_dir, tmp_path_factory.mktemp("data"))


def in_a_row(text, count=8):
    """Each ``count`` words in a row, and a shorter text as a whole."""
    words = normalize_answer(text).split()
    yield from (" ".join(words[at : at + count]) for at in range(max(1, len(words) - count + 1)))


def asked_of_the_demo():
    return [str(question["question"]) for part in build_atlas().questions.values() for question in part]


def test_it_learnt_nothing_that_it_is_tested_on(data, data_dir):
    """No test or dev question, no question of the demo, and no paragraph that a SQuAD dev question was asked about."""
    prepare = script("prepare")
    tests = [
        path for path in data_dir.rglob("*.jsonl.xz") if path.parent.name in ("squad", "nq_open", "webquestions", "curatedtrec", "covidqa")
    ]
    tested = [path for path in tests if path.name.startswith(("qa_", "dev", "test", "efficientqa")) and path.name != "qa_train.jsonl.xz"]
    tested = [path for path in tested if "gold_passages" not in path.name]  # questions of dev_visible, which is looked at
    named = {data_dir / name for name in prepare.TESTED}
    assert set(tested) <= named, "each test and dev half is looked at"
    forbidden = {mark for path in sorted(named) for question in load_questions(path) for mark in in_a_row(question.text)}
    forbidden |= {mark for text in asked_of_the_demo() for mark in in_a_row(text)}
    for name in ("train", "dev"):
        questions = load_questions(data / f"{name}.jsonl")
        assert questions and not [q.text for q in questions if forbidden & set(in_a_row(q.text))]
    read = {str(row["id"]) for _, row in json_lines(data / "paragraphs.jsonl", "")}
    dev = {document for question in load_questions(data_dir / "squad" / "qa_dev.jsonl.xz") for document in question.positive_ids}
    assert read and dev and not read & dev


@pytest.fixture(scope="module")
def given(tmp_path_factory, data_dir):
    """The data of the next reader: all of SQuAD's training questions with their paragraphs, and other sets."""
    return prepared("prepare_reader", data_dir, tmp_path_factory.mktemp("given"))


def test_the_next_reader_learns_nothing_that_it_is_tested_on(given, data_dir):
    """All of SQuAD dev, its 2.0 form, its shifts, TyDi dev, NQ's gold passages and covidqa are tests; dev shares no article with train."""
    prepare, keep = script("prepare_reader"), QuestionOptions(id_column="no column", unanswerable=True)
    tested = [question for name in prepare.TESTED for question in load_questions(data_dir / name, keep)]
    forbidden = {mark for question in tested for mark in in_a_row(question.text)} | {
        m for text in asked_of_the_demo() for m in in_a_row(text)
    }
    train, dev = (load_questions(given / f"given-{part}.jsonl", keep) for part in ("train", "dev"))
    assert len(train) > 110_000 and len(dev) == prepare.DEV
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


def test_the_demos_documents_are_in_none_of_what_it_read(data, data_dir):
    """Its sentences are made by a grammar of our own: eight of their words in a row stand nowhere else."""
    sentences = {mark for document in build_atlas().documents for mark in in_a_row(str(document["text"]))}
    for path in (data / "paragraphs.jsonl", data_dir / "corpus" / "2wiki_paragraphs.jsonl.xz"):
        assert not [mark for _, row in json_lines(path, "") for mark in in_a_row(str(row["text"])) if mark in sentences]


@pytest.mark.parametrize("known", SHIPPED, ids=lambda known: known.name)
def test_what_the_card_names_is_what_was_read(known, data):
    stated, found = (json.loads((where / "data.json").read_text("utf-8")) for where in (folder(known.name), data))
    more, runs = stated.pop("more"), stated.pop("runs")
    assert stated == found and len(runs) == 3
    stated["read"] |= more["read"]
    card = (folder(known.name) / "README.md").read_text("utf-8")
    assert all(name in card and facts["licence"] in card for name, facts in stated["read"].items())


@pytest.mark.parametrize("known", SHIPPED, ids=lambda known: known.name)
def test_the_questions_of_its_second_run_are_tested_nowhere_either(known, data, data_dir, tmp_path, monkeypatch):
    """The pairs of questions and sentences, chosen once more: the documents made of them are those that the card's digest names."""
    monkeypatch.syspath_prepend(ROOT / "released")
    label = script("label")
    pairs = list(label.pairs(data_dir))
    tested = [question for name in script("prepare").TESTED for question in load_questions(data_dir / name)]
    forbidden = {mark for question in tested for mark in in_a_row(question.text)}
    forbidden |= {mark for text in asked_of_the_demo() for mark in in_a_row(text)}
    assert pairs and not [pair for pair in pairs if forbidden & set(in_a_row(pair.question))]
    label.write_paragraphs(tmp_path, data, label.in_documents(pairs, 0))
    more = json.loads((folder(known.name) / "data.json").read_text("utf-8"))["more"]
    assert sha256_file(tmp_path / "paragraphs.jsonl") == more["sha256"]["paragraphs.jsonl"]


@pytest.mark.parametrize("known", SHIPPED, ids=lambda known: known.name)
def test_what_is_shipped_is_small_and_is_what_the_table_names(known):
    assert sum(file.stat().st_size for file in list(folder(known.name).iterdir())) < MEGABYTES * 1e6
    assert sha256_file(folder(known.name) / DIFFERENCE) == known.sha256
    if local_directory(known) is None:
        pytest.skip(f"the base {known.base} is not installed")
    model = RealmModel.from_pretrained(body_directory(known.name))
    assert model.spec.parts == ("embedder", "reader") and model.reader.spec.taught and model.reader.spec.pointer
    assert 0 < model.reader.spec.abstain_below < 1
