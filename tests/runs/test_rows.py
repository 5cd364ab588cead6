"""Rows in the place of files: which ones are understood, and under which name they are kept."""

import json

import pytest

from realm.errors import DataError
from realm.runs.rows import files_of_given


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


def test_the_same_rows_are_one_file(tmp_path):
    first, second, other, named = files_of_given([[{"text": "a"}], iter([{"text": "a"}]), [{"text": "b"}], str(tmp_path)], tmp_path)
    assert first == second != other and named == tmp_path


@pytest.mark.parametrize(("given", "problem"), [
    (["a text"], "row 1 is no dictionary"), ([{"text": "a"}, 3], "row 2 is no dictionary"), ("nowhere", "no such file or folder"),
])  # fmt: skip
def test_what_is_neither(given, problem, tmp_path):
    with pytest.raises(DataError, match=problem):
        files_of_given([given], tmp_path)
