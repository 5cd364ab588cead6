"""Hugging Face datasets: directories that save_to_disk wrote, and names on the hub without a network."""

import sys
from pathlib import Path

import pytest

from realm.documents.records import Rejected, SourceDocument
from realm.documents.sources import SourceOptions, hub, iter_documents
from realm.errors import DataError, MissingExtra

ROWS = {"id": [1, 2, 3], "title": ["A", None, "C"], "text": ["One.", "Two.", " "], "extra": [[1], [2], [3]]}


@pytest.fixture
def datasets():
    module = pytest.importorskip("datasets")
    module.disable_progress_bars()
    return module


def test_a_saved_dataset(tmp_path, datasets):
    folder = tmp_path / "saved"
    datasets.Dataset.from_dict(ROWS).save_to_disk(str(folder))
    for options in (SourceOptions(), SourceOptions(format="datasets")):
        assert list(iter_documents(folder, options)) == [
            SourceDocument("1", "A", "One.", str(folder), 1),
            SourceDocument("2", "", "Two.", str(folder), 2),
            Rejected(str(folder), 3, "empty text"),
        ]
    with pytest.raises(DataError, match=r"no column 'body', which --column text=body names. Columns are: id, title, text, extra$"):
        list(iter_documents(folder, SourceOptions(text_column="body")))


def test_splits(tmp_path, datasets):
    part = datasets.Dataset.from_dict({"text": ["One."]})
    datasets.DatasetDict({"train": part}).save_to_disk(str(tmp_path / "one"))
    assert [record.doc_id for record in iter_documents(tmp_path / "one") if isinstance(record, SourceDocument)] == ["one#1"]
    datasets.DatasetDict({"train": part, "test": part}).save_to_disk(str(tmp_path / "two"))
    with pytest.raises(DataError, match=r"several splits: train, test. Name one"):
        list(iter_documents(tmp_path / "two"))
    assert len(list(iter_documents(tmp_path / "two" / "test"))) == 1


def test_a_damaged_dataset(tmp_path, datasets):
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(DataError, match=r"cannot load this dataset: ") as error:
        list(iter_documents(tmp_path))
    assert "\n" not in str(error.value)


def test_a_streamed_dataset(datasets, monkeypatch):
    """What the hub would give, without the hub: the name's parts reach the library, rows come one by one."""
    asked = []

    def load_dataset(*parts, **named):
        asked.append((parts, named))
        rows = datasets.Dataset.from_dict(ROWS).to_iterable_dataset()
        return rows if named["split"] else datasets.IterableDatasetDict({"train": rows})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for name in ("hf:owner/name:en:train", "hf:owner/name::train", "hf:owner/name:en"):
        records = list(iter_documents(Path(name)))
        assert records[:2] == [SourceDocument("1", "A", "One.", name, 1), SourceDocument("2", "", "Two.", name, 2)]
    assert [(*parts, named["split"]) for parts, named in asked] == [
        ("owner/name", "en", "train"), ("owner/name", None, "train"), ("owner/name", "en", None)
    ]  # fmt: skip
    assert all(named["streaming"] is True and "trust_remote_code" not in named for _, named in asked)


def test_the_hub_is_not_there(datasets):
    with pytest.raises(DataError, match=r"hf:nobody/nothing: cannot load this dataset: .*Check the name") as error:
        list(iter_documents(Path("hf:nobody/nothing")))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name", ["a:b:c:d", "", "../x", "../x/y", "./x", "x/..", "/etc/x", "x/y/z", "json", "parquet", "~/x", "owner/", "owner/na me", "a\\b"]
)
def test_what_is_no_name_of_the_hub(datasets, tmp_path, monkeypatch, name):
    """A lone name may be a reader of the library, which would take what lies in the directory."""
    (tmp_path / "here").mkdir()
    (tmp_path / "x").mkdir()
    for folder in ("x", "here"):
        (tmp_path / folder / "rows.jsonl").write_text('{"text": "What nobody asked for."}\n')
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("the library was asked"))
    with pytest.raises(DataError, match=r"no name of a dataset. Write hf:owner/name"):
        list(iter_documents(Path(f"hf:{name}")))


def test_a_folder_is_not_read_for_the_hub(datasets, tmp_path, monkeypatch):
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    (folder / "rows.jsonl").write_text('{"text": "What nobody asked for."}\n')
    monkeypatch.chdir(tmp_path)
    for name in ("owner/name", "owner/name::train"):
        with pytest.raises(DataError, match=r"a file or folder of that name is here.* without hf:"):
            list(iter_documents(Path(f"hf:{name}")))


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"needs the extra 'datasets'"):
        list(hub.read_dataset(Path("hf:owner/name"), SourceOptions()))
