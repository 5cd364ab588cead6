"""Messages and mailboxes: who wrote what, in every encoding; attachments are read as files are."""

import pytest

from realm.documents.records import Rejected
from realm.documents.sources import iter_documents

BOUND = 'Content-Type: multipart/mixed; boundary="x"\n\n--x\nContent-Type: text/plain\n\nSee the list.\n'
FILE = "--x\nContent-Type: %s\nContent-Disposition: attachment; filename=%s\n\n%s\n"
ATTACHED = [
    ("text/plain; charset=utf-8", "a.txt", "The mill is Nils's.", ("{}/a.txt", "two: a", "The mill is Nils's.")),
    ("application/octet-stream", "b.csv", "id,text\n1,Ann", ("1", "two", "Ann")),
    ("application/octet-stream", "c.csv", "id,text\n1,Bob", ("{}/c.csv#id=1", "two", "Bob")),
    ("text/markdown", "d.md", "# Key\n\nWith **Ann**.", ("{}/d.md", "two: Key", "Key\n\nWith Ann.")),
    ("text/plain", "a.txt", "Again.", ("{}/4 a.txt", "two: 4 a", "Again.")),
    ("text/xml", '"..\\\\e.xml"', "<a>Weir.</a>", ("{}/e.xml", "two: e", "Weir.")),
    ("text/plain", '".."', "Up.", ("{}/attachment", "two: attachment", "Up.")),
    ("text/plain; charset=cp1252; x", '""', "None.", ("{}/attachment.txt", "two: attachment", "None.")),
    ("image/png", "f.png", "x", "attachment of a message"),
    ("application/zip", "g.zip", "PK", "attachment of a message"),
    ("application/pdf", "i.pdf", "%PDF-1.4 cut", "damaged file"),
]


def seen(path):
    return [
        (one.line, one.reason) if isinstance(one, Rejected) else (one.doc_id, one.title, one.text.strip()) for one in iter_documents(path)
    ]


PARTS = b"Content-Type: multipart/%s; boundary=x\n\n--x\nContent-Type: text/plain\n\n%s\n--x\nContent-Type: %s\n\n%s\n--x--\n"


@pytest.mark.parametrize(("message", "title", "text"), [
    (b"From: a@b.org\nSubject: keys\n\nWith the porter.\n", "keys", "From: a@b.org\n\nWith the porter."),
    (b"Subject: =?utf-8?q?Caf=C3=A9?=\n\nIt is open.\n", "Caf\u00e9", "It is open."),
    ("Subject: a\n\nDas Caf\u00e9 ist zu.".encode(), "a", "Das Caf\u00e9 ist zu."),
    ("Subject: a\n\nDas Caf\u00e9 ist zu.".encode("latin-1"), "a", "Das Caf\u00e9 ist zu."),
    (b"Content-Type: text/plain; charset=iso-8859-1\n\nDas Caf\xe9\n", "m", "Das Caf\u00e9"),
    (b"Content-Type: text/plain; charset=nonsense\n\nPlain.\n", "m", "Plain."),
    (b"Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\nQ2Fmw6k=\n", "m", "Caf\u00e9"),
    (b"Content-Transfer-Encoding: quoted-printable\n\na =3D b and=\n c\n", "m", "a = b and c"),
    (b"To: B <b@c.org>\nDate: Mon, 1 Jan 2024 10:00:00 +0000\n\nx", "m", "To: B <b@c.org>\nDate: Mon, 01 Jan 2024 10:00:00 +0000\n\nx"),
    (b"Content-Type: text/plain; format=flowed; delsp=yes\n\nKe \nys and  \nbo\n-- \nBo", "m", "Keys and bo\n-- \nBo"),
    (PARTS % (b"mixed", b"One.", b"text/plain", b"Two."), "m", "One.\n\nTwo."),
    (PARTS % (b"alternative", b"One.", b"text/html", b"<p>Two."), "m", "One."),
    (PARTS % (b"mixed", b"See:", b"message/rfc822", b"Subject: b\nFrom: a@b.org\n\nTwo."), "m", "See:\n\nb\nFrom: a@b.org\n\nTwo."),
    (PARTS % (b"alternative", b"One.", b"message/rfc822\nContent-Disposition: attachment", b"\nTwo."), "m", "One."),
    (b"Subject: a\n\nOne.\n\nFrom here on it rains.\n", "a", "One.\n\nFrom here on it rains."),
])  # fmt: skip
def test_a_message(tmp_path, message, title, text):
    (tmp_path / "m.eml").write_bytes(message)
    assert seen(tmp_path / "m.eml") == [("m.eml", title, text)]


def test_a_mailbox_and_its_attachments(tmp_path):
    first = "From a@b Mon Jan  1 10:00:00 2024\nSubject: one\n\nThe weir.\n\n>From here on.\n\n"
    files = "".join(FILE % one[:3] for one in ATTACHED)
    (tmp_path / "m.mbox").write_text(f"{first}From b@c Tue Jan  2 10:00:00 2024\nSubject: two\n{BOUND}{files}--x--\n\n{first}")
    read = [tuple(part.format("m.mbox#message=2") for part in found) for *_, found in ATTACHED if isinstance(found, tuple)]
    assert seen(tmp_path / "m.mbox") == [
        ("m.mbox#message=1", "one", "The weir.\n\nFrom here on."),
        ("m.mbox#message=2", "two", "See the list."),
        *read,
        *((2 + len(read), found) for *_, found in ATTACHED if isinstance(found, str)),
        ("m.mbox#message=3", "one", "The weir.\n\nFrom here on."),
    ]


def test_an_invitation_is_a_file_beside_its_message(tmp_path):
    invitation = b"BEGIN:VCALENDAR\nLOCATION:Boat house\nEND:VCALENDAR"
    (tmp_path / "m.eml").write_bytes(b"Subject: a\n" + PARTS % (b"alternative", b"Come.", b"text/calendar; method=REQUEST", invitation))
    assert seen(tmp_path / "m.eml") == [("m.eml", "a", "Come."), ("m.eml/attachment.ics", "a: attachment", invitation.decode())]


def test_a_page_alone(tmp_path):
    pytest.importorskip("trafilatura")
    (tmp_path / "m.eml").write_bytes(b"Subject: a\nContent-Type: text/html\n\n<img src=1 alt='The mill is shut today'><img src=2 alt=Logo>")
    assert seen(tmp_path / "m.eml") == [("m.eml", "a", "The mill is shut today")]
    page = b"<p>The mill is run by Nils.</p>"
    for message in (b"Content-Type: text/html\n\n" + page, *(PARTS % (b"alternative", one, b"text/html", page) for one in (b" ", b"HTM"))):
        (tmp_path / "m.eml").write_bytes(b"Subject: a\n" + message)
        assert seen(tmp_path / "m.eml") == [("m.eml", "a", "The mill is run by Nils.")]
