"""Bytes to text: by mark, by what they look like, and no file lost for one byte."""

import pytest

from realm.documents.records import Rejected
from realm.documents.streams import decoded, guessed_encoding

TEXTS = {
    "cp1252": "L’été à la mer, déjà vu, œuvre complète; ça coûte 5 €.",
    "latin-1": "Die Müllabfuhr in Köln: Über Öl läßt sich nicht streiten.",
    "cp1250": "Zażółć gęślą jaźń. Łódź jest dużym miastem w środkowej Polsce.",
    "cp1251": "Москва является столицей России, город.",
    "shift_jis": "東京は日本の首都であり、世界最大の都市圏を形成している。",
    "gb18030": "北京是中华人民共和国的首都，全国政治、文化中心。",
    "utf-8": "Äpfel, 東京",
    "utf-16": "The mill, the weir",
    "utf-16-le": "The mill, the weir",
    "utf-16-be": "The mill, the weir",
    "utf-8-sig": "The café",
}


@pytest.mark.parametrize("encoding", TEXTS)
def test_text_in_every_encoding(encoding):
    assert decoded(TEXTS[encoding].encode(encoding), "a.txt") == TEXTS[encoding]


@pytest.mark.parametrize(("data", "text"), [
    ("Äpfel und März ".encode() + b"\xe9", "Äpfel und März é"), ("odd".encode("utf-16") + b"x", "odd\ufffd"),
    (b"ok\nnot \xff ok", "ok\nnot ÿ ok"), (b"a" * (2**18 - 1) + "é".encode(), "a" * (2**18 - 1) + "é"),
    (b"a" * 2**18 + b"\xe9", "a" * 2**18 + "é"),
    (b"A long enough line of text with one \0 in it.\n", "A long enough line of text with one \0 in it.\n"), (b"\x89PNG\0\xff", None),
    (b"\xd0\xcf\x11\xe0\xa1", None), (bytes(range(256)), None),
])  # fmt: skip
def test_a_bad_byte_costs_itself_and_binary_data_is_no_text(data, text):
    found = decoded(data, "a.txt")
    assert found == text if text else isinstance(found, Rejected) and found.reason == "binary data"
    assert guessed_encoding(b"") == "utf-8"
