"""The paper's Table 2 on the atlas, one seed, at most 40 minutes: what every seed on every processor showed."""

from pathlib import Path

import pytest

from realm.experiments.ablate import TABLE2, ablate
from realm.experiments.atlas import ASKED, write_atlas
from realm.progress import Progress
from realm.report.tables import ablation_text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

PRETRAIN_STEPS, FINETUNE_STEPS = 200, 280


@pytest.fixture(scope="module")
def found(tmp_path_factory, request, from_nothing):
    directory = tmp_path_factory.mktemp("atlas")
    write_atlas(directory / "runs" / "atlas", ASKED)
    changes = {
        "run": {"threads": 1},  # as the table in benchmarks/results was made: the same digits
        "pretrain": {"steps": PRETRAIN_STEPS},
        "finetune": {"steps": FINETUNE_STEPS, "eval_every": FINETUNE_STEPS},
    }
    table = ablate(from_nothing(directory, changes), directory / "ablation", TABLE2, 1, Progress(quiet=True))
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{ablation_text(table)}")
    return table


def test_all_rows_are_there_published_and_the_baseline_has_read_as_much(found):
    assert [row["row"] for row in found["rows"]] == [ablation.name for ablation in TABLE2] and found["waiting"] == []
    assert all(
        row["measures"][name] is not None for row in found["rows"] for name in ("gold_recall_5", "tuned_gold_recall_5", "em", "tokens")
    )
    tokens = {row["row"]: row["measures"]["tokens"]["mean"] for row in found["rows"]}
    assert tokens["orqa"] == pytest.approx(tokens["realm"], rel=0.05)
    assert {path.suffix for path in Path(found["out"]).glob("ablation.*")} == {".txt", ".json", ".csv", ".html"}


@pytest.mark.parametrize("k", [1, 5])
def test_realm_keeps_what_ict_taught(found, k):
    """No gain is claimed: one that unlearns has less than its start, ICT's (.61 of that recall with two candidates, .73 without warm)."""
    recall = {row["row"]: row["measures"][f"gold_recall_{k}"]["mean"] for row in found["rows"]}
    assert recall["realm"] > 0.8 * recall["orqa"] > 0


@pytest.mark.parametrize("row", ["realm", "stale", "random_tokens", "random_spans"])
def test_documents_come_to_help(found, row):
    """On sentences that were not trained on, whatever is hidden: .51, .53, .40 and .61 nats a wordpiece more than before the first step."""
    assert {found["row"]: found["measures"]["held_out_gain"] for found in found["rows"]}[row]["mean"] > 0.2
