"""What a stage published is checked when it is loaded: a flipped bit ends in one line, never in another answer."""

import pytest
from small import flip

from realm.cli import main
from realm.report.read import read_run
from realm.storage.layout import RunPaths
from realm.storage.manifests import SUMS
from realm.text.tokenizer import TextTokenizer

QUESTION = "What is the currency of Arvad?"


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "stage.json", "tokenizer.json", "tokenizer_config.json", SUMS])
def test_every_file_of_a_stage_is_checked(run_copy, name, capsys):
    stage = run_copy / "stages" / "finetune"
    place = (stage / name).read_bytes().rindex(b"sha256") + 12 if name == SUMS else (stage / name).stat().st_size // 2
    flip(stage / name, place, bit=1)
    if name.startswith("tokenizer"):  # read where a stage is exported or used as a body
        with pytest.raises(Exception, match=r"damaged.*checksum differs"):
            TextTokenizer.load(stage)
        return
    assert main(["ask", str(run_copy), QUESTION]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and str(stage / name) in err and "checksum differs" in err and "realm repair" in err


def test_a_changed_recipe_of_a_run_is_said(run_copy, caplog, capsys):
    """It may be edited, so it is no error; damaged without a word it is not."""
    assert main(["ask", str(run_copy), QUESTION]) == 0 and "config.toml" not in caplog.text
    with open(run_copy / "config.toml", "a", encoding="utf-8") as file:
        file.write("# mine\n")
    assert main(["ask", str(run_copy), QUESTION]) == 0
    assert caplog.text.count("config.toml: differs from what realm run wrote") == 1
    (run_copy / "run.json").write_text('{"format": 1, "version": "1.0.0"}')
    assert main(["ask", str(run_copy), QUESTION]) == 2
    assert capsys.readouterr().err.endswith(f"{run_copy / 'run.json'}: made by an earlier version of realm. Build it again.\n")


def test_results_that_changed_are_not_shown(run_copy, caplog):
    path = run_copy / "results" / "finetune.json"
    flip(path, path.read_bytes().find(b'"em"') + 7)
    assert "finetune" not in {result["name"] for result in read_run(RunPaths(run_copy)).results}
    assert "finetune.json: damaged" in caplog.text
    stage = run_copy / "stages" / "ict" / "stage.json"
    flip(stage, stage.stat().st_size // 2)
    assert read_run(RunPaths(run_copy)).stage("ict").facts == {} and "its stage is not shown" in caplog.text
    stage.unlink()
    assert read_run(RunPaths(run_copy)).stage("ict").facts == {} and f"{stage}: its stage is not shown: damaged: missing" in caplog.text
