"""Pictures as documents: files, pictures of pages, of PDF and Word files; good and bad ones; the words that they show."""

import io
import os
from base64 import b64decode
from pathlib import Path

import pytest

pytest.importorskip("PIL")

from PIL import Image, ImageDraw, ImageFont

from realm.documents import records
from realm.documents.change.compaction import compact_corpus
from realm.documents.change.updates import sync_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.pages import pictures, recognition
from realm.documents.pages.hypertext import page_of
from realm.documents.pages.layout import Piece
from realm.documents.pages.pictures import picture_bytes
from realm.documents.pages.recognition import lines_of, recognises
from realm.documents.pictures import inside, parted, picture_sum, picture_type
from realm.documents.records import Rejected, SourceDocument
from realm.documents.sources import SourceOptions, iter_documents
from realm.documents.store.blocks import BlockStore
from realm.documents.store.info import document_blocks

ENGINE = pytest.mark.skipif(not recognises(), reason="the extra ocr is not installed")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def blind(monkeypatch):
    monkeypatch.setattr(pictures, "recognises", lambda: False)
    monkeypatch.setattr(pictures, "recognised", lambda data, seconds: "")


def drawn(words="Harrow 1931", mode="RGB", size=(360, 120)):
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text((30, 35), words, fill="black", font=ImageFont.load_default(40))
    return image.convert(mode)


def saved(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


BOMB = b64decode("iVBORw0KGgoAAAANSUhEUgABhqAAAYagCAAAAACNOVQUAAAAEUlEQVR42mNgGAWjYBQMdwAAA+gAAc5JTFgAAAAASUVORK5CYII=")
"""A PNG of a hundred bytes that says it has 10,000 million pixels."""


def read(source, **options):
    records = list(iter_documents(source, SourceOptions(**options)))
    good = {record.doc_id: record for record in records if isinstance(record, SourceDocument)}
    return good, {Path(record.path).name: record.reason for record in records if isinstance(record, Rejected)}


def test_kinds_and_names():
    for kind, media in {"PNG": "png", "JPEG": "jpeg", "GIF": "gif", "WEBP": "webp", "BMP": "bmp", "TIFF": "tiff"}.items():
        assert picture_type(saved(drawn(), kind)) == f"image/{media}"
    assert picture_type(b"RIFF....WAVE") is None is picture_type(b"<svg onload='x'>") is picture_type(b"")
    assert parted(inside("a/b#c.pdf", 2, 13)) == ("a/b#c.pdf", 13, 2) and parted(inside("x.docx", 4)) == ("x.docx", None, 4)
    assert parted("a.png") is None and parted("a.pdf#page=3") is None


def piece(text, left, top, wide=60, high=20):
    return Piece(text, left, top, left + wide, top + high)


TICKS = [piece(number, 0, top, 30) for number, top in (("200", 40), ("100", 120), ("0", 200))]
BARS = [piece("120", 105, 110, 30), piece("45", 207, 170, 24), piece("Corn", 100, 220, 40), piece("Rye", 205, 221, 30)]
AROUND = [Piece("Tonnes", 50, 60, 68, 140), piece("Harvest", 120, 0, 90)]
POINTS = [piece("14.2", 48, 60, 40), piece("12.7", 148, 100, 40), piece("6.3", 252, 170, 30)]
YEARS = [piece(year, left, 230, 40) for year, left in (("1850", 45), ("1900", 145), ("2000", 248))]


@pytest.mark.parametrize(("pieces", "lines"), [
    ([piece("Train", 10, 10), piece("Time", 210, 12), piece("E 207", 10, 50), piece("09:45", 212, 48), piece("late", 75, 51, 30)],
     "Train | Time\n\nE 207 late | 09:45"),
    ([piece("the bridge of Harrow was re-", 0, 0, 300), piece("paired by the firm of Marsh.", 0, 30, 300), piece("Ada", 0, 90, 40)],
     "the bridge of Harrow was repaired by the firm of Marsh.\n\nAda"),
    ([], ""), (TICKS + BARS + AROUND, "Harvest\n\nCorn | 120\n\nRye | 45\n\nTonnes\n\n200 | 100 | 0"),
    (TICKS + POINTS + YEARS, "1850 | 14.2\n\n1900 | 12.7\n\n2000 | 6.3\n\n200 | 100 | 0"),
])  # fmt: skip
def test_lines_of_tables_prose_and_charts(pieces, lines):
    assert lines_of(pieces) == lines
    assert "Corn | Rye" in lines_of([*BARS, piece("60", 112, 80, 24)])  # two values above one name: which is which is not said


def test_bad_pictures_are_counted_and_the_rest_is_read(tmp_path):
    good = saved(drawn())
    bad = {
        "none.png": (b"no picture, whatever its name", records.NOT_A_PICTURE),
        "script.gif": (b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", records.NOT_A_PICTURE),
        "zero.jpg": (b"", records.EMPTY_FILE),
        "cut.png": (good[: len(good) // 2], records.DAMAGED_PICTURE),
        "cut.jpg": (saved(drawn(), "JPEG")[:300], records.DAMAGED_PICTURE),
        "head.webp": (b"RIFF\x10\0\0\0WEBPVP8 ", records.DAMAGED_PICTURE),
        "bomb.png": (BOMB, records.TOO_MANY_PIXELS),
        "large.bmp": (b"BM" + bytes(2**25), records.TOO_LONG),
    }
    for name, (data, _) in bad.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "circle.png").symlink_to("circle.png")
    (tmp_path / "out.png").symlink_to(Path(__file__))
    (tmp_path / "harrow bridge.png").write_bytes(good)
    found, reasons = read(tmp_path)
    expected = {name: reason for name, (_, reason) in bad.items()} | {"circle.png": records.UNREADABLE, "out.png": records.LINK_OUT}
    assert {name: reason for name, reason in reasons.items() if reason != records.UNREAD_PICTURE} == expected
    assert list(found) == ["harrow bridge.png"] and found["harrow bridge.png"].media == str(tmp_path / "harrow bridge.png")


def test_pictures_of_every_mode(tmp_path):
    """An animated one is its first, CMYK, 16 bits, transparency, a palette, one turned by a note in its EXIF."""
    exif = Image.Exif()
    exif[0x0112] = 6
    clear = Image.new("RGBA", (360, 120), (0, 0, 0, 0))
    ImageDraw.Draw(clear).text((30, 35), "Harrow 1931", fill="white", font=ImageFont.load_default(40))
    kinds = {
        "animated bridge.gif": saved(drawn(mode="P"), "GIF", save_all=True, append_images=[Image.new("P", (360, 120))] * 3),
        "cmyk bridge.jpg": saved(drawn(mode="CMYK"), "JPEG"),
        "deep bridge.png": saved(drawn(mode="L").convert("I").point(lambda value: value * 257).convert("I;16"), "PNG"),
        "clear bridge.png": saved(clear),
        "grey bridge.webp": saved(drawn(mode="LA"), "WEBP"),
        "palette bridge.png": saved(drawn(mode="P"), transparency=0),
        "turned bridge.jpg": saved(drawn().rotate(90, expand=True), "JPEG", exif=exif, quality=95),
        "bits bridge.tif": saved(drawn(mode="1"), "TIFF"),
    }
    for name, data in kinds.items():
        (tmp_path / name).write_bytes(data)
    found, reasons = read(tmp_path)
    assert set(found) == set(kinds) and set(reasons.values()) <= {records.UNREAD_PICTURE}
    if recognises():
        assert [name for name, record in found.items() if "1931" not in record.text] == []


@pytest.mark.usefixtures("blind")
def test_captions_and_names(tmp_path):
    for name in ("harbour-in_winter.jpg", "IMG_0412.png", "a.png", "b.png", "c.png"):
        (tmp_path / name).write_bytes(saved(drawn(), "JPEG" if name.endswith("jpg") else "PNG"))
    (tmp_path / "a.png.txt").write_text("The harvest of 1931.")
    (tmp_path / "b.caption").write_text("Ada Smith on the bridge.")
    (tmp_path / "c.png.caption").write_bytes(b"\xff\xfe\x00")
    found, reasons = read(tmp_path)
    assert {name: record.text for name, record in found.items()} == {
        "a.png": "The harvest of 1931.",
        "b.png": "Ada Smith on the bridge.",
        "harbour-in_winter.jpg": "harbour in winter",
    }
    assert found["a.png"].title == "a" and found["a.png"].media_sum == picture_sum((tmp_path / "a.png").read_bytes())
    assert reasons == {"IMG_0412.png": records.NO_WORDS, "c.png": records.NO_WORDS} | dict.fromkeys(
        ("a.png", "b.png", "harbour-in_winter.jpg"), records.UNREAD_PICTURE
    )


@pytest.mark.usefixtures("blind")
def test_what_is_not_installed_is_said_and_is_no_error(tmp_path):
    (tmp_path / "harrow bridge.png").write_bytes(saved(drawn()))
    made = build_corpus([tmp_path], tmp_path / "corpus", vocab_size=300, block_length=48, workers=1, strict=True)
    assert made.rejected == {"text in pictures (pip install 'realm-qa[ocr]' reads it)": 1} and made.documents == 1


PAGE = """# The valley

Three crops grow here.

![The harvest of corn and rye](pictures/harvest.png "Tonnes of 1931")

*Figure 1: What the farms brought in.*

![](<pictures/my map.png>) ![x](../secret.png) ![x](https://example.org/logo.png) ![The castle seen from afar](http://example.org/c.png)
![vector](drawing.svg) ![pixel](data:image/png;base64,AAAA)
"""


@pytest.mark.usefixtures("blind")
def test_pictures_of_a_markdown_page_are_read_with_it_alone(tmp_path):
    folder = tmp_path / "notes"
    (folder / "pictures").mkdir(parents=True)
    (folder / "valley.md").write_text(PAGE)
    for path in (folder / "pictures/harvest.png", folder / "pictures/my map.png", tmp_path / "secret.png"):
        path.write_bytes(saved(drawn()))
    found, _ = read(folder)
    assert list(found) == ["valley.md", "valley.md#picture=1", "valley.md#picture=5", "pictures/my map.png"]
    harvest, castle = found["valley.md#picture=1"], found["valley.md#picture=5"]
    assert harvest.text == "The harvest of corn and rye\n\nTonnes of 1931\n\nFigure 1: What the farms brought in."
    assert (harvest.title, harvest.line, harvest.media) == ("The valley", 1, str(folder / "pictures/harvest.png"))
    assert (
        castle.media == "http://example.org/c.png"
        and castle.media_sum == ""
        and castle.text == "The castle seen from afar\n\nThree crops grow here."
    )


@pytest.mark.usefixtures("blind")
def test_a_page_leads_no_reader_out_of_its_folder(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    (tmp_path / "secret.png").write_bytes(saved(drawn()))
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "circle.png").symlink_to("circle.png")
    names = ["../secret.png", "link.png", "circle.png", f"file://{tmp_path}/secret.png", str(tmp_path / "secret.png"), "a\0b.png", "."]
    (folder / "a.md").write_text("Words.\n\n" + "\n\n".join(f"![A picture of three words](<{name}>)" for name in names))
    found, reasons = read(folder)
    assert all(not record.media_sum for record in found.values()) and len(found) > 3
    assert {name: reasons[name] for name in ("link.png", "circle.png")} == {"link.png": records.LINK_OUT, "circle.png": records.UNREADABLE}


def test_figures_of_html():
    page = (
        '<p>The harbour is <img src="h.png" alt="A harbour"> old.</p><img src="icon.png" width="16" height="16px" alt="x">'
        '<figure><img src="a.png?v=2" alt="Chart"><figcaption>Figure 1: the <b>fish</b> caught.</figcaption></figure>'
        '<p>After it.</p><div><img data-src="lazy.jpg"></div><script>"<img src=no.png>"</script>'
    )
    assert [tuple(figure) for figure in page_of(page)[2]] == [
        ("h.png", ["A harbour", ""], "The harbour is old."),
        ("a.png?v=2", ["Chart", "", "Figure 1: the fish caught."], "The harbour is old."),
        ("lazy.jpg", ["", ""], "After it."),
    ]
    many = "".join(f'<img src="{number}.png" alt="a">' for number in range(50_000))
    assert len(page_of(many)[2]) == 200 and page_of("<figure><img src='a.png'><figcaption>never ends")[2] != []


def test_pictures_of_a_pdf(tmp_path, pdf):
    pytest.importorskip("pypdfium2")
    path = tmp_path / "scan.pdf"
    drawn("Harrow 1931", size=(700, 500)).save(path, "PDF")
    found, reasons = read(path)
    if not recognises():
        assert not found
        return
    (picture,) = found.values()
    assert picture.doc_id == "scan.pdf#page=1&picture=1" and "1931" in picture.text and reasons == {}
    assert picture.media == f"{path}#page=1&picture=1"
    data = picture_bytes(picture.media, picture.media_sum)
    assert data is not None and picture_type(data) == "image/jpeg"
    assert picture_bytes(picture.media, picture_sum(b"another")) is None
    assert picture_bytes(f"{path}#page=7&picture=1", picture.media_sum) is None


@pytest.mark.parametrize(("matrix", "turned"), [((1, 1), 0), ((1, -1), 0), ((-1, 1), 0), ((-1, -1), 90), ((1, 1), 90), ((1, 1), 270)])
def test_a_picture_of_a_pdf_is_as_the_page_shows_it(tmp_path, matrix, turned):
    """One whose upper left corner is red: mirrored by the page, or turned with it."""
    pdfium, image = pytest.importorskip("pypdfium2"), Image.new("RGB", (120, 80), "white")
    image.paste("red", (0, 0, 40, 30))
    image.save(tmp_path / "plain.pdf", "PDF", quality=95)
    document = pdfium.PdfDocument(tmp_path / "plain.pdf")
    page = document[0]
    (shown,) = page.get_objects()
    shown.transform(pdfium.PdfMatrix().scale(*matrix))
    page.set_rotation(turned)
    page.gen_content()
    document.save(tmp_path / "x.pdf")
    (data,) = pictures.pictures_of_page((tmp_path / "x.pdf").read_bytes(), 1, 20)
    assert isinstance(data, bytes)
    for mirrored, step in zip(matrix, (Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.FLIP_TOP_BOTTOM), strict=True):
        image = image.transpose(step) if mirrored < 0 else image
    image = image.rotate(-turned, expand=True)
    with Image.open(io.BytesIO(data)) as shown:
        assert shown.size == image.size
        for x, y in ((10, 10), (shown.width - 10, 10), (10, shown.height - 10), (shown.width - 10, shown.height - 10)):
            assert (shown.convert("RGB").getpixel((x, y))[1] < 128) == (image.getpixel((x, y))[1] < 128), (x, y)


@pytest.mark.usefixtures("blind")
def test_pictures_of_a_word_file(tmp_path):
    document, path = pytest.importorskip("docx").Document(), tmp_path / "letter.docx"
    document.add_paragraph("The valley is deep.")
    document.add_picture(io.BytesIO(saved(drawn())))
    document.add_paragraph("Figure 1: The bridge of Harrow.")
    document.save(path)
    found, _ = read(path)
    picture = found["letter.docx#picture=1"]
    assert picture.text == "Figure 1: The bridge of Harrow." and picture.media == f"{path}#picture=1"
    assert picture_bytes(picture.media, picture.media_sum) == saved(drawn())


def test_only_the_picture_that_was_read_is_given_back(tmp_path):
    path, data = tmp_path / "a.png", saved(drawn())
    path.write_bytes(data)
    assert picture_bytes(str(path), picture_sum(data)) == data
    assert picture_bytes(str(path), "") is None is picture_bytes(str(tmp_path), picture_sum(data)) is picture_bytes("a\0", "b")
    path.write_bytes(data + b" ")
    assert picture_bytes(str(path), picture_sum(data)) is None
    path.unlink()
    os.mkfifo(path)
    assert picture_bytes(str(path), picture_sum(data)) is None  # and waits for nobody


@ENGINE
def test_words_are_recognised_once(tmp_path, monkeypatch):
    data = saved(drawn("Marsh 1907"))
    assert recognition.recognised(data, 60) == "Marsh 1907"
    monkeypatch.setattr(recognition, "read_limited", lambda *_: pytest.fail("recognised again"))
    assert recognition.recognised(data, 60) == "Marsh 1907"
    monkeypatch.setattr(recognition, "write_atomic", lambda *_: pytest.fail("nothing new"))
    assert recognition.recognised(data, 60) == "Marsh 1907"


@pytest.mark.usefixtures("blind")
def test_pictures_through_every_change_of_a_corpus(tmp_path):
    folder, corpus = tmp_path / "notes", tmp_path / "corpus"
    folder.mkdir()
    (folder / "harrow bridge.png").write_bytes(saved(drawn()))
    build_corpus([folder], corpus, vocab_size=300, block_length=48, workers=1)

    def shown():
        store = BlockStore.open(corpus)
        return [store.block(row).media_sum for row in range(len(store)) if store.live[row]]

    assert shown() == [picture_sum(saved(drawn()))]
    assert document_blocks(corpus, "harrow bridge.png")[0]["media"] == str(folder / "harrow bridge.png")
    assert sync_documents(corpus, [folder], workers=1).version == 1
    (folder / "harrow bridge.png").write_bytes(saved(drawn("another")))
    assert sync_documents(corpus, [folder], workers=1).version == 2
    assert shown() == [picture_sum(saved(drawn("another")))]  # its text is the same, and it is another picture
    compact_corpus(corpus, purge=True)
    assert shown() == [picture_sum(saved(drawn("another")))]


@pytest.mark.usefixtures("blind")
def test_pictures_beside_data_files_are_no_documents_and_alone_they_are(tmp_path):
    (tmp_path / "harrow bridge.png").write_bytes(saved(drawn()))
    assert list(read(tmp_path)[0]) == ["harrow bridge.png"]
    (tmp_path / "rows.jsonl").write_text('{"id": "1", "text": "A row."}\n')
    assert list(read(tmp_path)[0]) == ["1"]
    assert list(read(tmp_path, format="picture")[0]) == ["harrow bridge.png"]
