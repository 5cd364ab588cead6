"""The report: everything there is shown, nothing hostile gets through, nothing missing costs the page, nothing is fetched."""

import json
import math
import re
from html.parser import HTMLParser

import pytest

from realm.report import write_report
from realm.report.evidence import marked
from realm.report.markup import Html, Series, line_chart, short, tag
from realm.storage.layout import RunPaths
from realm.storage.manifests import write_note
from realm.storage.metrics import _line

HOSTILE = '<script>alert("x")</script>&amp;\u202e\x00 onload="y" \'z'
VOID = {"meta", "br", "col"}


class Page(HTMLParser):
    """Checks that elements nest and collects tags, attributes and text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open = []
        self.tags = []
        self.attributes = []
        self.words = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def lines(rows):
    """Rows of a log, each with its checksum; what is no row as it is."""
    return "".join(_line(row) if isinstance(row, dict) else json.dumps(row) + "\n" for row in rows)


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.name == "results" and not isinstance(value, str):
        write_note(path, value)
    else:
        path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")


def metrics():
    rows = []

    def add(stage, step, **values):
        rows.append({"stage": stage, "step": step, **values, "time": 1.7e9 + 4.2 * len(rows)})

    for step in range(20, 401, 20):
        add("ict", step, loss=4 * math.exp(-step / 120) + 0.1, lr=1e-3 * (1 - step / 400), accuracy=1 - math.exp(-step / 150), valid=64.0)
    for step in range(20, 601, 20):
        add("warm", step, loss=8.5 * math.exp(-step / 300), span_log_prob=-9 * math.exp(-step / 250), grad_norm=2.0 + math.sin(step))
        if step % 100 == 0:
            add("warm", step, filled_with_block=min(0.9, step / 600), filled_without=0.04 + step / 20000)
    for step in range(20, 301, 20):
        wave = 0.05 * math.sin(step)
        add("pretrain", step, loss=3 - step / 250, marginal_utility=-0.2 + step / 400 + wave, p_null=0.6 - step / 1000, entropy=1.4 + wave)
        rows[-1] |= {"distinct": 0.8 + wave, "staleness_steps": float(step % 50), "skipped": 0.0}
        rows[-1] |= {**{f"utility_rank_{r}": 2 / r - 1 for r in range(1, 8)}}
        rows[-1] |= {"excluded_share": 0.14, "distinct_per_1000": 800.0 - step, "seconds_per_step": 4.5 if step == 100 else 0.5}
        rows[-1] |= {"seconds_left": 300.0 - step, "tokens_per_second": 1e4}
        if step % 100 == 0:
            add("pretrain", step, held_out_recall=0.4 + step / 2000)
    for step in range(20, 401, 20):
        add("finetune", step, retriever_loss=2 - step / 300, reader_loss=3 - step / 160, found=0.9, readable=0.5 + step / 1000)
        if step % 100 == 0:
            add("finetune", step, dev_em=step / 450)
    return rows


def results(root):
    recall = {"1": 0.41, "5": 0.72, "20": 0.9, "100": 0.97}
    more = {"1": 0.55, "5": 0.83, "20": 0.95, "100": 0.99}
    write(root / "results/ict.json", {"name": "ict", "n": 400, "recall": recall, "recall_gold": recall, "seconds": 21.0})
    write(root / "results/pretrain.json", {"name": "pretrain", "n": 400, "recall": more, "recall_gold": more, "seconds": 130})
    tuned = {"n": 400, "em": 0.871, "em_interval": [0.838, 0.902], "f1": 0.89, "recall": more, "recall_gold": {**more, "1": 0.91}}
    write(root / "results/finetune.json", {"name": "finetune", **tuned, "seconds": 3725})


def examples(root):
    body = "The pound sterling is the currency of the United Kingdom and nine of its associated territories. It is divided into 100 pence."
    other = "In the United Kingdom, shops price their goods in pounds. " + "The coins are struck at Llantrisant in Wales. " * 12
    read = [
        ("Pound sterling", body, 0.71, 4, 18),
        ("", other, 0.2, 50, 56),
        ("Llantrisant", other, 0.09, 900, 2),
        ("Wales", other, 0.0, 0, 2),
    ]
    evidence = [dict(zip(("title", "text", "p_z", "start", "end"), one, strict=True)) for one in read]
    answer = {"question": "What do people in the United Kingdom pay with?", "answer": "pound sterling", "p": 0.83, "evidence": evidence}
    kept_back = {"question": "And in Iceland?", "answer": "rupee", "p": 0.0, "abstained": True, "correct": False, "accepted": ["króna"]}
    write(root / "results/answers.json", [answer | {"correct": True, "accepted": ["pound sterling"]}, kept_back | {"evidence": []}])
    write(root / "results/claims.json", ["Before any training: 70% answered.", 3])
    keys = ("block_id", "title", "text", "null", "p_z", "p_y_given_z", "r", "utility")
    rows = [
        (-1, "", "", True, 0.3, 0.02, -0.28, 0.0),
        (3, "Great Britain", body, False, 0.6, 0.7, 0.31, 3.6),
        (4, "Wales", other, False, 0.1, 2e-5, -0.09, -6.9),
    ]
    explanation = {
        "text": "The [MASK] is the currency of the United Kingdom.", "targets": ["pound"], "p_y": 0.426,
        "p_y_null": 0.02, "excluded": [1], "predictions": [{"text": "pound", "p": 0.426}, {"text": "euro", "p": 0.07}],
        "candidates": [dict(zip(keys, row, strict=True)) for row in rows],
    }  # fmt: skip
    write(root / "results/explanation.json", explanation)


def make_run(root):
    write(root / "metrics.jsonl", lines(metrics()))
    results(root)
    examples(root)
    write(root / "stages/warm/stage.json", {"format": 1, "stage": "warm", "fingerprint": "f00d", "steps": 600, "reads": True})
    write(root / "stages/pretrain/stage.json", {"format": 1, "stage": "pretrain", "steps": 300, "generation": 7})
    write(root / "config.toml", '[run]\nseed = 3\n[model]\npreset = "tiny"\nbody = ""\nlayers = 2\nhidden = 128\n[pretrain]\nlr = 0.0003\n')
    return RunPaths(root)


def report(paths):
    written = write_report(paths)
    assert written == paths.report
    return Page(written.read_text("utf-8"))


def test_everything_there_is_shown(tmp_path):
    paths = make_run(tmp_path / "atlas")
    page = report(paths)
    for words in ("atlas", "87.1 %", "83.8 to 90.2 %", "1 h 2 min", "Marginal utility", "pound sterling", "tiny: 2 layers × 128"):
        assert words in page.text, words
    for words in ("REALM pre-training", "Fine-tuning", "Held-out spans filled", "And in Iceland?", "no document", "p(y|x) = 0.426"):
        assert words in page.text, words
    assert "f00d" not in page.text and "seen in this run" not in page.text
    assert "abstained; closest: rupee wrong; accepted: króna" in page.text and "pound sterling right" in page.text
    opening = ["What it shows", "Questions answered", "A masked sentence explained", "Results", "What to try when it goes wrong"]
    assert [page.text.index(heading) for heading in opening] == sorted(page.text.index(heading) for heading in opening)
    assert page.tags.count("svg") >= 20 and page.tags.count("mark") == 3
    assert page.tags.count("h1") == page.tags.count("main") == 1
    for words in ("rank 1 1", "rank 4 −0.5", "rank 7 −0.714"):
        assert words in page.text, words
    assert page.text.count("Utility of a document by its rank") == 2  # one picture: its caption and its title
    # Every table and picture has a name; nothing is fetched, and nothing runs.
    assert page.tags.count("table") == page.tags.count("caption")
    assert page.tags.count("svg") == page.tags.count("desc") == [name for name, value in page.attributes if value == "img"].count("role")
    assert not {"script", "link", "img", "iframe", "object", "a"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href", "action") or name.startswith("on")]
    assert not re.search(r"url\(|@import|https?:", paths.report.read_text("utf-8"))


def test_alarms_come_first_with_what_to_try(tmp_path):
    root = make_run(tmp_path).root
    rows = [{"stage": "pretrain", "step": 140, "alarm": name, "problem": f"the {name}", "cure": HOSTILE} for name in ("staleness", HOSTILE)]
    with open(root / "metrics.jsonl", "a") as file:
        file.write(lines(rows))
    page = report(RunPaths(root))
    assert page.text.index("Alarms") < page.text.index("Results") and "step 140 the staleness" in page.text
    assert page.text.count("seen in this run") == 1 and "script" not in page.tags


def test_hostile_text_is_text(tmp_path):
    root = tmp_path / "run <b>"
    rows = [{"stage": HOSTILE, "step": s, HOSTILE: s / 2, "loss": "1", "time": None} for s in range(3)]
    write(root / "metrics.jsonl", lines(rows))
    write(root / "stages" / "x" / "stage.json", {HOSTILE: HOSTILE})
    write(root / "results/x.json", {"name": HOSTILE, "em": 0.5, "recall": {HOSTILE: 1, "5": HOSTILE}})
    block = {"title": HOSTILE, "text": HOSTILE, "start": 1, "end": 5, "p_z": HOSTILE}
    write(root / "results/answers.json", [{"question": HOSTILE, "answer": HOSTILE, "p": None, "evidence": [block, 3]}, "x"])
    found = {"text": HOSTILE + "[MASK][MASK]", "targets": [HOSTILE], "predictions": [{"text": HOSTILE}], "candidates": [block]}
    write(root / "results/explanation.json", found)
    write(root / "config.toml", f"[{json.dumps('<script>')}]\n{json.dumps('<i>')} = {json.dumps('<script>')}\n")
    page = report(RunPaths(root))
    assert not {"script", "b onload", "i onload"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert 'alert("x")' in page.text and "run <b>" in page.text
    assert root.joinpath("report.html").read_text("utf-8").count("<style>") == 1


def test_nothing_there_is_a_page_too(tmp_path):
    page = report(RunPaths(tmp_path / "empty"))
    assert "What to try when it goes wrong" in page.text and "Results" not in page.text


@pytest.mark.parametrize(
    "damage", ["", "{", "null", "[]", "3", '{"name": null}', '{"em": NaN, "recall": 4, "em_interval": [1]}', '"\\ud800"', "\x00"]
)
def test_odd_files_only_make_it_shorter(tmp_path, damage):
    root = make_run(tmp_path).root
    for file in (
        "results/finetune.json", "results/answers.json", "results/claims.json", "results/explanation.json",
        "stages/warm/stage.json", "config.toml", "metrics.jsonl",
    ):  # fmt: skip
        write(root / file, damage)
        assert "ICT alone" in report(RunPaths(root)).text


def test_nulls_and_odd_rows_leave_gaps(tmp_path):
    rows = [
        '{"stage": "ict", "step": 1, "loss": null, "time": 1}',
        '{"stage": "ict", "step": 2, "loss": 1.5, "accuracy": NaN, "time": 2}',
        '{"stage": "ict", "step": null, "loss": 99999}', '{"stage": null, "step": 1, "loss": 1}',
        '{"stage": "ict", "step": 3, "loss": 1e999, "flag": true, "huge": %s}' % ("9" * 400),
        '{"stage": "ict", "step": 4, "loss": 1.25, "constant": 0}', '["no row"]',
    ]  # fmt: skip
    write(tmp_path / "metrics.jsonl", lines(map(json.loads, rows)) + '{"stage": "ict", "st')
    page = report(RunPaths(tmp_path))
    assert "1.25" in page.text and "99,999" not in page.text and "huge" not in page.text and "flag" not in page.text


def test_troubles_of_this_run_come_first(tmp_path):
    rows = [{"stage": "pretrain", "step": s, "marginal_utility": -0.1, "p_null": 0.99, "distinct": 0.05, "time": s} for s in (1, 2)]
    rows.append({"stage": "finetune", "step": 1, "found": 0.1, "time": 3})
    write(tmp_path / "metrics.jsonl", lines(rows))
    write(tmp_path / "stages/warm/stage.json", {"reads": False})
    assert report(RunPaths(tmp_path)).text.count("seen in this run") == 5


def test_a_resumed_run_counts_no_pause(tmp_path):
    times = [0, 10, 20, 30, 90000, 90010]
    write(tmp_path / "metrics.jsonl", lines({"stage": "ict", "step": i, "loss": 1.0, "time": t} for i, t in enumerate(times)))
    assert "ict (40 s)" in report(RunPaths(tmp_path)).text


@pytest.mark.parametrize(
    "points", [[(0.0, 0.0)], [(5.0, -3.0)], [(1.0, 1e-9), (2.0, 1e12)], [(float(i), i % 7) for i in range(100000)], [(0, 5), (1, 5)]]
)
@pytest.mark.parametrize("zero", [False, True])
def test_charts_of_any_numbers_stay_inside(points, zero):
    svg = line_chart("t", [Series("a", points)], zero=zero)
    assert "nan" not in svg and "inf" not in svg and len(svg) < 60000
    for y in re.findall(r'cy="([-\d.]+)"', svg):
        assert 0 <= float(y) <= 190
    assert 2 <= svg.count('text-anchor="end"') <= 9


def test_markup_escapes_what_is_not_markup():
    assert tag("p", "<", Html("<b>"), None, 3, class_='"') == '<p class="&quot;">&lt;<b>3</p>'
    assert marked("a <b> c", 2, 5) == "a <mark>&lt;b&gt;</mark> c"
    assert [short(v) for v in (0.0, 0.12345, 12.5, 1234.5, -0.5, 1e-5, None, math.nan)] == [
        "0", "0.123", "12.5", "1,234", "−0.5", "1 · 10⁻⁵", "–", "–",
    ]  # fmt: skip
