"""Documents that are asked directly: indexed once, followed as they change, kept in a cache that can be looked at and emptied."""

import json
import os
import shutil
import time
from contextlib import closing

import pytest

from realm import Realm
from realm.answering.opening import OpenRun, open_run
from realm.cli import main
from realm.cli.asking import parted
from realm.documents.store.blocks import BlockStore
from realm.errors import ConfigError, DataError
from realm.progress import Progress
from realm.runs import cached
from realm.runs.cached import cached_runs, clear_cache, files_of_given, open_cached
from realm.search.publishing import embedding, refresher
from realm.serve.documents import Documents
from realm.serve.serving import Serving
from realm.storage.layout import RunPaths

QUIET = Progress(quiet=True)


@pytest.fixture
def body(tiny_run):
    """Networks that know a vocabulary: any saved model can be a body."""
    return str(tiny_run / "stages" / "pretrain")


@pytest.fixture
def notes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "notes"
    (folder / "sub").mkdir(parents=True)
    (folder / "arvad.txt").write_text("People in Arvad pay with the Tirel. The winters are long.")
    (folder / "sub" / "belmor.md").write_text("# Belmor\n\nThe currency of Belmor is the crown.")
    return folder


@pytest.fixture
def embedded(monkeypatch):
    plain, counts = embedding.embed_corpus, []

    def count(embedder, inputs, rows, *rest, **named):
        counts.append(len(rows))
        return plain(embedder, inputs, rows, *rest, **named)

    monkeypatch.setattr(embedding, "embed_corpus", count)
    return counts


def cached_run(sources, body, progress):
    return open_cached(sources, body, progress).paths.root


def ids(run):
    return set(open_run(run).inputs.store.documents())


def touch(path, text):
    """Write a file whose time is another than before, however fast that was."""
    path.write_text(text)
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 10**9))


def test_documents_are_indexed_once_and_followed(notes, body, embedded):
    run = cached_run([notes], body, QUIET)
    assert ids(run) == {"arvad.txt", "sub/belmor.md"} and sum(embedded) == 2
    assert cached_run([notes], body, QUIET) == run and sum(embedded) == 2 and run.name.startswith("notes-")
    assert not list(run.rglob("*.safetensors")) and not (run / "stages").exists() and not (run / "report.html").exists()
    assert main(["verify", str(run)]) == 0
    (notes / "new.txt").write_text("Novaria has no currency at all.")
    touch(notes / "arvad.txt", "People in Arvad pay with the dollar now.")
    (notes / "sub" / "belmor.md").unlink()
    assert cached_run([notes], body, QUIET) == run and sum(embedded) == 4, "the new and the changed one alone are embedded"
    assert ids(run) == {"arvad.txt", "new.txt"}
    opened = open_run(run)
    assert not opened.unsearchable and "dollar" in opened.search("money in Arvad", 1)[0].text
    touch(notes / "new.txt", "Novaria has no currency at all.")  # another time, the same text
    cached_run([notes], body, QUIET)
    assert sum(embedded) == 4


def test_each_set_of_documents_and_each_body_has_its_own(notes, body, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("Nobody lives in Novaria.")
    both = cached_run([notes, other], body, QUIET)
    assert cached_run([other, notes, other], body, QUIET) == both != cached_run([notes], body, QUIET)
    assert ids(both) == {"arvad.txt", "sub/belmor.md", "other.txt"}
    copy = shutil.copytree(body, tmp_path / "body")
    of_copy = cached_run([notes], str(copy), QUIET)
    assert of_copy not in (both, cached_run([notes], body, QUIET))
    os.utime(copy / "model.safetensors", ns=(0, 1))  # trained again
    assert cached_run([notes], str(copy), QUIET) != of_copy and len(cached_runs()) == 4


def test_files_that_came_or_went_since_they_were_asked_are_said_so(notes, body, capsys):
    cached_run([notes], body, QUIET)
    (notes / "new.txt").write_text("Novaria has no currency at all.")
    assert main(["cache", "info", str(notes)]) == 0
    assert f"{notes / 'new.txt'}: not read yet" in capsys.readouterr().out
    notes.rename(notes.with_name("moved"))
    assert main(["cache", "info", str(notes)]) == 0 and f"{notes}: deleted or moved" in capsys.readouterr().out


def test_a_wrong_k_is_told_before_anything_is_indexed(notes, body, capsys):
    assert main(["ask", str(notes), "Who pays with the Tirel?", "--body", body, "--k", "0"]) == 2
    assert "--k 0: too few. Give at least 1." in capsys.readouterr().err and cached_runs() == []


@pytest.mark.parametrize("changed", [False, True])
def test_what_was_killed_half_way_is_gone_on_with(notes, body, monkeypatch, changed):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(refresher, "index_documents", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        cached_run([notes], body, QUIET)
    assert cached_runs() == []
    if changed:
        (notes / "arvad.txt").write_text("Arvad is no more, and nobody pays anything there.")
    run = cached_run([notes], body, QUIET)
    (hit,) = open_run(run).search("Arvad", 2)[:1]
    assert ids(run) == {"arvad.txt", "sub/belmor.md"} and ("no more" in hit.text or hit.doc_id != "arvad.txt" or not changed)


def test_killed_between_corpus_and_index(notes, body, monkeypatch):
    run = cached_run([notes], body, QUIET)
    before = json.loads(RunPaths(run).wrapped.read_text())["state"]
    (notes / "new.txt").write_text("Novaria has no currency at all.")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(OpenRun, "with_added", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        cached_run([notes], body, QUIET)
    assert open_run(run).unsearchable == 1
    with monkeypatch.context() as patch:
        patch.setattr(cached, "stat_digest", lambda _: before)  # the file is gone again, and all is as it was
        (notes / "new.txt").unlink()
        cached_run([notes], body, QUIET)
    assert ids(run) == {"arvad.txt", "sub/belmor.md"}
    (notes / "new.txt").write_text("Novaria has no currency at all.")
    cached_run([notes], body, QUIET)
    assert open_run(run).unsearchable == 0 and "new.txt" in ids(run)


def test_what_was_read_is_said_once_and_listed(notes, body, capsys):
    (notes / "a.jar").write_bytes(b"PK\3\4\0")
    (notes / "core").write_bytes(bytes(9))
    (notes / "half.jsonl").write_text('{"id": 1, "text": "One."}\n{\n')
    (notes / "broken.xml").write_text("<a>")
    line = "read 3 of 6 files; not read: 1 .jar, 1 damaged file, 1 without an ending; left out of those read: 1 bad json"
    for said in (True, False):
        assert main(["ask", str(notes), str(notes / "sub"), "Who pays with the Tirel?", "--body", body]) == 0
        assert (f"note: {line} (list: realm cache info FOLDER)" in capsys.readouterr().err) is said
    assert main(["cache", "info", str(notes), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    reasons = {file["path"].rpartition("/")[2]: file["reason"] for file in run["not_read"]}
    assert (run["files"], run["read"], {*reasons}) == (6, 3, {"a.jar", "core", "broken.xml"})
    assert run["left_out"] == [{"path": str(notes / "half.jsonl"), "line": 2, "reason": "bad json"}]
    assert main(["cache", "info", str(notes)]) == 0
    said = capsys.readouterr().out
    assert f"{notes / 'a.jar'}: no text and of no known kind" in said and f"{notes / 'half.jsonl'}, line 2: bad json" in said
    assert main(["corpus", "info", str(cached_run([notes], body, QUIET) / "corpus"), "--json"]) == 0
    assert {row["reason"] for row in json.loads(capsys.readouterr().out)["not_read"]} == {"damaged file", "no text and of no known kind"}


def test_documents_are_followed_while_they_are_served(notes, body, monkeypatch):
    run = cached_run([notes], body, QUIET)
    before = (file := notes / "arvad.txt").stat()
    assert not cached.follow_documents(run)
    file.write_text("People in Arvad pay with the Lirra. The winters are long.")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cached.follow_documents(run) and "Lirra" in str(BlockStore.open(run / "corpus").block(2)) and not cached.follow_documents(run)
    (notes / "sub" / "belmor.md").unlink()
    (notes / "sub" / "a.jar").write_bytes(b"PK\3\4\0")
    (notes / "new.txt").write_text("Novaria has no currency.")
    with closing(Serving(run, documents=cached.follow_documents)) as serving:
        for _ in range(200):
            if set(serving.current.documents) == {"arvad.txt", "new.txt"}:
                break
            time.sleep(0.1)
        assert set(serving.current.documents) == {"arvad.txt", "new.txt"}
        assert Documents(serving).page(0, 1).not_read == [{"path": "sub/a.jar", "reason": "no text and of no known kind"}]


def test_the_rows_of_one_table_are_read_as_in_a_folder(tmp_path, body):
    (table := tmp_path / "a.csv").write_text("name,phone\nAnn,0151\n")
    run = cached_run([table], body, QUIET)
    assert open_run(run).inputs.store.block(0).text == "name: Ann\nphone: 0151"
    touch(table, "name,phone\nBob,0152\n")
    assert cached_run([table], body, QUIET) == run and "Bob" in open_run(run).search("phone", 1)[0].text


def test_asked_by_name(notes, body, capsys):
    """What has no reader shows the nearest blocks; fewer blocks than are read by default are no error."""
    assert main(["ask", str(notes), "Who pays with the Tirel?", "--body", body, "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out.splitlines()[-1])
    assert found["text"] == "Who pays with the Tirel?" and len(found["results"]) == 2 and "here are the nearest" in said.err
    assert "cannot teach" not in said.err
    assert main(["ask", str(notes / "arvad.txt"), "Who pays with the Tirel?", "--body", body]) == 0
    assert "1. arvad (arvad.txt)" in capsys.readouterr().out


def test_a_fine_tuned_model_answers_from_other_documents(notes, tiny_run, capsys):
    assert main(["ask", str(notes), "Who pays with the Tirel?", "--body", str(tiny_run / "stages" / "finetune"), "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out.splitlines()[-1])
    assert found["answer"] and {e["doc_id"] for e in found["evidence"]} == {"arvad.txt", "sub/belmor.md"}
    assert all(e["text"][e["start"] : e["end"]] == e["answer"] for e in found["evidence"]) and "no question has taught" not in said.err


@pytest.mark.parametrize(("asked", "problem"), [
    ([], "the following arguments are required|no run and no documents are named"),
    (["{notes}", "gone", "Who?"], "gone: no such run, file or folder"),
    (["{run}", "{notes}", "Who?"], "is a run and cannot be mixed with documents"),
    (["gone", "Who?"], "gone: no such run, file or folder"),
    (["{empty}", "Who?"], r"no \.txt, .* file, .*in this folder"),
])  # fmt: skip
def test_what_cannot_be_asked(notes, tiny_run, tmp_path, asked, problem, capsys):
    import re

    (tmp_path / "empty").mkdir()
    places = {"notes": notes, "run": tiny_run, "empty": tmp_path / "empty"}
    assert main(["ask", *(word.format(**places) for word in asked)]) == 2
    said = capsys.readouterr().err
    assert re.search(problem, said) and "Traceback" not in said, said
    assert cached_runs() == []


def test_a_reader_that_is_not_there_is_told_before_anything_is_indexed(notes, body, embedded, capsys):
    for verb in (["ask", str(notes), "Who?"], ["serve", str(notes)]):
        assert main([*verb, "--body", body, "--reader", body]) == 2
        assert "has no reader. Name a model with one" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="has no reader"):
        Realm.from_documents(notes, body=body, reader=body)
    assert not embedded


def test_the_question_is_the_last_word_unless_it_is_a_file(notes):
    assert parted((str(notes), "Who?")) == ([notes], "Who?")
    assert parted((str(notes),)) == ([notes], None)
    assert parted((str(notes), str(notes / "arvad.txt"))) == ([notes, notes / "arvad.txt"], None)


def test_the_cache_is_shown_and_emptied(notes, body, capsys):
    first, second = cached_run([notes], body, QUIET), cached_run([notes / "arvad.txt"], body, QUIET)
    assert main(["cache", "info", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [run["directory"] for run in shown["runs"]] == [str(second), str(first)]
    assert [run["documents"] for run in shown["runs"]] == [1, 2] and all(run["bytes"] > 0 for run in shown["runs"])
    assert main(["cache", "info"]) == 0 and "2 documents, 2 blocks" in capsys.readouterr().out
    assert clear_cache([notes])["removed"] == 1 and not first.exists() and second.exists() and (notes / "arvad.txt").exists()
    assert main(["cache", "clear"]) == 0 and not second.exists() and cached_runs() == []


def test_a_damaged_cached_run_names_its_cure(notes, body, capsys):
    run = cached_run([notes], body, QUIET)
    vectors = run / "index" / "000001" / "vectors-00000.npy"
    data = bytearray(vectors.read_bytes())
    data[-1] ^= 64
    vectors.write_bytes(data)
    assert main(["verify", str(run)]) == 2 and "realm cache clear" in capsys.readouterr().out
    clear_cache([notes])
    again = cached_run([notes], body, QUIET)
    assert main(["verify", str(again)]) == 0 and ids(again) == {"arvad.txt", "sub/belmor.md"}


def test_a_cached_run_that_lost_what_is_current_is_repaired(notes, body, capsys):
    """It was to be cured by realm index build, which said the same again; verify found nothing."""
    run = cached_run([notes], body, QUIET)
    (run / "index" / "CURRENT").unlink()
    assert main(["ask", str(notes), "Arvad?", "--body", body]) == 2 and "realm cache clear" in capsys.readouterr().err
    assert main(["verify", str(run)]) == 2 and main(["repair", str(run), "--yes"]) == 0
    assert main(["verify", str(run)]) == 0 and ids(cached_run([notes], body, QUIET)) == {"arvad.txt", "sub/belmor.md"}


@pytest.mark.parametrize("name", ["config.toml", "run.json"])
def test_what_another_run_wrote_is_not_taken_for_a_cached_one_s(notes, body, tiny_run, capsys, name):
    """The recipe of another run was opened, and its body looked for in the working directory."""
    run = cached_run([notes], body, QUIET)
    shutil.copyfile(tiny_run / name, run / name)
    assert main(["ask", str(notes), "Arvad?", "--body", body]) == 2
    assert f"{run / 'config.toml'}: changed since it was written" in capsys.readouterr().err
    assert main(["verify", str(run)]) == 2 and "realm cache clear" in capsys.readouterr().out
    (run / name).unlink()
    assert main(["verify", str(run)]) == 2 and "realm cache clear" in capsys.readouterr().out


def test_a_folder_with_pictures_works_from_the_first_command(notes, body, embedded, monkeypatch, capsys):
    """A page shows a picture, and its caption answers; a picture that changed is embedded anew; what the extra would bring is said once."""
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr("realm.documents.pages.pictures.recognises", lambda: False)
    monkeypatch.setattr("realm.documents.pages.pictures.recognised", lambda data, seconds: "")
    image.new("RGB", (90, 90), "red").save(notes / "chart.png")
    (notes / "novaria.md").write_text("# Novaria\n\nNobody lives there.\n\n![The harbour of Novaria in winter](chart.png)\n")
    for said in (True, False):
        assert main(["ask", str(notes), "What is in Novaria in winter?", "--body", body, "--json", "--k", "4"]) == 0
        out, err = capsys.readouterr()
        assert ("pip install 'realm-qa[ocr]' reads it" in err) is said
    shown = {evidence["doc_id"]: evidence["media"] for evidence in json.loads(out.splitlines()[-1])["results"]}
    assert shown["novaria.md#picture=1"] == str(notes.resolve() / "chart.png") and shown["novaria.md"] == "" and len(shown) == 4
    assert main(["ask", str(notes), "What is in Novaria in winter?", "--body", body, "--k", "4"]) == 0
    assert f"picture: {notes.resolve() / 'chart.png'}" in capsys.readouterr().out.replace("\n", "")
    before = sum(embedded)
    image.new("RGB", (90, 90), "blue").save(notes / "chart.png")
    os.utime(notes / "chart.png", ns=(0, 1))
    cached_run([notes], body, QUIET)
    assert sum(embedded) == before + 1


@pytest.mark.parametrize("words", [
    ("ask", "RUN", "Who?"), ("ask", "RUN"), ("ask", "RUN", "NOTES", "Who?"),
    ("index", "build", "RUN"), ("corpus", "build", "RUN", "--out", "OUT"), ("serve", "RUN", "--port", "0"),
], ids=" ".join)  # fmt: skip
def test_a_run_that_lost_its_recipe_is_no_folder_of_documents(words, tiny_run, notes, tmp_path, capsys):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    (run / "config.toml").unlink()
    (run / "notes.txt").write_text("Nobody should read this.")
    named = {"RUN": str(run), "NOTES": str(notes), "OUT": str(tmp_path / "out")}
    assert main([named.get(word, word) for word in words]) == 2
    said = capsys.readouterr().err
    assert [str(run) in line for line in said.splitlines() if line.startswith("error: ")] == [True] and "Traceback" not in said
    assert not cached.cache_directory().exists()
    with pytest.raises(ConfigError, match="a run, not documents"):
        Realm.from_documents(run)


class Table:
    """A frame of another library: it speaks Arrow, and nothing else."""

    def __init__(self, columns):
        import pyarrow

        self._table = pyarrow.table(columns)

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(("rows", "lines"), [
    ([{"id": 1, "text": "Ä"}], [{"id": 1, "text": "Ä"}]),
    (({"text": str(n)} for n in range(2)), [{"text": "0"}, {"text": "1"}]),
    ([{"text": "a", "title": None, "score": float("nan")}], [{"text": "a"}]),
    (Table({"text": ["a", "b"], "title": ["A", None]}), [{"text": "a", "title": "A"}, {"text": "b"}]),
    (Table({"question": ["q"], "answers": [["x", "y"]]}), [{"question": "q", "answers": ["x", "y"]}]),
    ([], []),
])  # fmt: skip
def test_rows_become_lines(rows, lines, tmp_path):
    (path,) = files_of_given([rows], tmp_path / "made")
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == lines
    assert path.parent == tmp_path / "made" and path.suffix == ".jsonl"
    first, second, other, named = files_of_given([[{"text": "a"}], iter([{"text": "a"}]), [{"text": "b"}], str(tmp_path)], tmp_path)
    assert first == second != other and named == tmp_path, "the same rows are one file"


@pytest.mark.parametrize(("given", "problem"), [
    (["a text"], "row 1 is no dictionary"), (5, "row 1 is no dictionary"), ([{"text": "a"}, 3], "row 2 is no dictionary"),
    ("nowhere", "no such file or folder"),
])  # fmt: skip
def test_what_is_neither(given, problem, tmp_path):
    with pytest.raises(DataError, match=problem):
        files_of_given([given], tmp_path)
