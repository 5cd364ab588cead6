"""Is a question answered whose answer stands in a picture? 40 drawn charts and scans, 60 questions, with and without the pictures' words.

    python benchmarks/bench_pictures.py --scratch DIR

Draws 20 charts, 16 scans (letters, invoices, tables, signs; turned, grey and noisy) and a PDF with 4 figures into DIR/pictures, with
pages in Markdown and HTML that show some of them, and asks `realm-minilm-en` as `realm ask DIR/pictures "..."` does: once with the extra
`ocr`, once as where it is not installed. Everything in the pictures is invented, so that no model knows it. "contains" counts answers that
hold a gold answer whole; "found" the share of questions with a gold answer in one of the blocks read. The last line is one JSON object.
"""

import argparse
import io
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.backends.backend_pdf import PdfPages
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from common import result
from realm.corpus.sources import pictures
from realm.corpus.sources.recognition import picture_text
from realm.text.answers import exact_match, normalize_answer

FONT = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"
BARS = {  # name: title, unit, values
    "harvest": ("Harvest of Varde in 2019", "Tonnes", {"Corn": 120, "Rye": 45, "Wheat": 210, "Oats": 88}),
    "ferry": ("Passengers of the Lindholm ferry", "Thousand", {"Spring": 34, "Summer": 97, "Autumn": 41, "Winter": 12}),
    "museum": ("Visitors of the Orsk museum by day", "Persons", {"Monday": 140, "Friday": 320, "Saturday": 815, "Sunday": 760}),
    "library": ("Books lent by the Marlow library", "Books", {"Novels": 5400, "Travel": 1250, "Science": 2100, "Poetry": 330}),
    "rain": ("Rainfall at Tessen station", "Millimetres", {"March": 52, "April": 71, "May": 38, "June": 93}),
    "energy": ("Electricity of Brunnal by source", "Gigawatt hours", {"Water": 640, "Wind": 285, "Sun": 73, "Wood": 118}),
}
LYING = {
    "bridges": ("Length of the bridges over the Olva", "Metres", {"Harrow": 412, "Quell": 168, "Sankt Mikael": 655, "Tolmin": 97}),
    "wages": ("Hourly wage at the Kestrel works", "Crowns", {"Welder": 31, "Driver": 26, "Clerk": 24, "Foreman": 44}),
    "peaks": ("Height of the peaks of the Varr range", "Metres", {"Ansel": 2841, "Bodo": 3117, "Corvin": 2604, "Dellach": 1988}),
    "schools": ("Pupils of the schools of Ostmark", "Pupils", {"Linden": 412, "Ravenhall": 287, "Seeblick": 538, "Torfeld": 159}),
}
LINES = {
    "population": ("Population of Port Almere", "Inhabitants", {1900: 8200, 1930: 15400, 1960: 27900, 1990: 24100}),
    "price": ("Price of a loaf in Karsund", "Pence", {1920: 4, 1940: 9, 1960: 15, 1980: 62}),
    "glacier": ("Length of the Nimmer glacier", "Kilometres", {1850: 14.2, 1900: 12.7, 1950: 10.1, 2000: 6.3}),
    "trains": ("Trains a day through Wessel junction", "Trains", {1910: 36, 1935: 84, 1970: 51, 2010: 128}),
    "cars": ("Cars built at the Doran plant", "Cars", {1955: 1300, 1965: 9800, 1975: 21500, 1985: 7600}),
}
PIES = {
    "budget": ("Budget of the town of Elmsworth", {"Schools": 41, "Roads": 23, "Health": 19, "Parks": 17}),
    "languages": ("Languages spoken in Vallorin", {"Vallic": 58, "Tarnish": 27, "Esken": 15}),
    "forest": ("Trees of the Grauwald", {"Spruce": 46, "Beech": 31, "Larch": 14, "Oak": 9}),
    "votes": ("Votes in the council of Sundby", {"Harbour list": 38, "Farmers": 33, "Free citizens": 29}),
    "cargo": ("Cargo of the port of Riva Nova", {"Timber": 44, "Grain": 35, "Ore": 21}),
}
LETTERS = {
    "letter-1": "Stonebridge, 14 March 1952\n\nDear Mr Halloway,\n\nthe roof of the chapel was repaired last week by the firm of Petersen\n"
    "and Sons. The work cost 1,840 crowns. The bell will be hung again\non Easter Monday.\n\nYours sincerely,\nAda Lindqvist, parish clerk",
    "letter-2": "Hotel Belvoir, 2 August 1974\n\nDear Ingrid,\n\nwe arrived in Castelmora on Tuesday. Our guide is called Tommaso Brandi.\n"
    "Tomorrow we shall climb Monte Sirio, which is 1,276 metres high.\nThe soup here is made of chestnuts.\n\nLove, Marius",
    "letter-3": "Office of the Harbour Master\n\nTo all captains\n\nThe northern dock is closed from 5 May until 19 June, because the\n"
    "lock gates are painted. Ships with more than 900 tons use the pier\nof Sandvik. Pilots answer on channel 12.\n\nJ. Torvald",
    "letter-4": "Dear members of the choir,\n\nthe concert takes place in Saint Brannoc's hall on 21 November.\nWe sing the Winter Mass of "
    "Emil Rosander. Please bring black\nfolders. Rehearsals are led by Helga Wynn.\n\nThe committee",
}
INVOICES = {
    "invoice-1": (
        ["Kranz Hardware, Lower Street 8", "Invoice No. 70412", "Customer: Mill of Arden"],
        [("Hinges", "12", "36.00"), ("Copper pipe", "4", "58.40"), ("Paint, green", "2", "19.80")],
        "Total: 114.20 crowns, due on 30 April",
    ),
    "invoice-2": (
        ["Bakery Sonnenfeld", "Invoice No. 1187", "Customer: Hotel Adria"],
        [("Rye bread", "40", "96.00"), ("Rolls", "150", "60.00"), ("Plum cake", "3", "42.00")],
        "Total: 198.00 crowns, paid in cash",
    ),
    "invoice-3": (
        ["Garage Veltman", "Invoice No. 5520", "Vehicle: Doran Six, KV 318"],
        [("Brake pads", "4", "88.00"), ("Oil filter", "1", "11.50"), ("Labour", "3", "135.00")],
        "Total: 234.50 crowns, guarantee two years",
    ),
    "invoice-4": (
        ["Nursery Rosenau", "Invoice No. 903", "Customer: Elmsworth Town Parks"],
        [("Lime trees", "25", "1,375.00"), ("Box hedge", "60", "540.00"), ("Delivery", "1", "80.00")],
        "Total: 1,995.00 crowns, delivery on 3 October",
    ),
}
TABLES = {
    "table-1": (
        "Departures from Wessel junction",
        [
            ("Train", "To", "Time", "Platform"),
            ("R 14", "Port Almere", "08:12", "3"),
            ("E 207", "Karsund", "09:45", "1"),
            ("R 31", "Tessen", "10:30", "5"),
        ],
    ),
    "table-2": (
        "Menu of the Golden Heron",
        [("Dish", "Price"), ("Pea soup", "4.50"), ("Roast pike", "13.20"), ("Venison pie", "15.80"), ("Baked quince", "5.10")],
    ),
    "table-3": (
        "Records of the Ostmark games",
        [
            ("Event", "Winner", "Result"),
            ("Long jump", "Nils Arvidsen", "7.42 m"),
            ("Javelin", "Petra Sollberg", "61.08 m"),
            ("Mile", "Owen Tarrick", "4:07 min"),
        ],
    ),
    "table-4": (
        "Opening hours of the Orsk museum",
        [("Day", "Opens", "Closes"), ("Tuesday", "10:00", "17:00"), ("Thursday", "12:00", "21:00"), ("Sunday", "09:30", "18:00")],
    ),
}
SIGNS = {
    "sign-1": ("#7a1f1f", "white", "DANGER\nUnstable cliff\nKeep 20 metres away"),
    "sign-2": ("#1d4f7a", "white", "Castle of Morvane\nbuilt in 1387 by\nCount Aldric the Lame"),
    "sign-3": ("#e8d9a0", "#222222", "Lost cat\nName: Pumpernickel\nReward: 75 crowns"),
    "sign-4": ("#24482c", "white", "Nature reserve Tilsmoor\nHome of the blue bittern\nDogs on the lead"),
}
FIGURES = {  # of the PDF: caption, title, unit, values
    "wells": ("Depth of the wells", "Wells of the Sarn desert", "Metres", {"Abu Kal": 63, "Tirit": 118, "Nahla": 41}),
    "turbines": ("Output of each turbine", "Turbines of the Quell dam", "Megawatts", {"North": 14, "Middle": 22, "South": 17}),
    "wolves": ("Packs that were counted", "Wolves of the Varr range", "Packs", {"2001": 3, "2010": 7, "2020": 19}),
    "tides": ("Highest water of four harbours", "Spring tide", "Metres", {"Sandvik": 5.2, "Lindholm": 3.4, "Riva Nova": 0.9}),
}
TIMED = 4
"""Every how manyth picture is timed."""
QUESTIONS = [
    ("How many tonnes of rye were harvested in Varde in 2019?", "45"),
    ("How many tonnes of wheat were harvested in Varde?", "210"),
    ("How many thousand passengers did the Lindholm ferry have in summer?", "97"),
    ("How many thousand people took the Lindholm ferry in winter?", "12"),
    ("How many persons visit the Orsk museum on Saturday?", "815"),
    ("How many visitors does the Orsk museum have on Monday?", "140"),
    ("How many novels did the Marlow library lend?", "5400"),
    ("How many books of poetry were lent by the Marlow library?", "330"),
    ("How many millimetres of rain fell at Tessen station in June?", "93"),
    ("How much electricity does Brunnal get from wind?", "285"),
    ("How many gigawatt hours of electricity does Brunnal get from water?", "640"),
    ("How long is the Harrow bridge over the Olva?", "412"),
    ("How long is the Sankt Mikael bridge over the Olva?", "655"),
    ("What is the hourly wage of a foreman at the Kestrel works?", "44"),
    ("What does a driver at the Kestrel works earn an hour?", "26"),
    ("How high is the peak Bodo in the Varr range?", "3117"),
    ("How high is Dellach?", "1988"),
    ("How many pupils does the Seeblick school in Ostmark have?", "538"),
    ("How many inhabitants did Port Almere have in 1960?", "27900"),
    ("What did a loaf cost in Karsund in 1980?", "62"),
    ("How long was the Nimmer glacier in 1850?", "14.2"),
    ("How many trains a day went through Wessel junction in 2010?", "128"),
    ("How many cars were built at the Doran plant in 1975?", "21500"),
    ("What share of the budget of Elmsworth goes to schools?", "41%|41"),
    ("What share of the budget of Elmsworth is spent on roads?", "23%|23"),
    ("What share of Vallorin speaks Tarnish?", "27%|27"),
    ("What share of the trees of the Grauwald are beech?", "31%|31"),
    ("What share of the votes did the Farmers get in the council of Sundby?", "33%|33"),
    ("What share of the cargo of Riva Nova is grain?", "35%|35"),
    ("Who repaired the roof of the chapel?", "Petersen and Sons|the firm of Petersen and Sons"),
    ("How much did the repair of the chapel roof cost?", "1,840 crowns|1,840"),
    ("When will the bell of the chapel be hung again?", "Easter Monday|on Easter Monday"),
    ("Who is the guide in Castelmora?", "Tommaso Brandi"),
    ("How high is Monte Sirio?", "1,276 metres|1,276|1,276 metres high"),
    ("What is the soup at Castelmora made of?", "chestnuts"),
    ("Until when is the northern dock closed?", "19 June"),
    ("On which channel do the pilots answer?", "channel 12|12"),
    ("Who composed the Winter Mass?", "Emil Rosander"),
    ("Where does the concert of the choir take place?", "Saint Brannoc's hall|in Saint Brannoc's hall"),
    ("Who leads the rehearsals of the choir?", "Helga Wynn"),
    ("What is the number of the invoice of Kranz Hardware?", "70412"),
    ("How much did the copper pipe cost?", "58.40"),
    ("Who is the customer of bakery Sonnenfeld?", "Hotel Adria"),
    ("What did the plum cake cost?", "42.00"),
    ("Which vehicle did the garage Veltman repair?", "Doran Six|Doran Six, KV 318"),
    ("How many lime trees did Elmsworth Town Parks buy?", "25"),
    ("From which platform does the train to Karsund leave?", "1"),
    ("When does the train to Tessen leave?", "10:30"),
    ("What does the venison pie cost at the Golden Heron?", "15.80"),
    ("Who won the javelin at the Ostmark games?", "Petra Sollberg"),
    ("What was the result of the long jump at the Ostmark games?", "7.42 m|7.42"),
    ("When does the Orsk museum close on Thursday?", "21:00"),
    ("Who built the castle of Morvane?", "Count Aldric the Lame|Aldric the Lame"),
    ("In which year was the castle of Morvane built?", "1387"),
    ("What is the name of the lost cat?", "Pumpernickel"),
    ("Which bird lives in the nature reserve Tilsmoor?", "blue bittern|the blue bittern"),
    ("How deep is the well Tirit in the Sarn desert?", "118"),
    ("How many megawatts does the middle turbine of the Quell dam give?", "22"),
    ("How many packs of wolves were counted in the Varr range in 2020?", "19"),
    ("How high is the spring tide at Sandvik?", "5.2"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--read", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    folder = arguments.scratch / "pictures"
    draw_all(folder)
    os.environ["XDG_CACHE_HOME"] = str(arguments.scratch / "cache-with")
    rows = [{"words": "read", **asked(folder, arguments.read)}]
    print(json.dumps(rows[0]), file=sys.stderr)
    os.environ["XDG_CACHE_HOME"] = str(arguments.scratch / "cache-without")
    pictures.recognised, pictures.recognises = (lambda data, seconds: ""), (lambda: False)
    rows.append({"words": "not read", **asked(folder, arguments.read)})
    print(json.dumps(rows[1]), file=sys.stderr)
    print(json.dumps(result("pictures", arguments.threads, pictures=40, questions=len(QUESTIONS), rows=rows, **reading_times(folder))))


def asked(folder: Path, read: int) -> dict[str, Any]:
    """Indexes the folder from nothing and asks every question."""
    from realm import open_documents

    started = time.process_time()
    realm = open_documents(folder)
    indexed = time.process_time() - started
    found = [realm.ask(question, k=read) for question, _ in QUESTIONS]
    kinds = {"em": 0, "contains": 0, "found": 0}
    wrong = []
    for (question, gold), answer in zip(QUESTIONS, found, strict=True):
        accepted = gold.split("|")
        words = f" {normalize_answer(answer.answer)} "
        right = exact_match(answer.answer, accepted)
        kinds["em"] += right
        kinds["contains"] += any(f" {normalize_answer(one)} " in words for one in accepted)
        kinds["found"] += any(f" {normalize_answer(one)} " in f" {normalize_answer(e.text)} " for one in accepted for e in answer.evidence)
        if not right:
            wrong.append([question, gold, answer.answer])
    shares = {f"{name}_share": value / len(QUESTIONS) for name, value in kinds.items()}
    return {**kinds, **shares, "index_cpu_s": indexed, "wrong": wrong}


def reading_times(folder: Path) -> dict[str, float]:
    """Processor seconds in which the words of a picture are recognised: median and most; and of loading the models."""
    started = time.process_time()
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".png", ".jpg", ".tif"))[::TIMED]
    picture_text(files[0].read_bytes())
    first = time.process_time() - started
    seconds = []
    for file in files:
        started = time.process_time()
        picture_text(file.read_bytes())
        seconds.append(time.process_time() - started)
    return {"load_cpu_s": first - seconds[0], "picture_cpu_s": float(np.median(seconds)), "picture_cpu_s_most": max(seconds)}


def draw_all(folder: Path) -> None:
    """The pictures, and the pages that show some of them; the same bytes each time."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, (title, unit, values)) in enumerate(BARS.items(), 1):
        chart(lambda axes, v=values, u=unit: bars(axes, v, u), title).save(folder / f"chart-{number:02d}-{name}.png")
    for name, (title, unit, values) in LYING.items():
        chart(lambda axes, v=values, u=unit: lying_bars(axes, v, u), title).save(folder / f"{name}.png")
    for name, (title, unit, values) in LINES.items():
        chart(lambda axes, v=values, u=unit: line(axes, v, u), title).save(folder / f"{name}.png")
    for name, (title, values) in PIES.items():
        chart(lambda axes, v=values: axes.pie(list(v.values()), labels=list(v), autopct="%.0f%%"), title).save(folder / f"{name}.png")
    scans = {name: letter(text) for name, text in LETTERS.items()} | {name: invoice(*parts) for name, parts in INVOICES.items()}
    scans |= {name: table(*parts) for name, parts in TABLES.items()}
    for number, (name, page) in enumerate(scans.items()):
        scanned(page, number).save(folder / f"{name}.{'tif' if name.startswith('table') else 'jpg'}", quality=80)
    for number, (name, parts) in enumerate(SIGNS.items()):
        scanned(sign(*parts), 50 + number, grey=False).save(folder / f"{name}.jpg", quality=85)
    figures_pdf(folder / "survey.pdf")
    (folder / "town.md").write_text(
        "# The town of Elmsworth\n\nElmsworth publishes what it spends each year.\n\n![How the money is spent](budget.png)\n\n"
        "The parks are planted anew.\n\n![The bill of the nursery](invoice-4.jpg)\n",
        "utf-8",
    )
    (folder / "range.html").write_text(
        "<html><head><title>The Varr range</title></head><body><article><p>The Varr range has four well-known peaks, and each of them is "
        'climbed in summer.</p><figure><img src="peaks.png" alt="A chart of the peaks"><figcaption>The four peaks compared.</figcaption>'
        '</figure><p>The glacier at its foot is called Nimmer.</p><img src="glacier.png" alt="The Nimmer glacier over the years">'
        "</article></body></html>",
        "utf-8",
    )
    (folder / "sign-2.caption").write_text("The board at the gate of the castle", "utf-8")


def chart(draw: Callable[[Any], Any], title: str) -> Image.Image:
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    draw(axes)
    axes.set_title(title)
    figure.tight_layout()
    file = io.BytesIO()
    figure.savefig(file, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
    return Image.open(file).convert("RGB")


def bars(axes: Any, values: dict[str, float], unit: str) -> None:
    axes.bar_label(axes.bar(list(values), list(values.values()), color="#4c78a8"))
    axes.set_ylabel(unit)


def lying_bars(axes: Any, values: dict[str, float], unit: str) -> None:
    axes.bar_label(axes.barh(list(values), list(values.values()), color="#72b7b2"), padding=3)
    axes.set_xlabel(unit)


def line(axes: Any, values: dict[int, float], unit: str) -> None:
    axes.plot(list(values), list(values.values()), marker="o", color="#e45756")
    for year, value in values.items():
        axes.annotate(f"{value:g}", (year, value), textcoords="offset points", xytext=(0, 8), ha="center")
    axes.set_xticks(list(values))
    axes.margins(y=0.15)
    axes.set_ylabel(unit)


def font(size: int) -> Any:
    return ImageFont.truetype(str(FONT), size)


def paper(width: int = 1000, height: int = 760, colour: str = "white") -> tuple[Image.Image, Any]:
    image = Image.new("RGB", (width, height), colour)
    return image, ImageDraw.Draw(image)


def letter(text: str) -> Image.Image:
    image, draw = paper()
    draw.multiline_text((80, 70), text, fill="#111111", font=font(24), spacing=12)
    return image


def invoice(head: list[str], rows: list[tuple[str, str, str]], total: str) -> Image.Image:
    image, draw = paper()
    for number, words in enumerate(head):
        draw.text((80, 60 + 42 * number), words, fill="#111111", font=font(28 if number == 0 else 24))
    for number, row in enumerate([("Item", "Number", "Crowns"), *rows]):
        for words, left in zip(row, (80, 480, 720), strict=True):
            draw.text((left, 240 + 50 * number), words, fill="#111111", font=font(24))
    draw.line((80, 280, 880, 280), fill="#111111", width=2)
    draw.text((80, 480), total, fill="#111111", font=font(24))
    return image


def table(title: str, rows: list[tuple[str, ...]]) -> Image.Image:
    image, draw = paper(height=520)
    draw.text((80, 50), title, fill="#111111", font=font(30))
    width = 840 // len(rows[0])
    for number, row in enumerate(rows):
        for column, words in enumerate(row):
            draw.rectangle((80 + width * column, 120 + 60 * number, 80 + width * (column + 1), 180 + 60 * number), outline="#333333")
            draw.text((92 + width * column, 134 + 60 * number), words, fill="#111111", font=font(24))
    return image


def sign(colour: str, ink: str, text: str) -> Image.Image:
    image, draw = paper(900, 420, colour)
    draw.rectangle((15, 15, 884, 404), outline=ink, width=6)
    draw.multiline_text((450, 205), text, fill=ink, font=font(48), anchor="mm", align="center", spacing=20)
    return image


def scanned(page: Image.Image, seed: int, grey: bool = True) -> Image.Image:
    """A page as a scanner or a camera sees it: a little turned, a little blurred, with noise."""
    turned = page.rotate(random.Random(seed).uniform(-1.5, 1.5), expand=True, fillcolor="#dddddd", resample=Image.Resampling.BICUBIC)
    pixels = np.asarray(turned.filter(ImageFilter.GaussianBlur(0.7)), np.float64)
    pixels = pixels + np.random.default_rng(seed).normal(0, 9, pixels.shape[:2])[..., None]
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    return image.convert("L") if grey else image


def figures_pdf(path: Path) -> None:
    """A page for each figure: a paragraph, a picture of pixels, a caption."""
    with (
        matplotlib.rc_context({"pdf.fonttype": 42}),
        PdfPages(path, metadata={"Title": "Survey of land and water", "CreationDate": None}) as pages,
    ):
        for number, (caption, title, unit, values) in enumerate(FIGURES.values(), 1):
            figure = pyplot.figure(figsize=(8.3, 8))
            figure.text(0.1, 0.93, f"Chapter {number} of the survey is about one subject only, which the figure shows.", fontsize=11)
            axes = figure.add_axes((0.1, 0.25, 0.8, 0.6))
            axes.imshow(np.asarray(chart(lambda axes, v=values, u=unit: bars(axes, v, u), title)), interpolation="none")
            axes.axis("off")
            figure.text(0.1, 0.18, f"Figure {number}: {caption}.", fontsize=11)
            pages.savefig(figure)
            pyplot.close(figure)


if __name__ == "__main__":
    main()
