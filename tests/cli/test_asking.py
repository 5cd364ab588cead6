"""``realm ask`` without a question: a pipe of questions, and a prompt with history."""

import io
import json
import sys

import pytest

from realm.cli import main


class Pipe(io.StringIO):
    """Standard input that is no terminal, with bytes behind it."""

    def __init__(self, data):
        super().__init__()
        self.buffer = io.BytesIO(data)


def test_a_question_a_line(tiny_run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Pipe("What is the currency of Arvad?\n\n  Who lives in Belmor?\r\nWas ist \xff?".encode("latin-1")))
    assert main(["ask", str(tiny_run), "--k", "2"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["question"] for row in found] == ["What is the currency of Arvad?", "Who lives in Belmor?", "Was ist \ufffd?"]
    assert all(len(row["evidence"]) == 2 for row in found)


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
