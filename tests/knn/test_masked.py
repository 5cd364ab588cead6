"""kNN beside REALM's own encoder: keys are states at masks, the sentence itself can be left out, and the verbs know a run."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from realm.cli import main
from realm.errors import ConfigError, DataError, RunError, SnapshotError
from realm.knn.datastore import Datastore
from realm.knn.masked import MaskedNetwork, build_from_run, cloze_windows, fill, span_windows
from realm.knn.session import Session, build
from realm.knn.settings import Mixing
from realm.knn.windows import TextOptions


@pytest.fixture
def network(tiny_run):
    return MaskedNetwork.open(tiny_run)


@pytest.fixture
def datastore(tmp_path, network):
    return build_from_run(tmp_path / "d", network)


def test_windows_hide_whole_spans(network):
    inputs, tokenizer = network.inputs, network.inputs.store.tokenizer
    found = [(row, window) for row, window in span_windows(inputs)]
    assert len(found) > 12 and {row for row, _ in found} == set(range(12))
    for row, window in found:
        assert (window.ids[window.places] == tokenizer.special.mask).all()
        filled = window.ids.copy()
        filled[window.places] = window.targets
        assert tokenizer.decode(filled.tolist()) in tokenizer.decode(inputs.store.token_ids(row).tolist())


def test_keys_and_log_probs_are_the_encoder_s(network):
    """Read together or alone, and with the encoder's own call: the same log-probabilities at the masks."""
    windows = [window for _, window in span_windows(network.inputs)][:6]
    together, start = network.read(windows, log_probs=True), 0
    for window in windows:
        rows = slice(start, start := start + len(window.places))
        joint = network.inputs.featurizer.joint(window.ids.tolist(), [])
        with torch.no_grad():
            own = network.encoder.log_probs([joint], torch.from_numpy(window.places).long()[None] + 1)[0]
        torch.testing.assert_close(together.log_probs[rows], own, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(together.keys[rows], network.read([window], log_probs=False).keys, atol=1e-5, rtol=1e-5)


def test_filling_is_its_definition(network, datastore):
    index, window = datastore.index("exact"), next(w for _, w in span_windows(network.inputs))
    states = network.read([window], log_probs=True)
    *_, plain, mixed = fill(network, index, window, Mixing(k=3, a=0.4, temperature=2.0))
    expected = np.zeros(2)
    for place, wanted in enumerate(window.targets.tolist()):
        scores = -np.square(datastore.snapshot.vectors.astype(float) - states.keys[place].double().numpy()).sum(1)
        nearest = np.argsort(-scores, kind="stable")[:3]
        share = np.exp((scores[nearest] - scores.max()) / 2.0)
        p_knn = share[datastore.tokens[nearest] == wanted].sum() / share.sum()
        p = float(states.log_probs[place, wanted].exp())
        expected += [np.log(p), np.log(0.4 * p_knn + 0.6 * p)]
    np.testing.assert_allclose([plain, mixed], expected, atol=1e-4)


def test_the_verbs_know_a_run(tmp_path, tiny_run, capsys):
    def say(*arguments):
        capsys.readouterr()
        assert main([*map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    made = say("knn", "build", tiny_run, "--out", tmp_path / "d")
    assert made["kind"] == "masked" and made["layer"].endswith("intermediate") and made["dim"] == 32
    cloze = tmp_path / "cloze.jsonl"
    cloze.write_text('{"text": "The currency of Arvad is the [MASK].", "target": "Tirel"}\n', "utf-8")
    found = say("knn", "eval", tmp_path / "d", cloze, "--a", 1, "--k", 1, "--temperature", 1)
    assert found["n"] == 1 and found["knn_accuracy"] == 1.0, "the corpus holds this very sentence"
    none = say("knn", "eval", tmp_path / "d", cloze, "--a", 0)
    assert none["log_p"] == none["knn_log_p"] and none["accuracy"] == none["knn_accuracy"]


def test_a_datastore_of_a_removed_document_is_refused(tmp_path, tiny_run, capsys):
    """It filled masks with what was removed. An added document changes nothing that it holds."""
    run, cloze = Path(shutil.copytree(tiny_run, tmp_path / "run")), tmp_path / "cloze.jsonl"
    cloze.write_text('{"text": "The currency of Arvad is the [MASK].", "target": "Tirel"}\n', "utf-8")
    ask = ["knn", "eval", str(tmp_path / "d"), str(cloze), "--a", "1", "--k", "1", "--json"]
    assert main(["knn", "build", str(run), "--out", str(tmp_path / "d")]) == 0 and main(ask) == 0
    assert main(["corpus", "add", str(run / "corpus"), str(tiny_run.parent / "more.jsonl")]) == 0 and main(ask) == 0
    assert main(["corpus", "compact", str(run / "corpus")]) == 0 and main(ask) == 0
    assert main(["corpus", "remove", str(run / "corpus"), "Arvad/1"]) == 0
    capsys.readouterr()
    assert main(ask) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error and "were removed from the corpus" in error and "realm knn build" in error
    shutil.rmtree(tmp_path / "d")
    assert main(["knn", "build", str(run), "--out", str(tmp_path / "d")]) == 0 and main(ask) == 0
    network = MaskedNetwork.open(run)
    decode = network.inputs.store.tokenizer.decode
    assert not any("currency of arvad" in decode(window.ids.tolist()).lower() for _, window in span_windows(network.inputs))


@pytest.mark.parametrize(("line", "problem"), [
    ('{"text": "No mask.", "target": "x"}', r"no \[MASK\]"), ("{", "not JSON"),
    ('{"text": "[MASK] is."}', "no sentence"), ("", "no sent"),
])  # fmt: skip
def test_bad_clozes(tmp_path, network, line, problem):
    (tmp_path / "c.jsonl").write_text(line + "\n", "utf-8")
    with pytest.raises(DataError, match=rf"c\.jsonl.*{problem}"):
        cloze_windows(network.inputs, tmp_path / "c.jsonl")


def test_bad_requests(tmp_path, tiny_run, datastore, networks, built):
    with pytest.raises(ConfigError, match="reads its own corpus"):
        build(str(tiny_run), [tmp_path], tmp_path / "x", TextOptions())
    with pytest.raises(ConfigError, match="no text to read"):
        build("somewhere", [], tmp_path / "x", TextOptions())
    with pytest.raises(RunError, match="no pre-trained run here"):
        MaskedNetwork.open(tmp_path)
    with pytest.raises(ConfigError, match="only fills masks"):
        Session.open(datastore.path)
    with pytest.raises(SnapshotError, match="made by a causal model"):
        Datastore.open(built("causal").path, MaskedNetwork.open(tiny_run))
