"""block_records.npy: what numpy writes is read without unpickling; everything else is refused by name and never run."""

import io
import pickle  # noqa: TID251  the tests make hostile files with it
import re
import struct

import numpy as np
import pytest

from realm.documents.ingest.builder import corpus_from_records
from realm.documents.sources.record_file import LARGEST_RECORD, RecordFile
from realm.documents.store.blocks import BlockStore
from realm.errors import CorpusError, DataError
from realm.text.tokenizer import train_wordpiece

SOME = [b"one", b"", b"b", "zwölf".encode() * 100, b"", b"x" * 70_000]


def objects(records):
    array = np.empty(len(records), dtype=object)
    array[:] = records
    return array


def npy(payload, shape=(1,), descr="|O"):
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": descr, "fortran_order": False, "shape": shape})
    return head.getvalue() + payload


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("records", [SOME, [], [b"alone"], [b"%d" % n for n in range(2500)]])
def test_what_numpy_writes(tmp_path, records, protocol):
    path = tmp_path / "r.npy"
    path.write_bytes(npy(pickle.dumps(objects(records), protocol=protocol), (len(records),)))
    read = RecordFile(path)
    assert len(read) == len(records) and list(read) == records and list(read) == records
    np.save(path, objects(records), allow_pickle=True)
    assert list(RecordFile(path)) == records


def written(records):
    """An array of these records as the published file has it: each under BINBYTES, nothing memoised."""
    opening = b"\x80\x03cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01"
    kind = b"\x85cnumpy\ndtype\nX\x02\x00\x00\x00O8\x89\x88\x87R(K\x03X\x01\x00\x00\x00|NNN"
    kind += b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb\x89]("
    each = b"".join(b"B" + struct.pack("<I", len(record)) + record for record in records)
    return npy(opening + b"J" + struct.pack("<i", len(records)) + kind + each + b"etb.", (len(records),))


class Hostile:
    """Unpickling it would make a file."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return open, (str(self.target), "w")


def test_a_hostile_global_is_named_and_not_called(tmp_path):
    path, trap = tmp_path / "r.npy", tmp_path / "trap"
    for protocol in (0, 2, 3, 4):
        for value in (objects([Hostile(trap)]), Hostile(trap)):
            path.write_bytes(npy(pickle.dumps(value, protocol=protocol)))
            with pytest.raises(DataError, match=r"r.npy: .*nothing was unpickled") as error:
                list(RecordFile(path))
            assert "\n" not in str(error.value) and not trap.exists()
    path.write_bytes(npy(b"cos\nsystem\n(S'touch trap'\ntR."))
    with pytest.raises(DataError, match="the global 'os system' is not one of a record file"):
        list(RecordFile(path))
    path.write_bytes(npy(b"\x80\x04\x8c\x02os\x8c\x06system\x93."))
    with pytest.raises(DataError, match="the global 'os system'"):
        list(RecordFile(path))


@pytest.mark.parametrize(("change", "problem"), [
    (lambda whole: whole[:-1], "damaged or cut short|cut short"), (lambda whole: whole[:200], "damaged or cut short"),
    (lambda whole: whole[: whole.index(b"]")], "damaged or cut short|opening of an object array"),
    (lambda whole: whole.replace(b"B\x03\x00\x00\x00one", b"B\xff\xff\xff\xffone"), f"a record of {2**32 - 1} bytes"),
    (lambda whole: whole.replace(b"B\x03\x00\x00\x00one", b"K\x01"), "'1' where a byte string|expected"),
    (lambda whole: whole.replace(b"B\x03\x00\x00\x00one", b"X\x03\x00\x00\x00one"), "where a byte string was expected"),
    (lambda whole: whole.replace(b"B\x03\x00\x00\x00one", b"]"), "'EMPTY_LIST' where a byte string"),
    (lambda whole: whole.replace(b"B\x03\x00\x00\x00one", b"}"), "the opcode EMPTY_DICT is not one"),
    (lambda whole: whole.replace(b"B\x03\x00\x00\x00one", b"h\x63"), "the opcode BINGET refers to something else"),
    (lambda whole: whole.replace(b"B\x03\x00\x00\x00one", b""), "5 records where the header promises 6"),
    (lambda whole: whole.replace(b"B\x03\x00\x00\x00one", b"B\x01\x00\x00\x00aB\x01\x00\x00\x00b"), "more records than the 6"),
    (lambda whole: whole.replace(b"X\x02\x00\x00\x00O8", b"X\x02\x00\x00\x00i8"), "opening of an object array"),
    (lambda whole: whole.replace(b"ndarray", b"memmap_"), "the global 'numpy memmap_'"),
    (lambda whole: whole.replace(b"etb.", b"etbR."), "where a byte string was expected"),
])  # fmt: skip
def test_damaged_and_foreign_streams(tmp_path, change, problem):
    path = tmp_path / "r.npy"
    path.write_bytes(written(SOME))
    assert np.load(path, allow_pickle=True).tolist() == SOME == list(RecordFile(path))
    changed = change(path.read_bytes())
    assert changed != path.read_bytes()
    path.write_bytes(changed)
    with pytest.raises(DataError, match=problem):
        list(RecordFile(path))


def test_other_files(tmp_path):
    path = tmp_path / "r.npy"
    with pytest.raises(DataError, match=r"r.npy: cannot be read"):
        RecordFile(path)
    for content, problem in [
        (b"", "not an .npy file"),
        (pickle.dumps([b"one"]), "not an .npy file"),
        (npy(b"", (2, 3)), r"an array of object with the shape \[2, 3\]"),
        (npy(struct.pack("<d", 1.0), (1,), "<f8"), "an array of float64"),
    ]:
        path.write_bytes(content)
        with pytest.raises(DataError, match=problem):
            RecordFile(path)


def test_one_record_at_a_time(tmp_path):
    """The first records come before the rest of the file is looked at."""
    path = tmp_path / "r.npy"
    path.write_bytes(written([b"one", b"two", b"three"])[:-12])
    records = iter(RecordFile(path))
    assert [next(records), next(records)] == [b"one", b"two"]
    with pytest.raises(DataError):
        next(records)
    assert LARGEST_RECORD >= 1 << 20


def test_a_corpus_of_records(tmp_path):
    long = "Alan Turing was born in London. " * 20
    texts = ["Zürich lies on the Limmat. It is large.", "", "Same words.", "Same words.", long, " \x00 "]
    tokenizer, records = train_wordpiece(texts, 300), [text.encode() for text in texts]
    manifest = corpus_from_records(records, tmp_path / "c", tokenizer=tokenizer, block_length=32, origin=tmp_path / "r.npy")
    store = BlockStore.open(tmp_path / "c")
    assert manifest.blocks == len(store) == 6 and store.block_ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert [store.block(row).text for row in range(6)] == [text.replace("\x00", "").strip() for text in texts]
    assert [store.token_ids(row).tolist() for row in range(6)] == tokenizer.encode([text.replace("\x00", "") for text in texts])
    assert len(store.spans(4).chars) and re.search("Turing", long)
    with pytest.raises(DataError, match=r"r.npy: record 1 is not UTF-8"):
        corpus_from_records([b"a", b"\xff"], tmp_path / "d", tokenizer=tokenizer, block_length=32, origin=tmp_path / "r.npy")
    with pytest.raises(CorpusError, match="no record"):
        corpus_from_records([], tmp_path / "e", tokenizer=tokenizer, block_length=32, origin=tmp_path / "r.npy")
    assert not (tmp_path / "d").exists() and not list(tmp_path.glob("*.staging"))
