"""Slides, sheets and rich text: their words in order, values behind their heads, and damaged files."""

import io
from base64 import b64decode, b85decode
from zipfile import ZipFile
from zlib import decompress

import pytest

from realm.documents.pages import office
from realm.documents.pages.office import rtf, sheets
from realm.documents.records import DAMAGED_FILE, Rejected
from realm.documents.sources import iter_documents

pptx = pytest.importorskip("pptx", reason="needs the extra office")
xlsxwriter = pytest.importorskip("xlsxwriter", reason="python-pptx brings it")


def book(sheets_of_rows, formatted=None):
    file = io.BytesIO()
    with xlsxwriter.Workbook(file) as made:
        for name, rows in sheets_of_rows.items():
            sheet = made.add_worksheet(name)
            for number, row in enumerate(rows):
                sheet.write_row(number, 0, row)
            if formatted is not None:
                place, form = formatted
                sheet.write(place, rows[2][2], made.add_format({"num_format": form}))
    return file.getvalue()


@pytest.mark.parametrize(("rows", "text"), [
    ([["Item", "Price"], ["Boiler", 4200.0]], "Item | Price\nItem: Boiler | Price: 4200"),
    ([["Prices of 2025"], ["Item", "Price"], ["Key", 12.5]], "Prices of 2025\nItem | Price\nItem: Key | Price: 12.5"),
    ([["", "2024", "2025"], ["East", 3, 4]], " | 2024 | 2025\nEast | 2024: 3 | 2025: 4"),
    ([["Name", "Born", "Died"], ["Ann", "", 1950]], "Name | Born | Died\nName: Ann | Died: 1950"),
    ([["Ann", 7, ""], ["Bob", 8, 9]], "Ann | 7\nBob | 8 | 9"), ([["one note"], ["another"]], "one note\nanother"),
    ([["a\nb", "c"], ["d", "e"]], "a b | c\na b: d | c: e"), ([["Done", "On"], [True, "x"]], "Done | On\nDone: True | On: x"),
    ([["Größe", "Maß"], ["Fuß", "30 cm"]], "Größe | Maß\nGröße: Fuß | Maß: 30 cm"),
    ([["", "", ""], ["Item", "Price", ""], ["Key", 3, ""]], "Item | Price\nItem: Key | Price: 3"),
])  # fmt: skip
def test_rows_stand_behind_their_heads(rows, text):
    assert sheets(book({"One": rows})) == [("One", text)]


@pytest.mark.parametrize(("value", "form", "text"), [
    (0.5, "0 %", "50 %"), (0.1234, 9, "12%"), (0.1234, 10, "12.34%"), (0.125, "0.##%", "12.5%"), ("0.5", "0 %", "0.5"),
    (1234.5, "#,##0.00 [$\u20ac-407]", "1,234.50 \u20ac"), (-1200, '_("$"* #,##0_);_("$"* (#,##0)', "-$1,200"),
    (5, '0.0" kg"', "5.0 kg"), (7, '"No. "0', "No. 7"), (0.123, "0.0", "0.123"), (1234567, "#,##0", "1234567"),
    (1500000, '0.0,,"M"', "1500000"), (2, "# ?/?", "2"), (2000, "General", "2000"), (45366, 57, "2024-03-15"),
    (45366, "[$-407]d. mmmm yyyy;@", "2024-03-15"), (45366, 'yyyy"\u5e74"m"\u6708"', "2024-03-15"),
    (1234, "00000", "01234"), (12, "00-00", "12"), (0.5, "0", "0.5"), (0.1 + 0.2, 0, "0.3"),
    (45366.25, 22, "2024-03-15 06:00:00"), (1.5625, "[h]:mm", "37:30"),
])  # fmt: skip
def test_a_number_is_read_as_its_cell_shows_it(value, form, text):
    assert sheets(book({"\u00dc": [[""], ["", "Item", "Value"], ["", "x", value]]}, ("C3", form))) == [
        ("\u00dc", f"Item | Value\nItem: x | Value: {text}")
    ]


XLS = b85decode(
    "c-rk)O=uHA6#izrZGPIONt-CG5JHMoYte`oFKx7-Ma5F>K@maIX04$$k+m1SSgkn<f+xjGu_}U8z4(I)dh;N(=s^&KM30^X1rKf4_g*%&tq~g3g1X-_Z{EB&Z|3dHo1f"
    "jO$v|%GUQ-^6(18lfS{_u*lPOA`V!;p6TNbm$+)c@H@K?d(rirYo#N*nRE}lc4?>scz)t?gu-cve+6X?#QjmR>hQ+!A$_Mx4q!c~&^&?sKj3+)%$AoPyZd?IwKNG=F%r"
    "@A?H5R>ul)-84vAJC$r^MTuaAU1DBvI!x);3z(GQ5EV|Vw;&t4E?`~uwH|4P;7J=X~X35N?fOHK;4csqYcgU#IS)<3}L+*H#mY~k?7z+G^~4ZlbS({kwcJF<M?7lfX~H"
    "U<XOa#FRxsI<X;!cT|be#X{JlbJv{#<<X)QoQu1nwgT?YonhuP>IwFfZON((zFKj?PW~$#fIgO1RJCaDTbJ#detmr83J(e&HinPv5YRE82-<wD$y?j2&e&%1WpVi7buO"
    "XU5o$vu!?S6W}>06&(?dj`@9~Q}ooMDBNZZ$gy3uoDajD4c1n4_&?v0msoX?2zGO+tg@IOQ!pA)DDTDs|3_wuSoHEO;GXGml?OeD>qshvDpp_&VYzy7H%k6K~>Uh|-WJ"
    "$)2B4w5c|A<uc<@yqGI{S9~Y5@rNDKt@&-=E&DjH!wkH_280$$JUVKwq}gM|)~bZH5^Elhr_?`tSC8G-8mZ3#v1U81gq<dKx^2fJ6U0#}g|MrE?K-r2+~-QPn}3HF4je"
    "de;J|?c2M&G>N^WU|8?A0%xB1TOvj6MMP?~jqll-&ThYUT#^l`QwY06EUDl2|gpi&jvQcJWc{x4+gr`}BrqEGx7EIWSb+d<8LpCudmf8P=+xBuC4{QSfHe*;8{^<e"
)
"""A workbook in the format of Excel 97, compressed: €#,##0.00, 0%, 0 "kg" and 00000 are the formats of its four numbers."""


def test_a_number_of_an_xls_file_is_read_as_its_cell_shows_it():
    book = decompress(XLS)
    text = "Item | Price | Share\nItem: Boiler | Price: €4,200.50 | Share: 25%\nItem: Sand | Price: 25 kg | Share: 01234"
    assert sheets(book) == [("Prices", text)]
    damaged = book.replace(b'0\\ "kg"', b"\xff" * 6).replace(b'"kg"', b"\xff" * 4)
    assert sheets(damaged)[0][1].startswith("Item | Price")


def test_a_string_keeps_what_is_raised_and_not_what_is_struck_out(monkeypatch):
    with xlsxwriter.Workbook(file := io.BytesIO()) as made:
        sheet, up, gone = made.add_worksheet("One"), made.add_format({"font_script": 1}), made.add_format({"font_strikeout": 1})
        down, bold = made.add_format({"font_script": 2}), made.add_format({"bold": True})
        sheet.write_rich_string("A1", bold, "10", up, "6", bold, " of CO", down, "2")
        sheet.write_rich_string("B1", "for ", gone, "100", bold, "<80>")
    assert sheets(file.getvalue()) == [("One", "10\u2076 of CO\u2082 | for <80>")]
    monkeypatch.setattr(office, "MOST_UNPACKED", 999)
    assert sheets(file.getvalue()) == [("One", "106 of CO2 | for 100<80>")]


def test_numbers_of_opendocument_are_read_as_they_are_shown():
    told = [("string", "", "Item"), ("percentage", 0.5, "50 %"), ("currency", 1200, "1.200,00 \u20ac"), ("float", 1234.5, "1.234,5")]
    cell = "<table:table-cell office:value-type='{}' office:{}value='{}'><text:p>{}</text:p></table:table-cell>"
    rows = "<table:table-row table:number-rows-repeated='2'><table:table-cell/></table:table-row>"
    rows += "<table:table-row><table:table-cell table:number-columns-repeated='2'/>"
    cells = "".join(cell.format(kind, "no" * (value == ""), value, text) for kind, value, text in told)
    table = f"<table:table table:name='S'>{rows}{cells}</table:table-row></table:table>"
    names = ("office", "table", "text")
    spaces = " ".join(f"xmlns:{name}='urn:oasis:names:tc:opendocument:xmlns:{name}:1.0'" for name in names)
    body = f"<office:body><office:spreadsheet>{table}</office:spreadsheet></office:body>"
    with ZipFile(file := io.BytesIO(), "w") as made:
        made.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        made.writestr("META-INF/manifest.xml", "<m/>")
        made.writestr("content.xml", f"<office:document-content {spaces}>{body}</office:document-content>")
    assert sheets(file.getvalue()) == [("S", "Item | 50 % | 1.200,00 \u20ac | 1234.5")]


def test_every_part_of_a_merged_cell_says_the_same():
    with xlsxwriter.Workbook(file := io.BytesIO()) as made:
        sheet = made.add_worksheet("Rent")
        for place, said in (("B2:E2", "Rents"), ("B3:B4", "Who"), ("C3:D3", 2024), ("B6:B7", "Bo"), ("H20:I21", "")):
            sheet.merge_range(place, said)
        for place, said in (("E3", 2025), ("C4", "Q1"), ("D4", "Q2"), ("B5", "Ida"), ("C5", 1), ("D5", 2), ("E5", 3), ("C6", 4), ("D7", 5)):
            sheet.write(place, said)
    rows = "Who: Who | 2024: Q1 | 2024: Q2", "Who: Ida | 2024: 1 | 2024: 2 | 2025: 3", "Who: Bo | 2024: 4", "Who: Bo | 2024: 5"
    assert sheets(file.getvalue()) == [("Rent", "\n".join(("Rents", "Who | 2024 | 2024 | 2025", *rows)))]


def test_each_sheet_is_a_document_and_an_empty_one_is_none(tmp_path):
    (tmp_path / "prices.xlsx").write_bytes(book({"Keys": [["a", "b"], ["c", "d"]], "None": [], "Doors": [["e", "f"], ["g", "h"]]}))
    found = list(iter_documents(tmp_path / "prices.xlsx"))
    assert [(one.doc_id, one.title) for one in found] == [("prices.xlsx#sheet=1", "prices: Keys"), ("prices.xlsx#sheet=2", "prices: Doors")]


DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
FORMULA = f"""<c:Alt xmlns:c='urn:c' xmlns:a='{DRAWING[1:-1]}'><c:Choice>
<a:m><c:sSup><c:e><a:t>, 10</a:t></c:e><c:sup><a:t>6</a:t></c:sup></c:sSup>
<c:sub><a:t>i</a:t></c:sub><c:rad><c:d><c:f><c:num><a:t>a+1</a:t></c:num><c:den><a:t>b</a:t></c:den></c:f></c:d></c:rad></a:m></c:Choice><c:Fallback><a:t>no</a:t></c:Fallback></c:Alt>"""
PIXEL = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


def deck(path):
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE
    from pptx.oxml import parse_xml

    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[5])
    slide.shapes.title.text = "Sales of 2025, "
    for text, value in (("10", "0"), ("6", "30000")):
        slide.shapes.title.text_frame.paragraphs[0].add_run().text = text
        slide.shapes.title.text_frame.paragraphs[0].runs[-1]._r.get_or_add_rPr().set("baseline", value)
    group = slide.shapes.add_group_shape()
    words = group.shapes.add_textbox(0, 0, 9, 9).text_frame.paragraphs[0]
    for text, name, value in (("Held 10", "b", "1"), ("6", "baseline", "30000"), (" for 8", "b", "1"), ("9", "strike", "sngStrike")):
        words.add_run().text = text
        words.runs[-1]._r.get_or_add_rPr().set(name, value)
    table = slide.shapes.add_table(3, 2, 0, 0, 9, 9).table
    table.cell(1, 0).merge(table.cell(2, 0))
    for number, text in enumerate(("Item", "Price", "Key", "3", "", "4")):
        table.cell(number // 2, number % 2).text = text
    for text in ("Open the gate", "Lower the boat"):
        step = group.shapes[0].text_frame.add_paragraph()
        step.text = text
        step._p.get_or_add_pPr().append(step._p.makeelement(f"{DRAWING}buAutoNum", startAt="4"))
    step._p.append(parse_xml(FORMULA))
    shown = slide.shapes.add_picture(io.BytesIO(PIXEL), 0, 0)
    shown._element.nvPicPr.cNvPr.set("descr", "The gauge shows 88 metres")
    chart = CategoryChartData()
    chart.categories = ["East", "West"]
    chart.add_series("Boilers", (19.0, 21.5))
    drawn = slide.shapes.add_chart(XL_CHART_TYPE.BAR_CLUSTERED, 0, 0, 9, 9, chart).chart
    drawn.chart_title.text_frame.text = "Sold per year"
    slide.notes_slide.notes_text_frame.text = "Hartmann Heating sold\vmost of what is\vsold here.\nGate A\vGate B\vGate C"
    made.slides.add_slide(made.slide_layouts[6])
    made.part._content_type = made.part.content_type.replace("presentation.main", "slideshow.main")
    made.save(path)


def test_a_slide_gives_groups_tables_charts_and_notes(tmp_path):
    deck(tmp_path / "deck.ppsx")
    found = list(iter_documents(tmp_path / "deck.ppsx"))
    assert (found[0].doc_id, found[0].title) == ("deck.ppsx#slide=1", "deck: Sales of 2025, 10⁶")
    assert found[0].text.split("\n\n") == [
        "Sales of 2025, 10⁶",
        "Held 10\u2076 for 8",
        "4. Open the gate",
        "5. Lower the boat, 10\u2076_i√((a+1)/b)",
        "Item | Price\nItem: Key | Price: 3\nItem: Key | Price: 4",
        "The gauge shows 88 metres",
        "Sold per year",
        "Series | East | West\nSeries: Boilers | East: 19 | West: 21.5",
        "Hartmann Heating sold most of what is sold here.",
        "Gate A\nGate B\nGate C",
    ]


@pytest.mark.parametrize(("body", "text"), [
    (rb"The rent is 1,200 \'80.\par It ends.", "The rent is 1,200 \u20ac.\n\nIt ends."), (rb"Caf\'e9", "Caf\u00e9"),
    (rb"\u8364?5", "\u20ac5"), (rb"{\b bold} and {\i not}", "bold and not"),
    (rb"10{\super 6}, CO\sub 2\nosupersub , {\strike 9}8{\footnote By {\b Bo}.}", "10\u2076, CO\u2082, 8 (By Bo.)"),
    (rb"{\headerl\pard Contract {\b 7}\par}{\rtlch\fcs1 \insrsid1 10}{\rtlch\fcs1 \super\insrsid1 6}, {\strike\insrsid1 1\'80}"
     rb"{\deleted\insrsid1 3 May}{\insrsid1 4 May\strike0 , CO}{\*\x}{\sub 2}", "Contract 7\n\n10\u2076, 4 May, CO\u2082"),
    (rb"The weir was rebuilt by Ellen\line Marsh.\par Line.", "The weir was rebuilt by Ellen Marsh.\n\nLine."),
    (rb"{\info{\title Hidden}}Seen", "Seen"), (rb"\trowd Item\cell Price\cell\row", "Item|Price"),
])  # fmt: skip
def test_rich_text(body, text):
    assert rtf(rb"{\rtf1\ansi\ansicpg1252 " + body + b"}") == [("", text)]


@pytest.mark.parametrize("ending", ["pptx", "xlsx", "xls", "rtf", "msg", "zip"])
def test_a_damaged_file_is_named(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    path.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 cut off" if ending in ("xls", "msg") else b"PK\x03\x04 cut off")
    assert [(one.reason, one.path) for one in iter_documents(path) if isinstance(one, Rejected)] == [(DAMAGED_FILE, str(path))]
