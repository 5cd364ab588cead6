"""One table of diagnoses: what the alarms say, what the report shows and what the documents tell are the same words."""

from pathlib import Path

import pytest

from realm.report import write_report
from realm.report.diagnoses import diagnoses
from realm.storage.layout import RunPaths
from realm.storage.metrics import _line

ROOT = Path(__file__).parents[2]


def table(page, head):
    """The rows of a table of a document, as text without code marks."""
    lines = (ROOT / "docs" / page).read_text("utf-8").splitlines()
    start = lines.index(head) + 2
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    return [[cell.strip() for cell in line.replace("`", "").strip("|").split(" | ")] for line in lines[start:end]]


def test_the_documents_have_the_table_whose_names_and_signs_differ():
    assert table("watching.md", "| `alarm` | when |") == [[d.name, d.when] for d in diagnoses() if d.told]
    assert table("troubleshooting.md", "| sign | what it means | try |") == [[d.sign, d.problem, d.cure] for d in diagnoses()]
    known = diagnoses()
    assert len({d.name for d in known}) == len({d.sign for d in known}) == len(known)


@pytest.mark.parametrize(("recall", "seen"), [((0.5, 0.49, 0.41), 0), ((0.5, 0.2, 0.5), 0), ((0.5, 0.2, 0.2), 1)])
def test_only_a_clear_fall_that_lasts_is_a_collapse(tmp_path, recall, seen):
    """A recall below its highest value by less than chance is no collapse."""
    rows = [{"stage": "pretrain", "step": i, "held_out_recall": value, "time": i} for i, value in enumerate(recall)]
    (tmp_path / "metrics.jsonl").write_text("".join(map(_line, rows)))
    assert write_report(RunPaths(tmp_path)).read_text("utf-8").count("seen in this run") == seen


def test_a_utility_around_nothing_is_an_ordinary_start(tmp_path):
    (tmp_path / "config.toml").write_text("[pretrain]\nsteps = 1000\n")
    for step, seen in ((100, 0), (400, 1)):
        rows = [{"stage": "pretrain", "step": step + i, "marginal_utility": -0.1, "time": i} for i in range(3)]
        (tmp_path / "metrics.jsonl").write_text("".join(map(_line, rows)))
        assert write_report(RunPaths(tmp_path)).read_text("utf-8").count("seen in this run") == seen
