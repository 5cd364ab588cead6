"""Several sources of mixed kinds at once, through the whole build."""

import json
from pathlib import Path

import pytest

from realm.documents.ingest.builder import build_corpus
from realm.documents.store.blocks import BlockStore
from realm.errors import DataError

SMALL = {"vocab_size": 300, "block_length": 64}


def test_every_bad_record_is_listed_and_strict_stops(tmp_path):
    """Bad records of several kinds of source in one build: counted by reason, listed as file and line, the rest built."""
    root = tmp_path / "in"
    (root / "texts").mkdir(parents=True)
    good = '{"id": "a", "title": "Arvad", "text": "The currency of Arvad is the Tirel."}'
    odd = r'{"id": "s", "text": "A lone \ud800 surrogate."}', '{"id": "../../up", "text": "A path?"}'
    (root / "a.jsonl").write_text("\n".join([good, "{", *odd, '{"id": " ", "text": "t"}', '{"text": "t"}', good, ""]))
    (root / "b.csv").write_bytes(b"id,text\np,\xff\nq,\nr,\xe2\x80\x8b\n")
    (root / "texts" / "c.txt").write_bytes(b"\0\1\2\3" * 100)
    (root / "texts" / "d.txt").write_text("Fine.")
    (root / "texts" / "loop").symlink_to(root / "texts")
    (root / "e.jsonl").touch()
    sources = [root / "a.jsonl", root / "b.csv", root / "texts", root / "e.jsonl"]
    manifest = build_corpus(sources, tmp_path / "corpus", **SMALL)
    store = BlockStore.open(tmp_path / "corpus")
    assert store.documents() == ["a", "s", "../../up", "d.txt"] and store.block(1).text == "A lone \ufffd surrogate."
    listed = [json.loads(line) for line in (tmp_path / "corpus" / "rejected.jsonl").read_text("utf-8").splitlines()]
    assert [(Path(row["path"]).name, row["line"], row["reason"]) for row in listed] == [
        ("a.jsonl", 2, "bad json"), ("a.jsonl", 5, "empty id"), ("a.jsonl", 6, "missing id"), ("a.jsonl", 7, "duplicate id"),
        ("b.csv", 2, "invalid utf-8"), ("b.csv", 3, "empty text"), ("b.csv", 4, "empty text"),
        ("loop", 0, "link to a folder"), ("c.txt", 0, "binary data"), ("e.jsonl", 0, "empty file"),
    ]  # fmt: skip
    assert sum(manifest.rejected.values()) == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "in"]  # an id is a name, never a path
    with pytest.raises(DataError, match=r"a\.jsonl:2: bad json. Repair the record"):
        build_corpus(sources, tmp_path / "strict", strict=True, **SMALL)
    with pytest.raises(DataError, match=r"loop: link to a folder"):
        build_corpus([root / "texts"], tmp_path / "strict", strict=True, **SMALL)
