"""A model's directory without torch: the same vectors, scores and identity as by torch, and one line where torch is needed."""

import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from realm.errors import MissingExtra, RunError
from realm.models.model import RealmModel, state_sha256
from realm.models.runtime.body import RuntimeBody
from realm.models.runtime.model import RuntimeModel, learning_model, load_model, multiplies_integers, runtime_model
from realm.models.spec import BodySpec, one_body, read_spec
from realm.models.types import Sequence

BERT = {
    "model_type": "bert",
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
MODERN = {"model_type": "modernbert", **{key: value for key, value in BERT.items() if key != "model_type"}, "pad_token_id": 0}
SEQUENCES = [Sequence([2, 9, 17, 3, 21, 22, 8, 3], [0, 0, 0, 0, 1, 1, 1, 1]), Sequence([2, 5, 3, 7, 3], [0, 0, 0, 1, 1])]


def saved(directory, config=BERT, parts=("embedder", "document_embedder", "reader"), seed=0):
    torch.manual_seed(seed)
    body = BodySpec({"layer_norm_eps": 1e-12, "max_position_embeddings": 64, **config}, pooling="mean", segments=config is BERT)
    model = RealmModel(one_body(body, projection=8, dropout=0.0, null_offset=True, max_span=4, parts=parts)).eval()
    model.save_pretrained(directory, card=None)
    return model


def test_networks_are_those_of_torch(tmp_path):
    model, found = saved(tmp_path / "model"), load_model(tmp_path / "model")
    assert isinstance(found, RuntimeModel) and found.has("reader") and not found.has("encoder")
    for left, right in ((found.embedder, model.embedder), (found.documents, model.documents)):
        np.testing.assert_allclose(left.embed_questions(SEQUENCES), right.embed_questions(SEQUENCES), atol=1e-5)
        np.testing.assert_allclose(left.embed_blocks(SEQUENCES), right.embed_blocks(SEQUENCES), atol=1e-5)
    left, right = (one.reading(bf16=False).read(SEQUENCES, [4, 3]) for one in (found, model))
    np.testing.assert_allclose(left.scores[left.valid], right.scores[right.valid], atol=1e-5)
    np.testing.assert_allclose(left.not_here, right.not_here, atol=1e-5)
    assert found.documents_sha256() == state_sha256(model.documents) == model.documents_sha256()


def test_parts_may_be_missing(tmp_path):
    saved(tmp_path / "model", parts=("embedder",))
    found = runtime_model(tmp_path / "model")
    assert found.documents is found.embedder and not runtime_model(tmp_path / "model", without=("embedder",)).has("embedder")
    with pytest.raises(RunError, match="no reader"):
        found.reading()


def test_what_was_centred_at_release_is_read_where_it_is_of_these_weights(tmp_path, monkeypatch):
    saved(tmp_path)
    measured, spec = [], read_spec(tmp_path / "config.json")
    blocks = lambda: RuntimeModel(tmp_path, spec, eight_bit=True).documents.embed_blocks(SEQUENCES)  # noqa: E731
    monkeypatch.setattr(RuntimeBody, "centred", lambda body, centred=RuntimeBody.centred: measured.append(1) or centred(body))
    without = blocks()
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "released")
    kept, before = import_module("bake").bake(tmp_path), len(measured)
    assert np.array_equal(blocks(), without) and len(measured) == before, "bit for bit, and nothing is measured"
    saved(tmp_path, seed=1)
    assert not np.array_equal(blocks(), without) and len(measured) == before + 1, "of other weights"
    saved(tmp_path)
    save_file({name: value + (value.dtype == np.float32) for name, value in load_file(kept).items()}, kept)
    assert np.array_equal(blocks(), without) and len(measured) == before + 2, "damaged"


def test_weights_that_do_not_fit_are_one_line(tmp_path):
    saved(tmp_path / "wide", {**BERT, "intermediate_size": 96})
    saved(tmp_path / "model")
    (tmp_path / "wide" / "model.safetensors").replace(tmp_path / "model" / "model.safetensors")
    with pytest.raises(RunError, match=r"model.safetensors: the weights do not fit the configuration: .*Fetch or train"):
        load_model(tmp_path / "model").documents.embed_blocks(SEQUENCES)


@pytest.mark.parametrize(("there", "said"), [
    (None, r"ONNX Runtime cannot be loaded: .*pip install --upgrade onnxruntime"),
    (SimpleNamespace(__version__="1.17.3"), r"ONNX Runtime 1.17.3 is too old. Install it"),
])  # fmt: skip
def test_a_runtime_that_is_missing_or_old_is_one_line(tmp_path, monkeypatch, there, said):
    saved(tmp_path / "model")
    monkeypatch.setitem(sys.modules, "onnxruntime", there)
    with pytest.raises(RunError, match=f"^{said}[^\n]*$"):
        load_model(tmp_path / "model").embedder.embed_blocks(SEQUENCES)


@pytest.mark.parametrize(("chosen", "features", "integers"), [
    ("", {"AVX512VNNI": True}, True), ("", {"ASIMDDP": True}, True), ("", {"AVX2": True, "AVX512VNNI": False}, False), ("", {}, False),
    ("float32", {"AVX512VNNI": True}, False), ("int8", {}, True),
])  # fmt: skip
def test_products_are_what_the_processor_is_fast_at_or_the_environment_says(monkeypatch, chosen, features, integers):
    monkeypatch.setenv("REALM_PRODUCTS", chosen)
    monkeypatch.setattr("numpy._core._multiarray_umath.__cpu_features__", features)
    assert multiplies_integers.__wrapped__() is integers


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="no emulator: apt-get install qemu-user")
def test_a_processor_without_avx_answers_alike(tmp_path):
    """A processor of 2008, emulated: float32, the scalar kernel, the same answer."""
    (tmp_path / "note.txt").write_text("The Harrow bridge was built in 1911 by Ellen Marsh, an engineer from Leeds.")
    command = [os.path.realpath(sys.executable), "-m", "realm", "ask", "note.txt", "Who built the Harrow bridge?", "--json"]

    def asked(*emulator, **settings):
        settings |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "XDG_CACHE_HOME": str(tmp_path / f"cache{len(emulator)}")}
        done = subprocess.run([*emulator, *command], capture_output=True, text=True, env=os.environ | settings, cwd=tmp_path, check=True)
        return json.loads(done.stdout)

    here, old = asked(REALM_PRODUCTS="float32"), asked("qemu-x86_64", "-cpu", "Nehalem", OPENBLAS_CORETYPE="")
    assert old["answer"] == here["answer"] == "Ellen Marsh" and old["p"] == pytest.approx(here["p"], abs=1e-5)


def test_other_families_need_torch_and_say_so(tmp_path, monkeypatch):
    saved(tmp_path / "model", MODERN, ("embedder",))
    assert runtime_model(tmp_path / "model") is None and isinstance(load_model(tmp_path / "model"), RealmModel)
    monkeypatch.delitem(sys.modules, "realm.models.model")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"pip install 'realm-qa\[train\]'"):
        learning_model(tmp_path / "model")
