"""An index in 8-bit integers: nearly the vectors of float32, from one process or several, and the extra is named where it is missing."""

import sys

import numpy as np
import pytest
import torch

from realm.answering.opening import open_run
from realm.errors import MissingExtra
from realm.models.onnx import Int8Embedder, write_int8
from realm.search.publishing.embedding import EmbedOptions, embed_corpus, embed_parts
from realm.search.publishing.parameters import parameters_path

pytest.importorskip("onnxruntime")


def cosines(left, right):
    return (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)


def test_vectors_are_nearly_those_of_float32(tiny_run, tmp_path, caplog):
    run = open_run(tiny_run)
    rows = np.arange(len(run.inputs.store))
    exact = embed_corpus(run.generation.embedder, run.inputs, rows)
    write_int8(run.generation.embedder, tmp_path / "embedder.onnx")
    found = Int8Embedder(tmp_path / "embedder.onnx", 1)(run.inputs.blocks(rows.tolist())).numpy()
    assert found.dtype == np.float32 and found.shape == exact.shape
    assert cosines(found, exact).min() > 0.95 and not np.allclose(found, exact, atol=1e-6)
    assert [path.name for path in tmp_path.iterdir()] == ["embedder.onnx"]
    assert not [record for record in caplog.records if record.name == "root"], "the quantiser's advice is nobody's to follow"


@pytest.mark.parametrize("workers", [1, 2])
def test_parts_of_a_corpus(tiny_run, workers, monkeypatch):
    """A build that is taken up again goes on where it was, and several processes give what one gives, but for the batches' rounding."""
    monkeypatch.setattr("realm.search.publishing.embedding.PART_ROWS", 2)
    run = open_run(tiny_run)
    rows = np.arange(len(run.inputs.store))
    params = parameters_path(run.paths, run.generation.snapshot.manifest.params_generation)
    embedder = run.generation.embedder
    exact = embed_corpus(embedder, run.inputs, rows)
    parts = embed_parts(embedder, params, run.inputs, rows, EmbedOptions(workers=workers, threads=1, int8=True), None)
    whole = np.concatenate(list(parts(0)))
    assert cosines(whole, exact).min() > 0.95 and not np.array_equal(whole, exact)
    np.testing.assert_array_equal(np.concatenate(list(parts(4))), whole[4:])
    assert next(embedder.parameters()).dtype == torch.float32


def test_the_extra_is_named(tiny_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime.quantization", None)
    with pytest.raises(MissingExtra, match=r"8-bit.*realm-qa\[onnx\]"):
        write_int8(open_run(tiny_run).generation.embedder, tmp_path / "embedder.onnx")
