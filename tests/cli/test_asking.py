"""``realm ask`` without a question: a pipe of questions, and a prompt with history."""

import io
import json
import re
import sys
from types import SimpleNamespace

import pytest

from realm.cli import main, show
from realm.cli.asking import _address


class Pipe(io.StringIO):
    """Standard input that is no terminal, with bytes behind it."""

    def __init__(self, data):
        super().__init__()
        self.buffer = io.BytesIO(data)


def test_a_question_a_line(tiny_run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Pipe("What is the currency of Arvad?\n\n  Who lives in Belmor?\r\nWas ist \xff?".encode("latin-1")))
    assert main(["ask", str(tiny_run), "--k", "2"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["question"] for row in found] == ["What is the currency of Arvad?", "Who lives in Belmor?", "Was ist ÿ?"]
    assert all(len(row["evidence"]) == 2 for row in found)
    monkeypatch.setattr(sys, "stdin", Pipe(b"\xe2\x80\x8b\n" + bytes(range(9)) * 9))
    assert main(["ask", str(tiny_run)]) == 2 and "standard input:2: no text" in capsys.readouterr().err


def test_a_prompt_with_history(tiny_run, tmp_path, monkeypatch, capsys):
    readline = pytest.importorskip("readline")
    typed = ["What is the currency of Arvad?", "", KeyboardInterrupt(), "Who lives in Belmor?", EOFError()]

    def enter(prompt):
        line = typed.pop(0)
        if isinstance(line, BaseException):
            raise line
        readline.add_history(line)
        return str(line)

    monkeypatch.setattr("builtins.input", enter)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["ask", str(tiny_run), "--k", "2"]) == 0
    said = capsys.readouterr().out
    assert said.index("What is the currency of Arvad?") < said.index("Who lives in Belmor?") and "p = " in said
    assert "What is the currency of Arvad?" in (tmp_path / "realm" / "questions").read_text()


@pytest.mark.parametrize(("word", "gap", "shown"), [
    ("anchorage", " ", f"… {'anchorage ' * 14}in [[Velm]]{' anchorage' * 15} …"),
    ("山", "", f"…{'山' * 147}in [[Velm]]{'山' * 150}…"),
])  # fmt: skip
def test_an_excerpt_ends_between_words_and_a_document_without_a_title_has_one_name(capsys, word, gap, shown):
    before = (word + gap) * 400 + "in "
    found = {"text": f"{before}Velm{gap}{(word + gap) * 400}", "start": len(before), "end": len(before) + 4, "title": "", "path": []}
    show.answer({"question": "Where?", "answer": "Velm", "p": 0.5, "evidence": [found | {"doc_id": "rows.csv#2", "p_span": 0.5}]})
    assert f"1. rows.csv#2, p = 0.50 {shown} " in " ".join(capsys.readouterr().out.split()) + " "


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize(("terminal", "colours"), [(True, {}), (True, {"NO_COLOR": "1"}), (False, {})])
def test_evidence_opens_its_file_at_the_page(terminal, colours, tiny_run, monkeypatch):
    """On a terminal the name of a document is a link, and the answer is marked by style; a pipe gets neither."""
    out = Terminal() if terminal else io.StringIO()
    for name, value in {"TERM": "xterm-256color", **colours}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["ask", str(tiny_run), "What is the currency of Arvad?", "--k", "2"]) == 0
    links = re.findall(r"\x1b]8;[^;]*;([^\x1b]+)\x1b", out.getvalue())
    assert links == [(tiny_run.parent / "docs.jsonl").as_uri()] * (2 if terminal else 0)
    assert ("\x1b[1" in out.getvalue()) is terminal and ("[[" in out.getvalue()) is not terminal
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", out.getvalue())


def test_the_page_of_a_pdf_is_in_the_address(tmp_path):
    (file := tmp_path / "a b.pdf").write_bytes(b"")
    store = SimpleNamespace(rows_of=lambda ids: ids, block=lambda row: SimpleNamespace(source=str(file)))
    opened = SimpleNamespace(inputs=SimpleNamespace(store=store))
    for doc_id, end in (("a b.pdf#page=12", "#page=12"), ("a b.pdf#page=3&picture=1", "#page=3"), ("a b.pdf", "")):
        assert _address(opened, {"block_id": 1, "doc_id": doc_id}) == f"{tmp_path.as_uri()}/a%20b.pdf{end}"
    file.unlink()
    assert _address(opened, {"block_id": 1, "doc_id": "a b.pdf"}) == ""


def test_quiet_leaves_result_and_errors(tiny_run, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "notes").mkdir()
    for name in ("arvad", "belmor"):
        (tmp_path / "notes" / f"{name}.txt").write_text(f"People in {name} pay with the Tirel.")
    command = ["ask", str(tmp_path / "notes"), "What is it?", "--body", str(tiny_run / "stages" / "pretrain")]
    assert main([*command, "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "arvad.txt" in out
    assert main(command) == 0 and "note" in capsys.readouterr().err
    assert main(["ask", "--quiet", str(tmp_path / "nowhere"), "Who?"]) == 2 and "error: " in capsys.readouterr().err
