"""The Python API: its documentation runs as it stands, and it does what the command line does."""

import asyncio
import dataclasses
import doctest
import json
import shutil
from pathlib import Path

import pytest

from realm import Realm
from realm.answering.writing import Endpoint
from realm.cli import main
from realm.errors import ConfigError, DataError, RealmError, RunError
from realm.models.hub import RUN_FILES
from realm.recipe import WriteConfig, load_recipe
from realm.runs import api
from realm.runs.directory import claim_run
from realm.storage.layout import RunPaths

API = Path(__file__).resolve().parents[2] / "docs" / "api.md"
QUESTION = "What is the currency of Arvad?"


@pytest.fixture
def demo(tiny_run, tmp_path, monkeypatch):
    """A working directory with runs/demo and the files beside it, as the documentation has it, and a cache of its own."""
    shutil.copytree(tiny_run, tmp_path / "runs" / "demo")
    for file in tiny_run.parent.glob("*.jsonl"):
        shutil.copy(file, tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs" / "demo"


def rows_of(file):
    return [json.loads(line) for line in Path(file).read_text("utf-8").splitlines()]


def test_the_documentation_runs(demo):
    results = doctest.testmod(api, raise_on_error=False, extraglobs={"realm": Realm.open(demo), "Realm": Realm, "asyncio": asyncio})
    assert results.attempted > 20 and results.failed == 0
    undocumented = [name for name, member in vars(Realm).items() if name[0] != "_" and ">>> " not in (member.__doc__ or "")]
    assert undocumented == ["abstain_below", "unsearchable"]


def test_changes_by_others_are_seen(demo):
    realm, other = Realm.open(demo), Realm.open(demo)
    before = realm.ask("What is the currency of Arvad?", k=2)
    assert before.versions["corpus"] == 1 and set(before.timings_ms) == {"embed", "search", "read"}
    assert other.add("more.jsonl") == 1 and other.unsearchable == 0
    assert realm.ask("What is the currency of Arvad?", k=13).versions["corpus"] == 2
    assert "Novaria/0" in {hit.doc_id for hit in realm.search("Novaria", k=13)}


def test_public_names_lead_to_what_they_name(demo):
    import realm

    for name in realm.__all__:
        assert getattr(realm, name) is not None
    described = {line.rpartition(".")[2] for line in API.read_text("utf-8").splitlines() if line.startswith("::: ")}
    assert described == set(realm.__all__) - {"DEFAULT_BODY", "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = realm.nothing


def test_explanations_and_bad_calls(demo, tmp_path):
    realm = Realm.open(demo)
    found = realm.explain("The currency of Arvad is the [MASK].", ["Tirel"], k=4, exclude_documents=["Arvad/0"])
    assert len(found.candidates) == 4 and not any(c.text.startswith("People in Arvad") for c in found.candidates)
    for wrong, said in ((lambda: realm.ask("What?", k=0), "k = 0"), (Realm.from_documents, "no documents are named")):
        with pytest.raises(ConfigError, match=said):
            wrong()
    with pytest.raises(RealmError, match="no such"):
        realm.add(tmp_path / "nothing.jsonl")


def test_many_questions_are_answered_as_one_by_one(demo, capsys):
    realm = Realm.open(demo)
    asked = [row["question"] for row in rows_of("qa.jsonl")] * 3
    answers = realm.ask(iter(asked), k=3, progress=True)
    assert [answer.question for answer in answers] == asked and "questions  18/18" in capsys.readouterr().err
    one = realm.ask(asked[0], k=3)
    assert one.answer == answers[0].answer and one.p == pytest.approx(answers[0].p, abs=1e-5)
    assert realm.ask([]) == [] and realm.search([]) == [] and next(realm.stream(iter(asked), k=3)).answer == one.answer
    together, alone = realm.search(asked[:2], k=2), [realm.search(text, k=2) for text in asked[:2]]
    assert [[hit.doc_id for hit in hits] for hits in together] == [[hit.doc_id for hit in hits] for hits in alone]
    assert 0 <= realm.abstain_below <= 1 and {one.abstained == (one.sureness < realm.abstain_below) for one in answers} == {True}
    assert all(answer.abstained for answer in realm.ask(asked[:2], abstain_below=1.0)) and capsys.readouterr().err == ""


def test_command_line_and_python_agree(demo, capsys):
    """One path: the numbers that ``realm ask`` and ``realm eval`` print are those of ``ask`` and ``evaluate``."""
    realm = Realm.open(demo)
    assert main(["ask", str(demo), QUESTION, "--k", "3", "--json"]) == 0
    said, own = json.loads(capsys.readouterr().out), realm.ask(QUESTION, k=3).to_dict()
    assert {**said, "timings_ms": {}} == json.loads(json.dumps({**own, "timings_ms": {}}))
    assert main(["eval", str(demo), "--qa", "qa.jsonl", "--k", "1", "5", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    for given in ("qa.jsonl", rows_of("qa.jsonl")):
        found = realm.evaluate(given, k=(1, 5))
        assert {found[name] is not None and found[name] == said[name] for name in ("n", "em", "f1", "recall", "versions")} == {True}


def test_data_frames_in_and_out(demo):
    pandas = pytest.importorskip("pandas")
    realm = Realm.open(demo)
    assert realm.add(pandas.DataFrame(rows_of("more.jsonl"))) == 1
    hits = pandas.DataFrame(realm.search("Novaria", k=20))
    assert "Novaria/0" in list(hits["doc_id"]) and len(hits) == 13
    answers = pandas.DataFrame(realm.ask(pandas.DataFrame(rows_of("qa.jsonl"))["question"]))
    assert len(answers) == 6 and {"question", "answer", "p", "level"} <= set(answers.columns)
    assert realm.evaluate(pandas.DataFrame(rows_of("qa.jsonl")))["n"] == 6


def test_documents_change(demo):
    realm = Realm.open(demo)
    assert realm.add("more.jsonl", [{"id": "n", "text": "Nobody in Novaria swims."}]) == 2
    assert realm.update([{"id": "n", "text": "Everybody in Novaria swims."}]) == 1
    assert {hit.text for hit in realm.search("Novaria", k=20) if hit.doc_id == "n"} == {"Everybody in Novaria swims."}
    realm.remove("n", "Novaria/0")
    assert {"n", "Novaria/0"}.isdisjoint(hit.doc_id for hit in realm.search("Novaria", k=20))
    with pytest.raises(RunError, match="were changed here"):
        realm.pretrain(out="other")
    for wrong in (lambda: realm.remove("n"), lambda: realm.add([{"id": "n"}]), lambda: realm.update([{"id": "m", "text": "No."}])):
        with pytest.raises(RealmError):
            wrong()


TINY = {"batch": 4, "steps": 2}


def test_a_run_learns(demo):
    """From documents alone, then from questions, twice: a run that has learnt from questions is left as it is."""
    body = str(demo / "stages" / "pretrain")
    keys = {"candidates": 4, "refresh": "inline", "held_out": 0, "from_warm": False, "from_ict": False, "force": True}
    realm = Realm.from_documents("docs.jsonl", body=body)
    assert realm.pretrain(progress=False, **TINY, **keys) is realm
    assert rows_of("runs/docs/metrics.jsonl")[-1]["stage"] == "pretrain"
    realm.finetune(rows_of("qa_train.jsonl"), "qa_dev.jsonl", progress=False, read=3, **TINY)
    assert realm.ask(QUESTION, k=3).evidence and (Path("runs/docs/stages/finetune")).is_dir()
    before = realm.ask(QUESTION, k=3)
    realm.finetune("qa_train.jsonl", out="runs/again", progress=False, read=3, **TINY)
    assert realm.ask(QUESTION, k=3).p != before.p == Realm.load("runs/docs").ask(QUESTION, k=3).p


def writes(demo):
    """A language model in the recipe of the run, which nothing stored depends on."""
    recipe = load_recipe(demo / "config.toml")
    claim_run(RunPaths(demo), dataclasses.replace(recipe, write=WriteConfig("http://a/v1", "small")))


def test_a_recipe_names_the_language_model(demo, monkeypatch, capsys):
    writes(demo)
    sent = []
    monkeypatch.setattr(Endpoint, "complete", lambda self, *_: sent.append(self) or "It is the Tirel [1].")
    asked = ["ask", str(demo), QUESTION, "--k", "2", "--abstain-below", "0", "--json"]
    assert main(asked) == 0 and json.loads(capsys.readouterr().out)["prose"]
    assert Realm.open(demo).ask(QUESTION, k=2, abstain_below=0).prose and sent == [Endpoint("http://a/v1", "small")] * 2
    assert asyncio.run(Realm.open(demo).aask(QUESTION, k=2, abstain_below=0, write="http://b/v1#big")).prose and sent.pop().model == "big"
    assert main([*asked, "--write", "none"]) == 0 and not json.loads(capsys.readouterr().out)["prose"] and len(sent) == 2
    monkeypatch.undo()
    assert main([*asked[:-1], "--write", "http://127.0.0.1:9/v1#small"]) == 0
    said = capsys.readouterr()
    assert "1. " in said.out and "note: the language model at http://127.0.0.1:9/v1 cannot be reached" in said.err, "the answer stands"


def test_what_was_saved_answers_elsewhere(demo, tmp_path, monkeypatch):
    """A directory, or the hub through its own client, offline."""
    writes(demo)  # which a run from the hub does not
    monkeypatch.setattr(Endpoint, "complete", lambda *_: pytest.fail("asked"))
    realm = Realm.open(demo)
    saved = realm.save("saved")
    with pytest.raises(RunError, match="was not changed"):
        realm.save("saved")
    assert not (saved / "checkpoints").exists() and not (saved / "LOCK").exists()
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "hub" / "models--me--run"

    def pushed(directory, name, **how):
        assert name == "me/run" and how["private"] is True
        copied = repository / "snapshots" / commit
        for file in (path for path in directory.rglob("*") if path.is_file()):
            name = file.relative_to(directory)
            if any(name.match(pattern) or str(name).startswith(pattern.rstrip("*")) for pattern in RUN_FILES):
                (copied / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, copied / name)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(commit)
        assert "Realm.from_pretrained" in (directory / "README.md").read_text()
        assert "http://a/v1" not in (directory / "config.toml").read_text() and "http://a/v1" in (saved / "config.toml").read_text()
        return "address"

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    with monkeypatch.context() as down:
        down.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
        with pytest.raises(RunError, match="'me/run' could not be written"):
            realm.push_to_hub("me/run")
    monkeypatch.setattr("realm.models.hub.upload", pushed)
    assert realm.push_to_hub("me/run", private=True) == "address"
    hits = realm.search(QUESTION, k=3)
    for source in (saved, str(saved), "me/run"):
        assert Realm.from_pretrained(source).search(QUESTION, k=3) == hits
    found = Realm.load("saved").ask(QUESTION, k=2, abstain_below=0, write="none")
    assert found.answer and found.answer == Realm.from_pretrained("me/run").ask(QUESTION, k=2, abstain_below=0).answer
    with pytest.raises(RunError, match="no model at 'me/other'"):
        Realm.from_pretrained("me/other")
    with pytest.raises(DataError, match="no such file or folder"):
        Realm.from_documents("nowhere")
