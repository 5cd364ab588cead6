"""PDF files as documents: the order of reading, tables, running heads, hyphens, fonts that name no characters; good files and bad."""

import base64
import zlib
from textwrap import wrap

import pytest

pytest.importorskip("pypdfium2")

from realm.documents.limited import Beyond
from realm.documents.pages import pdf as pdf_module
from realm.documents.records import REPEATED_PAGE, TOO_SLOW, UNDECODABLE, Rejected, SourceDocument
from realm.documents.sources import iter_documents

BRIDGE = ["The bridge over the Tirel was re-", "paired in 1931 by the company of", "Ada Smith (of Oslo)."]
LEFT = ["The old weir on the river Dorn", "was rebuilt by Ellen Marsh in the", "summer after the great flood."]
RIGHT = ["Ota Brand drew the new lock", "gates, which were cast in Velm", "and carried up by barge."]
LOCKED, OPEN = (
    "c-oCpzl#$=6z&IGTN#m*=lq`C#SkQyiznxCAvtYSyqTSu7>T>b?nLgc^bgR=*2+>5L=Y<#v{tYY3k$Ch#b1r3;Or)M24dm<fSK=o?|t9Ad5vDDyF^Yh(D=Cj`Yj+3!(3kj%_cybyW19`W#!d49|F`<Lt8=`2z}6M0h^hMNEZ@n9zbg&Q^JdoReX3Epyhm$c}V6`**{Y&p~430R0*wHGg9q*C)C2>l^DY~{B_052Vx2Nl-ajsJ}J^*vZ~k((dmLfabSA-&Gh-4{yCcs{Z%Myf2A+1x(+%=@BQfAx&8Iqr=`c8n`fTA{POeul~W%c4)-7Z+IoNF#RE1z@njGEzV+t&-FLmM&8O?nU#+!IAN#B?9aojetj<hMEF8D82+&}neZ8$f0#I9(wl<Ge?f8cEqg2hAmUC4uKpIXB*`a+x<Iq0HX~Gj3(IkYsqp`OIL<6rfqY4Ai25e$0Xow2MEVpsQQ<gfFYU>0cDq<?-Hl^CcQkc{*!zGO*;R%V9b|$jC1<-leG-<-L!6pg|mk1(^BP`N}IL#zWG>x_6Rs@Mi#EKKiF%Em_oKu+Kc>XSS3hMxd5x|EJltM589X!NHXki`6{$i3ZV1%*-j0&=VF-aFN&gL**sL|LKb*~4bJsa$yex8RZo(|mEP8iCjOLVHGGbR=;!Z9NXGae^lP_c`(Nn8Iz3FEwyrN!>Hhw@-pORoxFH%9UZG#V=#UGN7;p9oq",
    "c-oCqJ!lj`6t=J$v9buF#WYul=<fXQ;(0}WPDLg0^3#aL?9Q8H<=hRs6G?0>tYWRLMJfq`A~uR(ApyZc?5wo4u@MCe=k_ki!dkdLF!R0dz4yI0Z#oOJ{d43zL!GbRK7K+3hqy>?qiz=kOIz!JgBk7guvkUGf?kCRQ%@M6UJpTTMnu|jsCg*3nwbjU#B9XJw@@%sY~&7;hAaE0>nKqPo;uDHTnCfs>0;Bz3jHg?5J&#6Bj(N%E6m5t0aV3CnR=0<h<$GzF9;U<qQ~DPKX2r}2KlO6!?M;_xf1jp^m={g<%yGjF05^<-=DwiEIs`3VDIhD^W#77pL%ij$)z{DXYz}K)4#s2JbHI*Z+Uln>Z!c(Z0gmK_eVcGwxcAIIFoduRqjY43KlmKS8qokLBX`HpcWrohT&asS*jbNWh2T8roL*-4&)OW`SxK>V;)OIV{h(fLkA@e7M;$GE)5FiaaTxbb)*;oW2uT&YFHA7+!}3cM7Xw^absi6A}hgglEe`Qno6Uo*3ya|3YKx#ibxB>L<rhQA%xY|&_sYrL+>vW8YPy401nDCIgvaJ{a#vYbx6Xfc^0bKoXiaYcVl22LY@j6D;p&&wNf=*HcPO`4+9Dh9_(c>fh|73i0^uB$qzBfTNt6Ng;7CT7?ZSxan{BpSBID@bvA^uu5B^92VQb8C<=cW#&dfmw*^*{^{k)st}==+Cev6bB}Ej2O(PXkVMt=7A*}a56n{hJ^0eGqcUbPvf8})P>c+`9LY>asd>{P<UYHqz",
)
"""Encrypted with the password "secret", and with none for who only reads."""


def test_the_pages_of_a_pdf_are_documents(tmp_path, pdf):
    (tmp_path / "report.pdf").write_bytes(pdf(BRIDGE, [], ["It was closed again in 1950."]))
    first, scan, third = iter_documents(tmp_path / "report.pdf")
    assert isinstance(first, SourceDocument) and isinstance(third, SourceDocument)
    assert (first.doc_id, first.title, first.line) == ("report.pdf#page=1", "report", 1)
    assert first.text == "The bridge over the Tirel was repaired in 1931 by the company of Ada Smith (of Oslo)."
    assert (third.doc_id, third.text) == ("report.pdf#page=3", "It was closed again in 1950.")
    assert scan == Rejected(str(tmp_path / "report.pdf"), 2, "empty text")


def test_a_folder_of_several_kinds(tmp_path, pdf):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "report.pdf").write_bytes(pdf(BRIDGE))
    (tmp_path / "note.txt").write_text("A note.")
    ids = [record.doc_id for record in iter_documents(tmp_path) if isinstance(record, SourceDocument)]
    assert ids == ["note.txt", "sub/report.pdf#page=1"]


def test_a_pdf_that_cannot_be_read(tmp_path, pdf):
    good, path = pdf(BRIDGE), tmp_path / "x.pdf"
    path.write_bytes(zlib.decompress(base64.b85decode(LOCKED)))
    assert list(iter_documents(path)) == [Rejected(str(path), 0, "needs a password")]
    for data in (b"%PDF-1.7", good[:200], b"%PDF-1.4\n" + bytes(range(256)) * 8):
        path.write_bytes(data)
        (record,) = iter_documents(path)
        assert isinstance(record, Rejected) and record.reason in ("damaged file", "file without documents"), data[:20]


def test_an_open_password_is_no_password(tmp_path):
    (tmp_path / "x.pdf").write_bytes(zlib.decompress(base64.b85decode(OPEN)))
    (record,) = iter_documents(tmp_path / "x.pdf")
    assert isinstance(record, SourceDocument) and record.title == "The bridge"


def texts(path, data):
    path.write_bytes(data)
    return [record.text for record in iter_documents(path) if isinstance(record, SourceDocument)]


def placed(left, top, lines, leading=14):
    return [(left, top - leading * at, line) for at, line in enumerate(lines)]


WHOLE = "The old weir on the river Dorn was rebuilt by Ellen Marsh in the summer after the great flood."
OTHER = "Ota Brand drew the new lock gates, which were cast in Velm and carried up by barge."
LONG = "This line of the chapter goes from the left edge of the page to the right one and is"


PUMPS = [["Article", "S110", "S180", "S250D"], ["Description", "Pump for clean water", "Pump for clean water", "Pump for dirty water"],
         ["Flow l/min", "110", "180", "250"], ["Power W", "400", "750", "1100"], ["Price", "189.00", "264.00", "398.50"]]  # fmt: skip
PRICES = [item for left, cells in zip((50, 130, 330, 410, 480), PUMPS, strict=True) for item in placed(left, 700, cells)]
ORDERS = "Within the valley orders over five hundred pounds, those for pumps too, are"
PRICED = [" | ".join(row) for row in zip(*PUMPS, strict=True)]


@pytest.mark.parametrize(("page", "paragraphs"), [
    ([*placed(50, 700, LEFT), *placed(320, 700, RIGHT)], [WHOLE, OTHER]),
    ([line for both in zip(placed(50, 700, LEFT), placed(320, 700, RIGHT), strict=True) for line in both], [WHOLE, OTHER]),
    ([*placed(50, 700, LEFT), *placed(320, 693, RIGHT)], [WHOLE, OTHER]),
    ([(50, 740, LONG + " long."), *placed(50, 700, LEFT), *placed(320, 700, RIGHT)], [LONG + " long.", WHOLE, OTHER]),
    ([*placed(320, 700, LEFT), *placed(50, 700, ["All of the people of Velm", "came to the weir and said", "that"])],
     ["All of the people of Velm came to the weir and said that", WHOLE]),
    (placed(50, 700, ["Ann", "Otto"]) + placed(150, 700, ["1950", "1931"]) + placed(300, 700, ["Oslo", "Velm"]),
     ["Ann | 1950 | Oslo", "Otto | 1931 | Velm"]),
    ([*placed(50, 700, ["Name", "Ann", "Otto"]), (150, 700, "Born"), (150, 672, "1931"), *placed(300, 700, ["Town", "Oslo", "Velm"])],
     ["Name | Born | Town", "Ann | | Oslo", "Otto | 1931 | Velm"]),
    (placed(50, 700, ["-v", "-n NAME"]) + placed(150, 700, ["says more", "names the"]) + placed(150, 672, ["file"]),
     ["-v | says more", "-n NAME | names the file"]),
    (placed(50, 700, ["1.", "2."]) + placed(75, 700, ["Open the gate.", "Close it."]), ["1. Open the gate.", "2. Close it."]),
    (placed(50, 700, ["The weir . . . . . . . . . . . . 7", "The lock . . . . . . . . . . . . 9"]), ["The weir 7", "The lock 9"]),
    (b"BT /F1 40 Tf 50 673 Td (T) Tj /F1 12 Tf 26 27 Td (he old weir on) Tj 0 -14 Td (the river Dorn) Tj -26 -14 Td (is old) Tj ET",
     ["The old weir on the river Dorn is old"]),
    ([*placed(50, 700, [LONG, "full."]), *placed(50, 650, [LONG, "full again."])], [f"{LONG} full.", f"{LONG} full again."]),
    ([*placed(50, 700, [LONG, "short."]), (70, 672, LONG), (50, 658, "the end.")], [f"{LONG} short.", f"{LONG} the end."]),
    (PRICES, PRICED),
    ([(50, 714, "Pumps that lie in water"), *PRICES, *placed(50, 630, [ORDERS, "delivered to the gate."])],
     ["Pumps that lie in water", *PRICED, f"{ORDERS} delivered to the gate."]),
    ([*PRICES, (50, 644, "Pumps that stand in a cellar"), *((x, y - 70, words) for x, y, words in PRICES)],
     [*PRICED, "Pumps that stand in a cellar", *PRICED]),
])  # fmt: skip
def test_the_order_of_reading(tmp_path, pdf, page, paragraphs):
    assert texts(tmp_path / "x.pdf", pdf(page)) == ["\n\n".join(paragraphs)]


COURIER = b"<< /Type /Font /Subtype /Type1 /BaseFont /Courier /Encoding /WinAnsiEncoding >>"
MENU = [["Oat soup", "Rye bread", "of the day", "Plum cake", "Cider", "Hot milk"], ["4 crowns"] * 6, ["on Monday", "all week"] * 3]


@pytest.mark.parametrize("width", [11, 12, 13, 14, 15, 16, 17, 18, 19, 0])
def test_three_columns_of_short_lines_and_a_table(tmp_path, pdf, width):
    told = [WHOLE, OTHER, "A ferry still crosses above the weir. It is run by Karla Brink, who took it over and kept the old timetable."]
    columns = [wrap(text, width) for text in told] if width else MENU
    page = [line for left, lines in zip((50, 200, 350), columns, strict=True) for line in placed(left, 700, lines)]
    told = told if width else [" | ".join(row) for row in zip(*MENU, strict=True)]
    assert texts(tmp_path / "x.pdf", pdf(page, font=COURIER)) == ["\n\n".join(told)]


def test_a_page_that_is_named_often_is_read_once(tmp_path, pdf):
    (path := tmp_path / "x.pdf").write_bytes(pdf(BRIDGE).replace(b"[5 0 R] /Count 1", b"[5 0 R 5 0 R 5 0 R 5 0 R] /Count 4"))
    found = list(iter_documents(path))
    assert isinstance(found[0], SourceDocument) and found[1:] == [Rejected(str(path), page, REPEATED_PAGE) for page in (2, 3, 4)]


def test_figures_are_raised_and_lowered(tmp_path, pdf):
    text = b"/F1 1 Tf (10) Tj /F1 .6 Tf .4 Ts (6) Tj 0 Ts /F1 1 Tf ( l of CO) Tj /F1 .6 Tf -.2 Ts (2) Tj 0 Ts /F1 1 Tf ( in 2019) Tj"
    assert texts(tmp_path / "x.pdf", pdf(b"BT 12 0 0 12 50 700 Tm " + text + b" ET")) == ["10⁶ l of CO₂ in 2019"]


def test_words_written_upwards_or_across_the_page_stand_behind_the_text(tmp_path, pdf):
    lines = b" ".join(b"BT /F1 12 Tf 100 %d Td (%s) Tj ET" % (700 - 14 * at, line.encode()) for at, line in enumerate(wrap(WHOLE, 40)))
    beside = b" BT 0 1 -1 0 60 600 Tm (Number of mills in the county) Tj ET BT 1 0 .3 1 100 560 Tm (leant) Tj ET"
    beside += b" BT /F1 60 Tf .7 .7 -.7 .7 150 300 Tm (A DRAFT) Tj ET"
    assert texts(tmp_path / "x.pdf", pdf(lines + beside)) == [f"{WHOLE}\n\nleant\n\nNumber of mills in the county\n\nA DRAFT"]


BODY = ["The weir of {} stands since the great flood of that year, the worst of them all, and is", "kept by the people of the town."]


def page_of(town, *edges):
    return [*placed(50, 700, [line.format(town) for line in BODY]), *edges]


@pytest.mark.parametrize("edges", [
    lambda number: [(50, 770, "The Weirs of the Dorn")],
    lambda number: [(300, 30, str(number))],
    lambda number: [(50, 770, "The Weirs of the Dorn"), (500, 770, str(number + 11))],
    lambda number: [(250, 30, f"Page {number} of 4")],
    lambda number: [(250, 30, f"- {number} -")],
    lambda number: [(50, 770, f"{number} {['Velm', 'Oslo', 'Tirel', 'Harrow'][number - 1]}")],
    lambda number: [(300, 30, ["i", "ii", "iii", "iv"][number - 1])],
])  # fmt: skip
def test_running_heads_and_page_numbers_are_left_out(tmp_path, pdf, edges):
    towns = ["Velm", "Oslo", "Tirel", "Harrow"]
    found = texts(tmp_path / "x.pdf", pdf(*(page_of(town, *edges(number)) for number, town in enumerate(towns, 1))))
    assert found == [" ".join(BODY).format(town) for town in towns]


def test_what_only_looks_like_a_head_stays(tmp_path, pdf):
    sums = ["310", "12", "77"]
    found = texts(tmp_path / "x.pdf", pdf(*(page_of("Velm", (50, 600, f"Total {value}")) for value in sums)))
    assert [text.rpartition("\n")[2] for text in found] == [f"Total {value}" for value in sums]
    assert len(texts(tmp_path / "x.pdf", pdf(*[["The same line on each page."]] * 4))) == 4


UNNAMED = b"<< /Type /Font /Subtype /Type1 /BaseFont /XYZABC+Foo /Encoding << /Type /Encoding /Differences [65 %s] >> >>"
NAMES = b" ".join(b"/g%d" % number for number in range(1, 58))
PRIVATE = (
    b"<< /Length 91 >>\nstream\n1 begincodespacerange <00> <ff> endcodespacerange 1 beginbfrange <41> <7a> <e041> endbfrange\nendstream"
)


@pytest.mark.parametrize(("font", "more"), [
    (UNNAMED % NAMES, []), (UNNAMED % NAMES.replace(b"/g", b"/G"), []), (UNNAMED % NAMES.replace(b"/g", b"/c"), []),
    (b"<< /Type /Font /Subtype /Type1 /BaseFont /XYZABC+Foo /Encoding /WinAnsiEncoding /ToUnicode 4 0 R >>", [PRIVATE]),
])  # fmt: skip
def test_a_font_that_names_no_characters(tmp_path, pdf, font, more):
    (path := tmp_path / "x.pdf").write_bytes(pdf(["FRG ABCDEF ABC QRSU", "HIJK LMNOP ABCD"], font=font, more=more))
    assert list(iter_documents(path)) == [Rejected(str(path), 1, UNDECODABLE)]


def test_a_page_that_cannot_be_decoded_is_read_as_a_picture(tmp_path, pdf, monkeypatch):
    monkeypatch.setattr(pdf_module, "recognises", lambda: True)
    monkeypatch.setattr(pdf_module, "recognised", lambda data, seconds: "The old weir was rebuilt." * data.startswith(b"\x89PNG"))
    assert texts(tmp_path / "x.pdf", pdf(["FRG ABCDEF"], font=UNNAMED % NAMES)) == ["The old weir was rebuilt."]


def test_words_that_a_page_writes_in_other_ways(tmp_path, pdf):
    """Turned pages, fields of forms with what was written into them, and notes."""
    note, field = "/Subtype /Text /Contents (See the plan.)", "/Subtype /Widget /FT /Tx /T (Name) /V (Ada Smith)"
    notes = [f"<< /Type /Annot /Rect [0 0 9 9] {entries} >>".encode() for entries in (note, field)]
    assert texts(tmp_path / "x.pdf", pdf(["A form."], page=b" /Annots [4 0 R 5 0 R]", more=notes)) == [
        "A form.\n\nSee the plan.\n\nName: Ada Smith"
    ]


@pytest.mark.parametrize("turned", [0, 90, 270])
def test_a_page_that_lies_on_its_side(tmp_path, pdf, turned):
    columns = [*placed(50, 700, LEFT), *placed(320, 700, RIGHT)]
    assert texts(tmp_path / "x.pdf", pdf(columns, page=b" /Rotate %d" % turned)) == [f"{WHOLE}\n\n{OTHER}"]
    short = placed(50, 700, ["It is so old that no man of the town can say", "who put it up or if it was he."])
    assert texts(tmp_path / "x.pdf", pdf(short, page=b" /Rotate %d" % turned)) == [" ".join(line for *_, line in short)]


TAKES = {0: 1.0, 1: 9.0, 2: 1.0, 3: 1.0}
"""Seconds of each page of a file."""


def _paging(kind, data, seconds, most):
    parts, used = [["A title", len(TAKES)]], 0.0
    for number in range(int(data.partition(b"\n")[0]), len(TAKES)):
        if TAKES[number] > seconds or used > most:
            return parts, used + seconds, Beyond(TOO_SLOW)
        parts.append([[[f"Page {number}.", True, 300, None]], 0, False])
        used += TAKES[number]
    return parts, used, None


@pytest.mark.parametrize(("seconds", "pages", "trouble"), [
    (40.0, ["p", "p", "p", "p"], ""), (20.0, ["p", TOO_SLOW, "p", "p"], ""), (4.0, ["p", TOO_SLOW, "p", "p"], ""),
    (1.0, [TOO_SLOW, TOO_SLOW, TOO_SLOW], TOO_SLOW),
])  # fmt: skip
def test_a_page_beyond_the_limits_costs_only_itself(monkeypatch, seconds, pages, trouble):
    monkeypatch.setattr(pdf_module, "read_parts", _paging)
    title, found, why = pdf_module._pages_within(b"", seconds)
    assert [page if isinstance(page, str) else "p" for page in found] == pages and (title, why) == ("A title", trouble)


@pytest.mark.parametrize(("pages", "found"), [
    ((["It was built by the com-"], ["pany of Ada Smith."]), ["It was built by the company", "of Ada Smith."]),
    ((["Built by the com-", (50, 90, "1 See the list."), (50, 70, "2 See *.")], ["pany of Velm."]),
     ["Built by the company\n\n1 See the list.\n\n2 See *.", "of Velm."]),
    ((["1 Go on", "2 Ask the com-"], ["pany of Velm."]), ["1 Go on\n\n2 Ask the company", "of Velm."]),
    ((["It is a long-"], ["term plan."]), ["It is a long-term", "plan."]),
    ((["It is a well-"], ["known", "plan."]), ["It is a well-known", "plan."]),
    ((["They are pre-"], ["and postwar."]), ["They are pre-", "and postwar."]),
    ((["It is by Smith-"], ["Jones of Velm."]), ["It is by Smith-", "Jones of Velm."]),
    ((["It was -"], ["as said - new."]), ["It was -", "as said - new."]),
    ((["See example.org."], ["and more."]), ["See example.org.", "and more."]),
    ((["It was re-"], [], ["paired."]), ["It was re-", "paired."]), ((["It was re-"], ["paired"]), ["It was re-", "paired"]),
    ((["It was re-"], ["paired by the com-"], ["pany of Velm."]), ["It was repaired", "by the company", "of Velm."]),
])  # fmt: skip
def test_a_word_that_the_end_of_a_page_parts(tmp_path, pdf, pages, found):
    assert texts(tmp_path / "x.pdf", pdf(*pages)) == found
