"""ZIP archives: every file in one is read or named, whatever its name."""

from zipfile import ZipFile

import pytest

from realm.documents import records
from realm.documents.records import Rejected
from realm.documents.sources import iter_documents


def seen(path, files):
    with ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return [(one.path, one.reason) if isinstance(one, Rejected) else (one.doc_id, one.text.strip()) for one in iter_documents(path)]


@pytest.mark.parametrize(("name", "content", "found"), [
    ("a.txt", "Ann has the key.", ("{zip}/a.txt", "Ann has the key.")),
    ("below/b.md", "# Key\n\nAnn has it.", ("{zip}/below/b.md", "Key\n\nAnn has it.")),
    ("\u9f8d" * 90 + ".txt", "Ann has the key.", ("{zip}/" + "\u9f8d" * 90 + ".txt", "Ann has the key.")),
    ("README", "Ann has the key.", ("{zip}/README", "Ann has the key.")),
    ("c.html", "<p>Ann has the key.</p>", ("{zip}/c.html", "Ann has the key.")),
    ("d.eml", "Subject: key\n\nAnn has it.", ("{zip}/d.eml", "Ann has it.")), ("../../e.txt", "x", ("{path}/../../e.txt", records.HIDDEN)),
    ("/etc/f.txt", "Ann has the key.", ("{zip}//etc/f.txt", "Ann has the key.")),
    ("g.bin", b"\0\1\2\3", ("{path}/g.bin", records.UNKNOWN_KIND)), ("__MACOSX/h.txt", "x", ("{path}/__MACOSX/h.txt", records.CACHE)),
    (".git/i.txt", "x", ("{path}/.git/i.txt", records.HIDDEN)), ("j.zip", b"PK", ("{path}/j.zip", records.UNKNOWN_KIND)),
    ("k.pdf", b"%PDF-1.4 cut", ("{path}/k.pdf", records.DAMAGED_FILE)), ("l.txt", b"", ("{path}/l.txt", records.EMPTY_FILE)),
    ("m/..", "x", ("{path}/m/..", records.DAMAGED_FILE)),
])  # fmt: skip
def test_a_file_in_an_archive_is_read_or_named(tmp_path, name, content, found):
    path = tmp_path / "a.zip"
    assert seen(path, {name: content}) == [tuple(part.format(zip="a.zip", path=path) for part in found)]
    assert [one.name for one in tmp_path.iterdir()] == ["a.zip"]


def test_an_encrypted_file_is_named_and_the_others_are_read(tmp_path):
    seen(tmp_path / "a.zip", {"b.txt": "Ann.", "c.txt": "Bob."})
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    assert [getattr(one, "reason", "") or one.text for one in iter_documents(tmp_path / "a.zip")] == [records.ENCRYPTED, "Bob."]


def test_what_a_saved_page_runs_is_left_out_of_an_archive(tmp_path):
    """As of a folder: by the page beside it, wherever both lie, and in whatever order."""
    out = ["a_files/b.js", "in/a-Dateien/c.css", "./d_files/e.js.download"]
    kept = ["a.html", "in/a.htm", "./d.html", "f.js", "g_files/h.js", "a_files/i.txt"]
    found = seen(tmp_path / "a.zip", {name: "<p>It is." if "htm" in name else "// It runs." for name in out + kept})
    assert [one for one in found if one[1] == records.PAGE_PART] == [(f"{tmp_path / 'a.zip'}/{name}", records.PAGE_PART) for name in out]
    assert [one[0] for one in found if one[1] != records.PAGE_PART] == [f"a.zip/{name}" for name in kept]
