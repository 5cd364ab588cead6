"""The storage layer by itself: what it publishes it reads back, and damage is said in the words of the file's owner."""

import errno
import json
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import numpy as np
import pytest

from realm.errors import CorpusError, RealmError, SnapshotError
from realm.storage import arrays, locks
from realm.storage.arrays import array_header, keep_array, kept_array, load_array, publish_array, read_array, write_array
from realm.storage.files import publish_directory, remove_staging
from realm.storage.generations import advance_current, read_current
from realm.storage.manifests import Errors, read_note, read_sealed, write_note, write_sealed

ERRORS = Errors(damaged=CorpusError, refused=SnapshotError)
INT64 = np.dtype(np.int64)


@pytest.fixture
def published(tmp_path):
    path = tmp_path / "ids.npy"
    return path, publish_array(path, np.arange(6).reshape(2, 3))


def test_an_array_comes_back_from_bytes_that_numpy_writes(published, monkeypatch):
    path, sha256 = published
    found = read_array(path, (2, None), INT64, ERRORS, sha256=sha256)
    assert (found == np.arange(6).reshape(2, 3)).all() and not isinstance(found, np.memmap)
    monkeypatch.setattr(arrays, "MIN_MAPPED_BYTES", 0)
    assert isinstance(read_array(path, (2, 3), INT64, ERRORS, mode="r"), np.memmap)
    assert [child.name for child in path.parent.iterdir()] == ["ids.npy"]
    assert published[0].read_bytes() == array_header(INT64, (2, 3)) + np.arange(6).tobytes()


@pytest.mark.parametrize(("damage", "said"), [
    (lambda path: path.unlink(), "missing"), (lambda path: path.write_bytes(path.read_bytes()[:-1]), "not a complete"),
    (lambda path: np.save(path, np.zeros((2, 3))), r"holds float64 \[2, 3\], the manifest says int64 \[2,n\]"),
    (lambda path: np.save(path, np.zeros((3, 3), INT64)), r"holds int64 \[3, 3\]"),
    (lambda path: np.save(path, np.zeros(2, INT64)), r"holds int64 \[2\]"),
])  # fmt: skip
def test_damage_is_said_by_the_owner(published, damage, said):
    path, sha256 = published
    damage(path)
    with pytest.raises(CorpusError, match=rf"ids\.npy: {said}"):
        read_array(path, (2, None), INT64, ERRORS)
    with pytest.raises(CorpusError, match="missing" if said == "missing" else "changed since it was published"):
        read_array(path, (2, None), INT64, ERRORS, sha256=sha256)


def test_what_the_disk_refuses_is_no_damage(tmp_path):
    (tmp_path / "ids.npy").mkdir()
    with pytest.raises(SnapshotError, match="could not be read"):
        read_array(tmp_path / "ids.npy", (1,), INT64, ERRORS)


def test_a_sealed_manifest_tells_every_change(tmp_path):
    path, values = tmp_path / "manifest.json", {"rows": 3, "files": {"a": "0"}, "share": 0.1}
    write_sealed(path, values)
    assert read_sealed(path, ERRORS) == values
    stored = json.loads(path.read_bytes())
    for text, said in (
        (json.dumps({**stored, "rows": 4}), "checksum"), (json.dumps(values), "checksum"),
        ("[1]", "not a JSON object"), ("{", "not valid JSON"), ("[" * 100_000, "not valid JSON"),
        (json.dumps({**stored, "share": float("nan")}), "checksum"),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(CorpusError, match=said):
            read_sealed(path, ERRORS)
    path.unlink()
    with pytest.raises(CorpusError, match="missing"):
        read_sealed(path, ERRORS)


def test_a_full_disk_says_its_number():
    """numpy's own way to a file says only how much was written, and the command would end in a traceback."""
    with open("/dev/full", "wb", buffering=0) as file, pytest.raises(OSError, match="No space") as error:
        write_array(file, np.arange(1000))
    assert error.value.errno == errno.ENOSPC


@pytest.mark.parametrize(
    "array", [np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3).T, np.empty((0, 3), np.float32), np.arange(9)[::2]]
)
def test_an_array_is_written_as_numpy_reads_it(tmp_path, array):
    with open(tmp_path / "a.npy", "wb") as file:
        write_array(file, array)
    found = np.load(tmp_path / "a.npy")
    assert found.dtype == array.dtype and found.tolist() == array.tolist() and found.shape == array.shape


def test_a_lock_whose_file_was_deleted_still_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.3)

    def busy(named):
        return RealmError(f"another process{named}")

    with locks.held(tmp_path, busy):
        (tmp_path / locks.LOCK_FILE).unlink()
        with pytest.raises(RealmError, match="another process"), locks.held(tmp_path, busy):
            pass
        with locks.held(tmp_path, busy, "OTHER"):
            pass
    with locks.held(tmp_path, busy):
        pass


@pytest.mark.parametrize("value", [{"em": 0.5, "recall": {1: 0.1, 20: 0.9}}, [{"question": "x"}, 3], []])
def test_a_note_tells_every_change(tmp_path, caplog, value):
    """Damaged it is passed over with a warning, and made again: another number is never shown."""
    path = tmp_path / "finetune.json"
    assert read_note(path) is None
    write_note(path, value)
    assert read_note(path) == json.loads(json.dumps(value)) and not caplog.records
    whole = path.read_bytes()
    for damaged in (
        whole.replace(b'"', b"!", 1), whole[:-9], bytes(len(whole)), whole.replace(b"}", b', "more": 1}', 1),
        whole.replace(b"manifest_", b"manifesu_"),
    ):  # fmt: skip
        path.write_bytes(damaged)
        caplog.clear()
        assert read_note(path) is None and str(path) in caplog.text and "damaged" in caplog.text
    path.write_text(json.dumps(value), "utf-8")  # without a checksum
    assert read_note(path) is None


def test_what_could_not_be_renamed_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("os.replace", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output error"):
        publish_array(tmp_path / "ids.npy", np.arange(3))
    assert not list(tmp_path.iterdir())


def test_what_is_published_is_not_published_again(tmp_path):
    with publish_directory(tmp_path / "000001") as staging:
        (staging / "a").write_text("1")
    with pytest.raises(FileExistsError), publish_directory(tmp_path / "000001"):
        pass
    assert (tmp_path / "000001" / "a").read_text() == "1"


def test_two_processes_that_clean_up_at_once_do_not_stop_each_other(tmp_path):
    for _ in range(20):
        for number in range(100):
            (tmp_path / "000003.removed.staging").mkdir(exist_ok=True)
            (tmp_path / "000003.removed.staging" / f"{number}").touch()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(remove_staging, [tmp_path] * 4))
        assert not list(tmp_path.iterdir())


def test_staging_that_cannot_be_removed_ends_in_the_systems_own_error(tmp_path, monkeypatch):
    (tmp_path / "000001.staging").mkdir()
    monkeypatch.setattr("os.rmdir", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
    with pytest.raises(OSError, match="Too many open files"), publish_directory(tmp_path / "000001"):
        pass


def test_the_newest_generation_goes_forward_only(tmp_path):
    for number in (3, 2):
        advance_current(tmp_path, number)
    assert read_current(tmp_path) == 3


def test_arrays_of_objects_are_not_read(tmp_path):
    np.save(tmp_path / "ids.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(CorpusError, match=r"not a complete \.npy file"):
        read_array(tmp_path / "ids.npy", (1,), np.dtype(object), ERRORS)


ARRAYS = [np.arange(12, dtype=np.int32).reshape(3, 4), np.empty((0, 4), np.int32), np.ones((2, 2), np.float32), np.array(7)]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{list(array.shape)}")
def test_what_was_kept_comes_back_unless_a_byte_of_it_changed(array, tmp_path):
    keep_array(tmp_path / "kept.npy", array, slow=["a+"])
    found, facts = kept_array(tmp_path / "kept.npy")
    assert np.array_equal(found, array) and found.dtype == array.dtype and facts["slow"] == ["a+"]
    for file in (tmp_path / "kept.npy", tmp_path / "kept.json"):
        whole = file.read_bytes()
        for harmed in (*(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))), b"", whole[:-9], whole + b"0"):
            file.write_bytes(harmed)
            assert kept_array(tmp_path / "kept.npy") is None
        file.write_bytes(whole)
    keep_array(tmp_path / "other.npy", array + 1 if array.size else array.T)
    (tmp_path / "other.npy").replace(tmp_path / "kept.npy")
    assert kept_array(tmp_path / "kept.npy") is None and kept_array(tmp_path / "other.npy") is None


def test_threads_load_one_after_the_other(tmp_path, monkeypatch):
    """numpy's reader of headers is not safe in several threads (see ``load_array``)."""
    path = tmp_path / "array.npy"
    np.save(path, np.arange(6).reshape(2, 3))
    load, inside, most = np.load, 0, 0

    def watched(*given, **named):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.005)  # long enough for another thread to come in
        found = load(*given, **named)
        inside -= 1
        return found

    monkeypatch.setattr(np, "load", watched)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda number: load_array(path, "r" if number % 2 else None), range(12)))
    assert most == 1
    assert all((array == [[0, 1, 2], [3, 4, 5]]).all() for array in found)
    assert [isinstance(array, np.memmap) for array in found] == [False, True] * 6
