"""Every published format is told from the others and read as published; what is broken is named by file and line; the papers' split."""

import csv
import gzip
import io
import json
import lzma

import pytest

from realm.errors import ConfigError, DataError
from realm.evaluation.questions.loading import load_questions, read_questions, write_questions
from realm.evaluation.questions.rows import FORMATS, QuestionOptions
from realm.models.types import Question

WEB = [
    {"url": "u", "targetValue": '(list (description "Jazmyn Bieber") (description Jaxon))', "utterance": "what is his brother?"},
    {"url": "u", "targetValue": '(list (description "A \\"B\\" (C)"))', "utterance": "who?"},
]
SQUAD_QAS = [
    {"id": "s1", "question": "What?", "answers": [{"text": "gold", "answer_start": 0}, {"text": "gold", "answer_start": 9}]},
    {"id": "s2", "question": "None?", "answers": [], "is_impossible": True},
]
SQUAD = {"data": [{"title": "T", "paragraphs": [{"context": "gold and gold", "qas": SQUAD_QAS}]}], "version": "2.0"}
SQUAD_READ = Question("s1", "What?", ("gold",), context="gold and gold", title="T", places=((0, 4), (9, 13)))
OWN = {"question": "Who?", "answers": ["A", "B"], "positive_ids": ["d"]}


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(rows, delimiter):
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue()


PUBLISHED = {
    "own": ("q.jsonl", lines(OWN), "jsonl", [Question("1", "Who?", ("A", "B"), ("d",))]),
    "own list": ("q.json", json.dumps([OWN, OWN], indent=1), "json", [Question(str(n), "Who?", ("A", "B"), ("d",)) for n in (1, 2)]),
    "nq-open": ("NQ-open.dev.jsonl", lines({"question": "who", "answer": ["A", "B"]}), "nq-open", [Question("1", "who", ("A", "B"))]),
    "webquestions": (
        "webquestions.examples.train.json",
        json.dumps(WEB),
        "webquestions",
        [Question("1", "what is his brother?", ("Jazmyn Bieber", "Jaxon")), Question("2", "who?", ('A "B" (C)',))],
    ),
    "factoid webquestions": (
        "val.json",
        json.dumps([{"answers": ["A"], "qId": "wqr1", "qText": "who"}], indent=2),
        "json",
        [Question("wqr1", "who", ("A",))],
    ),
    "curatedtrec": (
        "large2180-test.tsv",
        '1669\tfactoid\tHow tall is "K2"?\t8,?611\\s?m|28,?251\n10053\tfactoid\tch4?\tC.*H\n',
        "curatedtrec",
        [Question("1669", 'How tall is "K2"?', ("8,?611\\s?m|28,?251",), (), "regex"), Question("10053", "ch4?", ("C.*H",), (), "regex")],
    ),
    "orqa's curatedtrec": (
        "CuratedTrec.resplit.dev.jsonl",
        lines({"question": "who", "answer": ["a|b"]}),
        "curatedtrec",
        [Question("1", "who", ("a|b",), (), "regex")],
    ),
    "squad": ("dev-v2.0.json", json.dumps(SQUAD), "squad", [SQUAD_READ]),
    "csv": (
        "mine.csv",
        table([["ID", "Question", "Answers"], ["a", "Who, then?", '["A", "B"]'], ["b", "When?", "12, maybe"]], ","),
        "csv",
        [Question("a", "Who, then?", ("A", "B")), Question("b", "When?", ("12, maybe",))],
    ),
    "tsv": ("mine.tsv", "question\tanswer\nWho?\tA\n", "tsv", [Question("1", "Who?", ("A",))]),
}


@pytest.mark.parametrize("case", PUBLISHED)
def test_each_is_recognised_and_read(tmp_path, case):
    name, text, format, questions = PUBLISHED[case]
    path = tmp_path / name
    path.write_text(text, "utf-8")
    found = read_questions(path)
    assert (found.format, found.questions) == (format, questions)
    assert len(found.lines) == len(questions)
    assert load_questions(path, QuestionOptions(format)) == questions, "the format may also be named"
    for suffix, opener in ((".gz", gzip.open), (".xz", lzma.open)):
        packed = tmp_path / (name + suffix)
        with opener(packed, "wt", encoding="utf-8") as file:
            file.write(text)
        assert load_questions(packed) == questions


def test_what_is_no_open_question_is_counted(tmp_path):
    path = write(tmp_path / "dev.json", json.dumps(SQUAD))
    assert read_questions(path).skipped == {"the question has no answer in its paragraph": 1}
    none = {"data": [{"paragraphs": [{"context": "gold", "qas": SQUAD_QAS[1:]}]}]}
    with pytest.raises(DataError, match=r"no questions \(1 rows: the question has no answer"):
        read_questions(write(tmp_path / "none.json", json.dumps(none)))


def test_columns_have_names(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("nr;frage;antwort\n1;Wer?;A | B\n", "utf-8")
    assert load_questions(path, QuestionOptions("csv", "frage", "antwort", "nr", "|")) == [Question("1", "Wer?", ("A", "B"))]
    rows = tmp_path / "mine.jsonl"
    rows.write_text(lines({"frage": "Wer?", "antwort": ["A"], "nr": 5}), "utf-8")
    assert load_questions(rows, QuestionOptions("", "frage", "antwort", "nr")) == [Question("5", "Wer?", ("A",))]


BROKEN = [
    ("q.csv", "text,answers\nWho?,A\n", 1, "no column 'question'. Name it with --column question=NAME. Columns are: text, answers."),
    ("q.csv", "question,reply\nWho?,A\n", 1, "no column 'answers'"),
    ("q.csv", "question,answers\nWho?,A\nWho?\n", 3, "bad row of a table"),
    ("q.csv", 'question,answers\n"a\nb",A\nWho?,A,B\n', 4, "bad row of a table"),
    ("q.csv", 'question,answers\n"Who?"x,A\n', 2, "bad row of a table"),
    ("q.csv", "question,answers\nWho?,[A\n", 2, "the answers begin with [ and are not a list"),
    ("q.csv", "question,answers\nWho?,[1]\n", 2, "no answers"), ("q.csv", "question,answers\nWho?,\n", 2, "no answers"),
    ("q.csv", "question,answers\n ,A\n", 2, "no question"),
    ("q.csv", "id,question,answers\n1,Who?,A\n1,Who?,A\n", 3, "the id '1' occurs twice"),
    ("q.txt", "just some words\n", 1, "not a known format of questions"),
    ("q.json", "[\n" + json.dumps(OWN) + ",\n{\n", 3, "not JSON"), ("q.json", "[1]", 1, "no question"),
    ("w.json", json.dumps([*WEB, {"utterance": "who?", "targetValue": "(list)"}], indent=0), 12, "no answers"),
    ("s.json", json.dumps({"data": [{"paragraphs": [{"context": ""}]}]}), 1, "no question"),
    ("c.tsv", "1\tfactoid\twho\ta\n2\tfactoid\twho\n", 2, "bad row of a table"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "line", "problem"), BROKEN)
def test_broken_files(tmp_path, name, text, line, problem):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    with pytest.raises(DataError) as caught:
        read_questions(path)
    assert str(caught.value).startswith(f"{path}:{line}: {problem}") and caught.value.cure and "\n" not in str(caught.value)


def test_options_that_cannot_be(tmp_path):
    with pytest.raises(ConfigError, match="no question format 'yaml'"):
        QuestionOptions("yaml")
    path = tmp_path / "q.csv"
    path.write_text("question,answers\nWho?,A\n", "utf-8")
    with pytest.raises(DataError, match="no column 'frage', which --column question=frage names"):
        load_questions(path, QuestionOptions(question_column="frage"))
    for format in FORMATS:  # a wrong format is an error of ours, never a traceback
        with pytest.raises(DataError):
            load_questions(write(tmp_path / "x.bin", "\x00[{]},;\t'"), QuestionOptions(format))


def write(path, text):
    path.write_text(text, "utf-8")
    return path


def test_written_questions_are_read_as_the_same(tmp_path):
    questions = [question for case in ("squad", "curatedtrec", "own") for question in PUBLISHED[case][3]]
    write_questions(tmp_path / "out.jsonl", questions)
    assert load_questions(tmp_path / "out.jsonl") == questions


GOOD = {"id": "q1", "question": " Who? ", "answers": ["A", "B b"]}


def write_lines(directory, *lines):
    path = directory / "qa.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), "utf-8")
    return path


def test_all_fields_of_plain_and_compressed_files(tmp_path):
    more = {"question": "How old?", "answers": ["1[0-9]"], "answer_type": "regex", "positive_ids": ["d1", 7], "note": "kept out"}
    questions = load_questions(write_lines(tmp_path, GOOD, "", more))
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
    path = write_lines(tmp_path, GOOD, "", line)
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
