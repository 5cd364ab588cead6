"""The bundled atlas: its files are those that the numbers in benchmarks/results were measured on."""

import hashlib
import json
from collections import defaultdict

import pytest

from realm.experiments.atlas import ASKED, read_atlas, write_atlas
from realm.text.matching.answers import normalize_answer

SHA256 = {
    "documents.jsonl": "909ab4628a65c266", "gazetteer.txt": "9f000c4ae11c28ec", "invented.jsonl": "1d5046c362356ba3",
    "invented_qa.jsonl": "2e504b4c723cd453", "qa_dev.jsonl": "d10ca7b54c61676b", "qa_test.jsonl": "a5cb620f811021f0",
    "qa_train.jsonl": "b57ccbeef4307565",
}  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    """The rows of each file of JSON lines by its name."""
    return {name: list(map(json.loads, text.splitlines())) for name, text in read_atlas().items() if name.endswith(".jsonl")}


@pytest.fixture(scope="module")
def splits(rows):
    return {split: rows[f"qa_{split}.jsonl"] for split in ("train", "dev", "test")}


def test_the_files_are_the_known_ones(tmp_path):
    write_atlas(tmp_path / "atlas")
    assert {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in (tmp_path / "atlas").iterdir()} == SHA256


def test_asking_less_changes_the_questions_alone(rows):
    whole, less = read_atlas(), read_atlas(ASKED)
    assert {name for name in whole if less[name] != whole[name]} == {f"qa_{split}.jsonl" for split in ("train", "dev", "test")}
    for split in ("train", "dev", "test"):
        kept = [q for q in rows[f"qa_{split}.jsonl"] if q["kind"].startswith(("countries/", "us_states/"))]
        assert [json.loads(line) for line in less[f"qa_{split}.jsonl"].splitlines()] == kept


def test_gold_documents_hold_the_answers_and_splits_share_no_entity_and_no_answer(rows, splits):
    texts = {row["id"]: row["text"] for row in rows["documents.jsonl"]}
    entities, answers = defaultdict(set), defaultdict(set)
    for split, questions in splits.items():
        for question in questions:
            assert len(set(question["positive_ids"])) >= 2 and question["question"].endswith("?")
            assert all(question["answers"][0] in texts[document] for document in question["positive_ids"])
            entities[split].add(question["id"].rsplit("/", 2)[0])
            answers[split] |= set(map(normalize_answer, question["answers"]))
    assert not entities["train"] & (entities["dev"] | entities["test"]) and not entities["dev"] & entities["test"]
    assert not answers["train"] & (answers["dev"] | answers["test"])
