"""Question files are read or refused by line; answers are found wherever they stand."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from realm.corpus.store.blocks import BlockStore
from realm.data.qa import AnswerLocator, answer_wordpieces, locate_wordpieces
from realm.data.questions import load_questions
from realm.data.types import Question
from realm.errors import DataError

GOOD = {"id": "q1", "question": " Who? ", "answers": ["A", "B b"]}


def write(directory: Path, *lines: Any) -> Path:
    path = directory / "qa.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), "utf-8")
    return path


def test_all_fields(tmp_path: Path) -> None:
    more = {"question": "How old?", "answers": ["1[0-9]"], "answer_type": "regex", "positive_ids": ["d1", 7], "note": "kept out"}
    questions = load_questions(write(tmp_path, GOOD, "", more))
    assert questions == [Question("q1", "Who?", ("A", "B b")), Question("3", "How old?", ("1[0-9]",), ("d1", "7"), "regex")]


def test_compressed_files_and_a_byte_order_mark(tmp_path: Path) -> None:
    text = "\ufeff" + json.dumps({**GOOD, "question": "Où?"}, ensure_ascii=False)
    (tmp_path / "qa.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    assert load_questions(tmp_path / "qa.jsonl.gz")[0].text == "Où?"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "no question"),
        ({"answers": ["a"]}, "no question"),
        ({"question": "  ", "answers": ["a"]}, "no question"),
        ({"question": 3, "answers": ["a"]}, "no question"),
        ({"question": "Q"}, "no answers"),
        ({"question": "Q", "answers": []}, "no answers"),
        ({"question": "Q", "answers": "a"}, "no answers"),
        ({"question": "Q", "answers": ["a", " "]}, "no answers"),
        ({"question": "Q", "answers": [3]}, "no answers"),
        ({"question": "Q", "answers": ["a"], "answer_type": "fuzzy"}, "answer_type 'fuzzy'"),
        ({"question": "Q", "answers": ["a"], "positive_ids": "d"}, "positive_ids is not a list"),
        (GOOD, "the id 'q1' occurs twice"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, line: Any, problem: str) -> None:
    path = write(tmp_path, GOOD, "", line)
    with pytest.raises(DataError) as caught:
        load_questions(path)
    error = caught.value
    assert str(error).startswith(f"{path}:3: {problem}") and error.line == 3 and error.cure and "\n" not in str(error)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    compressed = gzip.compress(b"\n".join(json.dumps({**GOOD, "id": i}).encode() for i in range(2000)))
    files = {
        "empty.jsonl": b"\n\n",
        "latin.jsonl": b'{"question": "caf\xe9"}\n',
        "cut.jsonl.gz": compressed[:-20],
        "wrong.jsonl.gz": b"plain text",
        "damaged.jsonl.gz": compressed[:400] + bytes(200) + compressed[600:],
        "wrong.jsonl.xz": b"plain text",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    for path in [tmp_path / name for name in files] + [tmp_path / "missing.jsonl", tmp_path]:
        with pytest.raises(DataError) as caught:
            load_questions(path)
        # Damage that still decompresses shows as a broken line.
        assert str(caught.value).startswith(f"{path}:") and caught.value.cure and "\n" not in str(caught.value)


def store_of(rows: list[list[int]]) -> Any:
    """As much of a BlockStore as the locator reads."""

    class Store:
        tokenizer = SimpleNamespace(vocab_size=8)

        def __len__(self) -> int:
            return len(rows)

        def token_ids(self, row: int) -> np.ndarray:
            return np.array(rows[row], np.uint16)

    return Store()


ROWS = st.lists(st.lists(st.integers(0, 5), max_size=12), min_size=1, max_size=6)


@given(ROWS, st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_occurrences_equal_a_naive_search(rows: list[list[int]], ids: list[int]) -> None:
    found = AnswerLocator(store_of(rows)).occurrences(ids)
    naive = [(r, at) for r, row in enumerate(rows) for at in range(len(row)) if row[at : at + len(ids)] == ids]
    assert list(zip(*(part.tolist() for part in found), strict=True)) == naive
    assert found[0].dtype == found[1].dtype == np.int64


@given(ROWS, st.data())
def test_what_stands_there_is_found(rows: list[list[int]], data: st.DataObject) -> None:
    filled = [r for r, row in enumerate(rows) if row]
    if not filled:
        return
    row = data.draw(st.sampled_from(filled))
    start = data.draw(st.integers(0, len(rows[row]) - 1))
    end = data.draw(st.integers(start + 1, len(rows[row])))
    spans = AnswerLocator(store_of(rows)).spans([rows[row][start:end], [7], []])
    assert (start, end) in spans[row]
    assert all(rows[r][s:e] == rows[row][start:end] for r, found in spans.items() for s, e in found)


@given(ROWS, st.integers(1, 7), st.lists(st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3), max_size=4))
def test_a_corpus_in_portions_is_the_whole_corpus(rows: list[list[int]], portion: int, accepted: list[list[list[int]]]) -> None:
    store, told = store_of(rows), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("realm.data.qa.PORTION", portion)
        found = locate_wordpieces(store, accepted, lambda done, total: told.append((done, total)))
    whole = AnswerLocator(store)
    assert [spans.table.tolist() for spans in found] == [whole.spans(answers).table.tolist() for answers in accepted]
    assert told == [(done, len(rows)) for done in range(portion, len(rows), portion)]


@given(ROWS, st.data())
def test_some_blocks_are_searched_alone(rows: list[list[int]], data: st.DataObject) -> None:
    chosen = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1))))
    ids = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=2))
    whole = AnswerLocator(store_of(rows)).spans([ids])
    assert AnswerLocator(store_of(rows), chosen).spans([ids]) == {row: whole[row] for row in whole if row in chosen}


def test_two_spellings_of_one_answer_mark_a_span_once() -> None:
    assert AnswerLocator(store_of([[1, 2, 1, 2]])).spans([[1, 2], [1, 2]]) == {0: [(0, 2), (2, 4)]}


def test_answers_in_a_real_corpus(store: BlockStore) -> None:
    locator = AnswerLocator(store)
    question = Question("q", "What is the money of the United Kingdom?", ("Pound Sterling", "the pound sterling"))
    spans = locator.spans(answer_wordpieces(store, question))
    assert {store.block(row).doc_id for row in spans} == {"uk", "pound"}
    for row, found in spans.items():
        for start, end in found:
            assert store.tokenizer.decode(store.token_ids(row)[start:end].tolist()).lower() in ("pound sterling", "the pound sterling")
    assert answer_wordpieces(store, Question("q", "?", ("1[0-9]+",), answer_type="regex")) == []
