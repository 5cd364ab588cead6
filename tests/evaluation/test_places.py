"""Question files are read or refused by line; answers are found wherever they stand."""

import gzip
import json

import pytest

from realm.errors import DataError
from realm.evaluation.matching import locate_answers
from realm.evaluation.places import answer_wordpieces
from realm.evaluation.questions.loading import load_questions
from realm.models.types import Question

GOOD = {"id": "q1", "question": " Who? ", "answers": ["A", "B b"]}


def write(directory, *lines):
    path = directory / "qa.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), "utf-8")
    return path


def test_all_fields_of_plain_and_compressed_files(tmp_path):
    more = {"question": "How old?", "answers": ["1[0-9]"], "answer_type": "regex", "positive_ids": ["d1", 7], "note": "kept out"}
    questions = load_questions(write(tmp_path, GOOD, "", more))
    assert questions == [Question("q1", "Who?", ("A", "B b")), Question("3", "How old?", ("1[0-9]",), ("d1", "7"), "regex")]
    text = "\ufeff" + json.dumps({**GOOD, "question": "Où?"}, ensure_ascii=False)
    (tmp_path / "qa.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    assert load_questions(tmp_path / "qa.jsonl.gz")[0].text == "Où?"


@pytest.mark.parametrize(("line", "problem"), [
    ("{", "not JSON"), ("[" * 100_000, "not JSON"), ("[1]", "no question"), ({"answers": ["a"]}, "no question"),
    ({"question": "  ", "answers": ["a"]}, "no question"), ({"question": 3, "answers": ["a"]}, "no question"),
    ({"question": "Q"}, "no answers"), ({"question": "Q", "answers": []}, "no answers"),
    ({"question": "Q", "answers": "a"}, "no answers"), ({"question": "Q", "answers": ["a", " "]}, "no answers"),
    ({"question": "Q", "answers": [3]}, "no answers"),
    ({"question": "Q", "answers": ["a"], "answer_type": "fuzzy"}, "answer_type 'fuzzy'"),
    ({"question": "Q", "answers": ["a"], "positive_ids": "d"}, "positive_ids is not a list"),
    (GOOD, "the id 'q1' occurs twice"),
])  # fmt: skip
def test_errors_name_file_and_line(tmp_path, line, problem):
    path = write(tmp_path, GOOD, "", line)
    with pytest.raises(DataError) as caught:
        load_questions(path)
    error = caught.value
    assert str(error).startswith(f"{path}:3: {problem}") and error.line == 3 and error.cure and "\n" not in str(error)


def test_files_that_cannot_be_read(tmp_path):
    compressed = gzip.compress(b"\n".join(json.dumps({**GOOD, "id": i}).encode() for i in range(2000)))
    files = {
        "empty.jsonl": b"\n\n", "latin.jsonl": b'{"question": "caf\xe9"}\n', "cut.jsonl.gz": compressed[:-20],
        "wrong.jsonl.gz": b"plain text", "damaged.jsonl.gz": compressed[:400] + bytes(200) + compressed[600:],
        "wrong.jsonl.xz": b"plain text",
    }  # fmt: skip
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    for path in [tmp_path / name for name in files] + [tmp_path / "missing.jsonl", tmp_path]:
        with pytest.raises(DataError) as caught:
            load_questions(path)
        # Damage that still decompresses shows as a broken line.
        assert str(caught.value).startswith(f"{path}:") and caught.value.cure and "\n" not in str(caught.value)


def test_answers_in_a_real_corpus(store):
    question = Question("q", "What is the money of the United Kingdom?", ("Pound Sterling", "the pound sterling"))
    (spans,) = locate_answers(store, [question])
    assert {store.block(row).doc_id for row in spans} == {"uk", "pound"}
    for row, found in spans.items():
        assert len(found) == len(set(found)), "two spellings of one answer mark a span once"
        for start, end in found:
            assert store.tokenizer.decode(store.token_ids(row)[start:end].tolist()).lower() == "pound sterling"
    assert answer_wordpieces(store, Question("q", "?", ("1[0-9]+",), answer_type="regex")) == []
