"""What long commands show: plain lines are few and end with the last state, bars stay on their own stream, quiet is quiet."""

import io
import subprocess
import sys

import pytest

from realm import progress
from realm.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_plain_lines_are_few_and_the_last_one_comes(clock):
    stream = io.StringIO()
    with Progress(stream=stream) as shown:
        for step in range(1, 101):
            clock[0] += 1
            shown.report("ict", step, 100, {"loss": 1 / step, "accuracy": 0.5, "lr": 1e-4})
    lines = stream.getvalue().splitlines()
    assert 18 <= len(lines) <= 22
    assert lines[-1].startswith("ict  100/100  loss 0.01  accuracy 0.5")
    assert "left" in lines[1] and "left" not in lines[-1] and "lr" not in stream.getvalue()


def test_a_stage_that_ends_early_still_gets_its_last_line(clock):
    stream = io.StringIO()
    with Progress(stream=stream) as shown:
        shown.report("warm", 20, 1000, {"loss": 3.0})
        shown.report("warm", 40, 1000, {"loss": 2.0})
        shown.report("pretrain", 20, 400, {"marginal_utility": 0.25})
        shown.count("documents", 7, None)
    lines = stream.getvalue().splitlines()
    assert [line.split()[:2] for line in lines] == [["warm", "20/1,000"], ["warm", "40/1,000"], ["pretrain", "20/400"], ["documents", "7"]]
    assert "marginal_utility 0.25" in lines[2]


def test_what_is_over_at_once_is_not_worth_a_line(clock):
    stream = io.StringIO()
    shown = Progress(stream=stream, every=5)
    for _ in range(60):  # a small index, embedded again and again
        for done in (100, 200):
            clock[0] += 1
            shown.count_long("index", done, 200)
    assert stream.getvalue() == ""
    for done in range(100, 1100, 100):  # a large one
        clock[0] += 2
        shown.count_long("index", done, 1000)
    shown.close()
    assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["400/1,000", "700/1,000", "1,000/1,000"]


def test_time_left_and_rates(clock):
    stream = io.StringIO()
    shown = Progress(stream=stream)
    shown.report("ict", 900, 1000, {})
    clock[0] += 10
    shown.report("ict", 950, 1000, {})
    assert stream.getvalue().splitlines()[-1] == "ict  950/1,000  0:10, 0:10 left"
    stream = io.StringIO()
    shown = Progress(stream=stream)
    shown.count("documents", 100, 1000)
    clock[0] += 10
    shown.count("documents", 600, 1000)
    assert stream.getvalue().splitlines()[-1] == "documents  600/1,000  per second 50  0:10, 0:08 left"


def test_the_same_count_over_again_starts_anew(clock):
    stream = io.StringIO()
    shown = Progress(stream=stream)
    for done in (5, 10, 5, 10):
        clock[0] += 6
        shown.count("blocks embedded", done, 10)
    assert len(stream.getvalue().splitlines()) == 4


def test_messages_stay_in_order_and_as_they_are(clock):
    stream = io.StringIO()
    shown = Progress(stream=stream)
    shown.report("ict", 1, 10, {})
    shown.report("ict", 2, 10, {})
    shown.say("[bold]not markup[/bold]")
    assert [line[:6] for line in stream.getvalue().splitlines()] == ["ict  1", "ict  2", "[bold]"]


def test_quiet_prints_nothing():
    stream = Terminal()
    with Progress(quiet=True, stream=stream) as shown:
        shown.report("ict", 1, 1, {"loss": 1.0})
        shown.count("documents", 1)
        shown.say("hello")
    assert stream.getvalue() == ""


def test_a_terminal_gets_bars_and_standard_output_nothing(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with Progress(stream=stream) as shown:
        shown.report("pretrain", 20, 40, {"marginal_utility": 0.125, "p_null": 0.3})
        print('{"json": true}')
        shown.say("[red]as it is[/red]")
        shown.report("pretrain", 40, 40, {"marginal_utility": 0.5})
        shown.close()
    assert capsys.readouterr().out == '{"json": true}\n'
    text = stream.getvalue()
    assert "pretrain" in text and "40/40" in text and "marginal_utility 0.5" in text and "[red]as it is[/red]" in text
    assert text.rstrip().endswith("\x1b[?25h") or "\x1b[?25h" in text


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with Progress(stream=stream) as shown:
        shown.report("ict", 1, 1, {"loss": float("nan")})
    assert stream.getvalue() == "ict  1/1  loss -  0:00\n"


def test_rich_is_not_imported_without_a_terminal():
    code = "import sys; from realm.progress import Progress; Progress().report('ict', 1, 1, {}); sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0
