"""The search benchmark runs, on data that are what they say; a peer that is missing is left out."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]


def test_a_small_run(tmp_path):
    arguments = ["--n", "3000", "--dim", "32", "--rounds", "1", "--threads", "1", "--dir", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks.search.bench_mips", *arguments, "--methods", "realm-exact,torch-exact,realm-serving"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()[-1])
    rows = {row["method"]: row for row in found["rows"]}
    assert list(rows) == ["realm", "realm-exact", "torch-exact", "realm-serving"]
    for row in rows.values():
        recalls = {f"recall@{k}" for k in (5, 8, 10, 20, 100)}
        assert row.keys() == {"method", "build_s", "ram_bytes", "q1_ms", "q64_ms"} | recalls
        assert row["recall@5"] == row["recall@8"] == row["recall@100"] == 1.0  # serving is exact with so few rows
    assert found["ratios"].keys() >= {"q1: torch-exact / realm", "q64: torch-exact / realm", "q1: 1,000 ids excluded / none (<= 1.05)"}
    assert found["figures"].keys() >= {"build from memory, s", "open from published shards, first, s", "mean list length, 64 queries"}
    assert all(value > 0 for value in found["ratios"].values())
    vectors = np.load(next(tmp_path.glob("clus-3000-32-0.npy")))
    assert vectors.shape == (3000, 32) and vectors.dtype == np.float32 and not (tmp_path / "published").exists()
    np.testing.assert_allclose(vectors.mean(axis=1), 0, atol=1e-5)
    np.testing.assert_allclose(vectors.std(axis=1), 1, atol=1e-4)
