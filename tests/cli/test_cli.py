"""The command line: fast help, every verb end to end, the JSON objects of the contract, a reviewed list of all options."""

import inspect
import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints
from unittest.mock import Mock

import pytest

from realm.cli import groups, main, show, verbs

COMMANDS = {**verbs.VERBS, **{f"{group} {name}": verb for group, members in groups.GROUPS.items() for name, verb in members.items()}}


def options_of(verb):
    parts = []
    for name, parameter in inspect.signature(verb).parameters.items():
        if is_dataclass(parameter.default) and not isinstance(parameter.default, type):  # options that several verbs share
            parts += [f"--{key.replace('_', '-')}={value}" for key, value in asdict(parameter.default).items()]
            continue
        positional = parameter.kind is parameter.POSITIONAL_ONLY
        default = "" if parameter.default is parameter.empty else f"={parameter.default}"
        parts.append(name.upper() if positional else f"--{name.replace('_', '-')}{default}")
    return " ".join(parts)


def test_all_options_are_reviewed():
    """A change of the command line is a change of tests/cli/options.txt, which somebody reads."""
    listed = (Path(__file__).parent / "options.txt").read_text("utf-8").splitlines()
    assert [f"realm {name} {options_of(verb)}" for name, verb in COMMANDS.items()] == listed


def test_help_is_light():
    done = subprocess.run([sys.executable, "-m", "realm", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and all(name.split()[0] in done.stdout for name in COMMANDS)
    code = (
        "import sys\nfrom realm.cli import main\n"
        f"for name in {list(COMMANDS)!r}:\n"
        "    try:\n        main([*name.split(), '--help'])\n    except SystemExit as end:\n        assert end.code == 0, name\n"
        "heavy = {'torch', 'transformers', 'numpy', 'pyarrow', 'tokenizers'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: realm") == len(COMMANDS)


def test_every_parameter_is_explained():
    """In the verb's docstring, or where several verbs share it: in its type, or, for a group of options, in the group's docstring."""
    for name, verb in COMMANDS.items():
        for parameter, hint in get_type_hints(verb, include_extras=True).items():
            shared = get_args(hint)
            group = shared[0] if shared and is_dataclass(shared[0]) else None
            helped = any(getattr(note, "help", None) for note in shared)
            explained = [f"{key}: " in (group.__doc__ or "") for key in group.__dataclass_fields__] if group else [helped]
            assert parameter == "return" or f"\n        {parameter}: " in (verb.__doc__ or "") or all(explained), (
                f"realm {name}: {parameter}"
            )


def test_usage_errors_end_with_2(capsys):
    for arguments in ([], ["nonsense"], ["eval"], ["corpus"], ["corpus", "nonsense"], ["ask", "run", "q", "--k", "many"], ["eval", "run"]):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 2 and "Traceback" not in capsys.readouterr().err


def test_standard_output_may_be_closed(monkeypatch, say):
    assert say("--version").startswith("realm 0.")
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["models"]) == 0


def test_interrupted(monkeypatch, tiny_run, capsys):
    import realm.runs.cached  # noqa: F401  # keeps the real function: what is imported first while it is patched would keep the patch

    monkeypatch.setattr("realm.answering.opening.open_run", Mock(side_effect=KeyboardInterrupt))
    assert main(["ask", str(tiny_run), "Who?"]) == 130
    assert capsys.readouterr().err == "interrupted; run the same command again to continue\n"


def test_from_documents_to_weights(tmp_path, write_tiny):
    """The installed command itself; standard output holds nothing but the object."""
    recipe = write_tiny(tmp_path)
    command = [sys.executable, "-m", "realm", "run", str(recipe), "--out", str(tmp_path / "run"), "--set", "warm.steps=3", "--json"]
    done = subprocess.run([*command, "--stages", "corpus,warm"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    result = json.loads(done.stdout)
    assert result["run"] == str(tmp_path / "run") and set(result["stages"]) == {"corpus", "warm"}
    assert "0% of the spans are in one block only" in done.stderr and "warm  3/3" in done.stderr
    assert "steps = 3" in (tmp_path / "run" / "config.toml").read_text()


def test_stage_by_stage(say, tmp_path, write_tiny, tiny_run):
    """A run directory has its recipe; stage by stage makes the very weights of one `realm run`."""
    recipe, run = write_tiny(tmp_path), tmp_path / "run"
    say("run", recipe, "--out", run, "--stages", "corpus")
    for stage in ("warm", "ict", "pretrain", "finetune"):
        assert stage in say("run", run, "--stages", stage, "--json")["stages"]
        name = f"stages/{stage}/model.safetensors"
        assert (run / name).read_bytes() == (tiny_run / name).read_bytes()
    assert (run / "results" / "pretrain.json").exists()


def test_plan(say, tiny_run, tmp_path):
    shown = say("run", tiny_run.parent / "recipe.toml", "--out", tmp_path / "new", "--plan")
    assert "12 blocks" in shown and "0% of them in one block only" in shown and "can teach" in shown
    assert not (tmp_path / "new").exists()


def test_corpus_verbs(say, tmp_path, write_tiny):
    write_tiny(tmp_path)
    corpus = tmp_path / "corpus"
    built = say("corpus", "build", tmp_path / "docs.jsonl", "--out", corpus, "--vocab-size", 300, "--block-length", 64, "--json")
    assert {"documents", "blocks", "spans", "version", "segments", "removed", "rejected"} <= set(built) and built["documents"] == 12
    assert say("corpus", "add", corpus, tmp_path / "more.jsonl", "--json")["version"] == 2
    assert say("corpus", "info", corpus, "--json")["documents"] == 13 and "single block span share" in say("corpus", "info", corpus)
    shown = say("corpus", "show", corpus, "Novaria/0", "--json")
    assert shown["blocks"][0]["title"] == "Novaria" and "Novaria" in shown["blocks"][0]["spans"]


def test_ask(say, tiny_run):
    found = say("ask", tiny_run, "What is the currency of Arvad?", "--k", 3, "--json")
    parts = "question answer p pooled confidence abstained kind shown said level prose note evidence versions timings_ms"
    assert set(found) == set(parts.split())
    keys = {"doc_id", "block_id", "title", "heading", "text", "p_z", "p_span", "answer", "start", "end", "doc_start", "path", "media"}
    keys |= {"also_in", "text_heading"}
    assert len(found["evidence"]) == 3 and all(set(e) == keys for e in found["evidence"])
    assert set(found["versions"]) == {"params", "index", "corpus"} and set(found["timings_ms"]) == {"embed", "search", "read"}
    assert all(value >= 0 for value in found["timings_ms"].values())
    shown = say("ask", tiny_run, "What is the currency of Arvad?", "--k", 3)
    assert found["answer"] in shown and found["evidence"][0]["doc_id"] in shown
    assert all(f"[[{e['answer']}]]" in shown for e in found["evidence"]), "the best answer in each document is marked"


def test_eval(say, tiny_run):
    found = say("eval", tiny_run, "--qa", tiny_run.parent / "qa.jsonl", "--json")
    rates = {"n", "em", "em_interval", "regex_em", "f1", "f1_interval", "recall", "recall_interval", "recall_gold", "reader_oracle"}
    rates |= {"risk_coverage", "calibration_error", "coverage", "selective_em"}
    remarks = {"abstain_below", "cut_questions", "skipped", "invalid_patterns", "slow_patterns", "versions"}
    assert set(found) == rates | remarks | {"datasets", "languages"}
    assert found["datasets"] == {"qa": {name: found[name] for name in rates}}
    assert found["n"] == 6 and set(found["recall"]) == {"1", "5"} == set(found["recall_gold"]) and len(found["em_interval"]) == 2
    assert "gold" in say("eval", tiny_run, "--qa", tiny_run.parent / "qa.jsonl")


def test_explain(say, tiny_run):
    text = "The currency of Arvad is the [MASK]."
    found = say("explain", tiny_run, text, "--target", "Tirel", "--k", 4, "--exclude", "Belmor/0", "--json")
    assert set(found) == {"text", "targets", "p_y", "p_y_null", "excluded", "predictions", "candidates"}
    keys = {"block_id", "title", "text", "null", "p_z", "p_y_given_z", "r", "utility"}
    assert len(found["candidates"]) == 4 and all(set(c) == keys for c in found["candidates"]) and found["candidates"][0]["null"]
    assert 2 in found["excluded"] and "p(z|x)" in say("explain", tiny_run, text, "--k", 3)


@pytest.mark.parametrize(
    ("p", "said"), [(0.4, "fill in, parts of a name counted for it: pound sterling (0.4)"), (0.14, "fill in: pound sterling (0.14)")]
)
def test_an_explanation_says_that_parts_of_a_name_were_counted(capsys, p, said):
    told = [{"text": "pound sterling", "p": p}]
    show.explanation({"text": "", "targets": ["pound sterling"], "p_y": 0.14, "p_y_null": 0, "predictions": told, "candidates": []})
    assert said in " ".join(capsys.readouterr().out.split())


def test_documents_added_later(say, run_copy, tiny_run, capsys):
    say("corpus", "add", run_copy / "corpus", tiny_run.parent / "more.jsonl")
    assert main(["ask", str(run_copy), "What is the currency of Novaria?"]) == 0
    assert "1 blocks of the corpus are not searchable yet" in capsys.readouterr().err
    assert say("index", "info", run_copy, "--json")["missing"] == 1
    built = say("index", "build", run_copy, "--json")
    assert (built["embedded"], built["missing"], built["blocks"]) == (1, 0, 13)
    assert say("index", "build", run_copy, "--json")["embedded"] == 0
    found = say("index", "search", run_copy, "Novaria", "--k", 13, "--json")
    assert "Novaria/0" in {hit["doc_id"] for hit in found["results"]} and found["versions"]["corpus"] == 2
    assert main(["ask", str(run_copy), "What is the currency of Novaria?"]) == 0
    assert "searchable" not in capsys.readouterr().err
    assert "Novaria" in say("index", "search", run_copy, "Novaria", "--k", 13)


def test_report(say, run_copy):
    (run_copy / "report.html").unlink()
    assert say("report", run_copy).strip() == str(run_copy / "report.html") and (run_copy / "report.html").is_file()


def test_a_run_without_a_reader(say, run_copy, tiny_run, capsys):
    shutil.rmtree(run_copy / "stages" / "finetune")
    assert main(["ask", str(run_copy), "Who?"]) == 2
    error = capsys.readouterr().err
    assert "has not been fine-tuned" in error and "realm index search" in error
    found = say("eval", run_copy, "--qa", tiny_run.parent / "qa.jsonl", "--json")
    assert found["em"] is None and found["recall_gold"]["5"] >= 0
    assert len(say("index", "search", run_copy, "Arvad", "--json")["results"]) == 5


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_that_native_code_makes_another_error_of_is_that_signal(number, code, monkeypatch, capsys):
    """safetensors says "could not determine the shape" where one finds it loading; elsewhere such an error is an error."""

    def loading(arguments):
        try:
            if arguments == ["signalled"]:
                signal.raise_signal(number)
        finally:
            raise ValueError("could not determine the shape")

    monkeypatch.setattr("realm.cli._dispatch", loading)
    ordinary = signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler
    before = signal.signal(number, ordinary)  # a library that another test used may have a handler of its own
    try:
        assert main(["signalled"]) == code and "run the same command again" in capsys.readouterr().err
        with pytest.raises(ValueError, match="shape"):
            main(["alone"])
        assert signal.getsignal(number) is ordinary
    finally:
        signal.signal(number, before or ordinary)


def test_help_fits_the_terminal(monkeypatch, capsys):
    """No line of any verb's help is longer than the terminal is wide, and no type is shown as ``{None}|PATH``, no default as ``None``."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ["", *COMMANDS]:
        with pytest.raises(SystemExit):
            main([*name.split(), "--help"])
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80, name
        words = " ".join(" ".join(lines).replace("│", " ").split())
        assert words.startswith("usage: realm") and "{None}|" not in words, name
        assert not {"(default: )", "(default: '')", "(default: None)", "(default: False)", "(repeatable)"} & set(
            re.findall(r"\([^()]*\)", words)
        ), name


def test_evidence_is_printed_on_one_line(capsys):
    text = "Council\n\nSofia\nMoretti chairs it.\nTwelve sit in it."
    evidence = {"doc_id": "council.md", "title": "Council", "path": [], "p_span": 0.9, "text": text, "start": 9, "end": 22}
    show.answer({"question": "Who chairs it?", "answer": "Sofia Moretti", "p": 0.9, "evidence": [evidence]})
    assert "     Council [[Sofia Moretti]] chairs it. Twelve sit in it.\n" in capsys.readouterr().out
