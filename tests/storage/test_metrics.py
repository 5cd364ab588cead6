"""metrics.jsonl survives a killed writer, and no damaged number of it is shown."""

import json

import pytest

from realm.storage.metrics import MetricsLog


@pytest.fixture
def log(tmp_path):
    log = MetricsLog(tmp_path / "run" / "metrics.jsonl")
    for step in (1, 2, 3):
        log.write("ict", step, loss=1 / step)
    log.write("warm", 1, loss=0.5)
    return log


def steps(log):
    return [(row["stage"], row["step"]) for row in log.rows()]


def test_rows_are_plain_json_with_the_digits_of_small_numbers(log):
    log.write("eval", 4, em=float("nan"), f1=float("inf"), n=3, name="caf\u00e9 \u2028 x", ok=True)
    row = list(log.rows())[-1]
    assert row["em"] is None and row["f1"] is None and row["n"] == 3 and row["ok"] is True and row["name"] == "café \u2028 x"
    assert list(log.rows())[1]["loss"] == 0.5 and all("time" in r for r in log.rows())
    assert len(log.path.read_bytes().split(b"\n")) == 6
    log.write(
        "ict", 4, lr=1.23456789e-7, loss=2.123456789, down=-4.2e-9, none=0.0, deep={"p": [1.23456e-12, float("nan")], "q": (0.5, "x")}
    )
    row = list(log.rows())[-1]
    assert (row["lr"], row["loss"], row["down"], row["none"]) == (1.235e-7, 2.123457, -4.2e-9, 0.0)
    assert row["deep"] == {"p": [1.235e-12, None], "q": [0.5, "x"]}


def test_rewind_keeps_the_first_rows_of_one_stage_or_nothing(tmp_path, log):
    none = MetricsLog(tmp_path / "none.jsonl")
    none.rewind("ict", 0)
    assert list(none.rows()) == [] and none.count("ict") == 0 and not none.path.exists()
    log.rewind("ict", 2)
    assert steps(log) == [("ict", 1), ("ict", 2), ("warm", 1)] and log.count("ict") == 2
    before = log.path.stat().st_mtime_ns
    log.rewind("ict", 2)
    assert log.path.stat().st_mtime_ns == before


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_half_a_row_is_passed_over_and_never_glued_to_the_next(log, cut):
    half = json.dumps({"stage": "ict", "step": 4, "é": 1}, ensure_ascii=False).encode()[:-1]
    with open(log.path, "ab") as file:
        file.write(half[:cut])
    whole = [("ict", 1), ("ict", 2), ("ict", 3), ("warm", 1)]
    assert steps(log) == whole
    log.write("warm", 2)
    assert steps(log) == [*whole, ("warm", 2)]
    log.rewind("warm", 1)
    assert steps(log) == whole and log.path.read_bytes().endswith(b"}\n") and log.path.read_bytes().count(b"\n") == 4


def test_no_damaged_row_is_shown(log, caplog):
    """Every bit once: the rows that are left are as they were written, and a warning says that one is missing."""
    whole, rows = log.path.read_bytes(), list(log.rows())
    assert not caplog.records
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        log.path.write_bytes(data)
        caplog.clear()
        left = list(log.rows())
        assert left == rows or (all(row in rows for row in left) and "damaged rows" in caplog.text), bit
