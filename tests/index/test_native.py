"""The native kernel: its codes and bounds against numpy, level against level, and under the sanitizers."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from realm.errors import SnapshotError
from realm.index.native import build as native_build
from realm.index.native.build import SOURCES, build, find_compiler, library_path
from realm.index.native.kernel import GROUP, LEVELS, SCORED, Kernel
from realm.index.quantised import LANE_SUM, QuantisedRows, code_queries, quantise

Kernels = Callable[..., Kernel]


def decoded(rows: QuantisedRows) -> np.ndarray:
    """The vectors that the codes stand for, float64 [n,d]."""
    codes = rows.codes.transpose(0, 1, 3, 2, 4).reshape(rows.groups * GROUP, -1).astype(np.float64) - 128
    return (codes * rows.scale[:, None])[: rows.rows, : rows.dim]


def group_max(values: np.ndarray) -> np.ndarray:
    return np.array([values[start : start + GROUP].max() for start in range(0, len(values), GROUP)])


def awkward(n: int, d: int, seed: int) -> np.ndarray:
    """Rows of very different lengths, some zero, some tiny, some with one large component."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-3, 4, (n, 1))
    vectors[::7] = 0
    vectors[::11] *= 1e-40
    vectors[::13, d // 2] = 1e20
    return vectors.astype(np.float32)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("n", "d"), [(1, 8), (64, 1), (200, 13), (130, 128), (65, 2048)])
def test_codes_and_their_bounds(kernel: Kernels, level: str, n: int, d: int) -> None:
    vectors = awkward(n, d, n + d)
    bias = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    rows = quantise(kernel(level), vectors, bias)
    back = decoded(rows)
    lost = np.linalg.norm(vectors.astype(np.float64) - back, axis=1)
    assert (lost <= np.abs(vectors).max(axis=1) / 127 * np.sqrt(d) * 0.501 + 1e-30 * np.sqrt(d)).all(), "each component to half a step"
    norm = group_max(np.linalg.norm(back, axis=1))
    assert (rows.residual >= group_max(lost)).all() and (rows.residual <= group_max(lost) * 1.001 + norm * 1e-6 + 1e-14).all()
    assert (rows.norm >= norm).all() and (rows.norm <= norm * 1.001 + 1e-14).all()
    assert (rows.offset[:n] == bias).all() and np.isneginf(rows.offset[n:]).all()


@pytest.mark.parametrize("short_sums", [True, False])
@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("d", [1, 5, 16, 50, 128, 2048])
def test_query_codes_never_overflow_16_bits(planes: int, d: int, short_sums: bool) -> None:
    rng = np.random.default_rng(d)
    queries = np.concatenate([rng.standard_normal((3, d)), np.ones((1, d)), -np.ones((1, d)), np.eye(1, d) * 1e30, np.zeros((1, d))])
    coded = code_queries(torch.from_numpy(queries.astype(np.float32)), planes, short_sums)
    quads = coded.panels.shape[1]
    codes = coded.panels.transpose(0, 2, 1, 3).reshape(-1, quads * 4).astype(np.int64)
    padded = np.pad(codes, ((0, 0), (0, -codes.shape[1] % 16))).reshape(len(codes), -1, 4, 2, 2)
    for sign in (1, -1) if short_sums else ():
        assert np.maximum(sign * padded, 0).sum(axis=(2, 4)).max() <= LANE_SUM
    assert 255 * LANE_SUM <= 32767 and np.abs(codes).max() <= 127
    planes_of = (codes[:, :d] * coded.step[:, None].astype(np.float64))[: planes * len(queries)].reshape(len(queries), planes, d)
    back = planes_of.sum(axis=1)
    assert (np.linalg.norm(queries.astype(np.float32) - back, axis=1) <= coded.by_norm).all()
    assert (coded.shift == 128 * codes.sum(axis=1)).all()
    if not short_sums:
        at_most = np.sqrt(d) * 0.501 * (np.abs(queries).max(axis=1) / 126) ** planes + np.linalg.norm(queries, axis=1) * 2.0**-19 + 1e-14
        assert (coded.by_norm[:3] <= at_most[:3]).all(), "each component to half a step of 1/127 of the largest"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("b", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize(("n", "d"), [(3, 8), (321, 30), (640, 128), (70, 2047)])
def test_bounds_hold_and_are_tight(kernel: Kernels, level: str, b: int, n: int, d: int) -> None:
    rng = np.random.default_rng(n)
    vectors = rng.standard_normal((n, d)).astype(np.float32)
    bias = -np.square(vectors.astype(np.float64)).sum(axis=1).astype(np.float32) / 2
    queries = rng.standard_normal((b, d)).astype(np.float32)
    true = queries.astype(np.float64) @ vectors.T.astype(np.float64) + bias
    used = kernel(level)
    rows = quantise(used, vectors, bias)
    removed = rng.random(n) < 0.3
    removed[:GROUP] = True
    for planes in (1, 2):
        coded = code_queries(torch.from_numpy(queries), planes, used.short_sums)
        upper = np.empty((b, rows.groups), np.float32)
        used.scan(rows.struct(), coded.struct(), upper)
        best = np.stack([group_max(scores) for scores in true])
        room = 0.1 * np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(vectors, axis=1).max()
        assert (upper >= best).all() and (upper <= best + room).all()
        query, group = (index.ravel() for index in np.indices((b, rows.groups)).astype(np.int64))
        single = np.empty((len(query), GROUP), np.float32)
        used.rows(rows.struct(), coded.struct(), query, group, single)
        single = single.reshape(b, -1)
        assert (single[:, :n] >= true).all() and (single[:, :n] <= true + room).all() and np.isneginf(single[:, n:]).all()
        assert (single.reshape(b, -1, GROUP).max(axis=2) <= upper * (1 + 1e-6) + 1e-3).all()
        without = rows.hidden(removed)
        used.rows(without.struct(), coded.struct(), query, group, single.reshape(-1, GROUP))
        assert np.isneginf(single[:, :n][:, removed]).all() and (single[:, :n][:, ~removed] >= true[:, ~removed]).all()
        used.scan(without.struct(), coded.struct(), upper)
        assert np.isneginf(upper[:, 0]).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("distance", [False, True])
def test_scores_of_single_rows(kernel: Kernels, level: str, distance: bool) -> None:
    rng = np.random.default_rng(2)
    for d in (1, 7, 64, 128, 129, 300, 2048):
        vectors, queries = (
            rng.standard_normal((40, d)).astype(np.float32),
            rng.standard_normal((3, d)).astype(np.float32).astype(np.float64),
        )
        vectors[3] = 0
        query, row = rng.integers(0, 3, 700), rng.integers(0, 40, 700)
        score = kernel(level).score(vectors, queries, query, row, distance)
        x, q = vectors[row].astype(np.float64), queries[query]
        wanted = 0.0 - np.square(x - q).sum(axis=1) if distance else (x * q).sum(axis=1) + 0.0
        assert (score.view(np.int64) == wanted.view(np.int64)).all(), "the definition, bit for bit"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("b", "n"), [(1, 5000), (3, 50), (7, 900), (150, 400)])
def test_lists_hold_the_rows_that_reach_the_floor(kernel: Kernels, level: str, b: int, n: int) -> None:
    rng = np.random.default_rng(b)
    used = kernel(level)
    rows = quantise(used, rng.standard_normal((n, 20)).astype(np.float32)).hidden(rng.random(n) < 0.2)
    queries = torch.from_numpy(rng.standard_normal((b, 20)).astype(np.float32))
    fine, coarse = (code_queries(queries, planes, used.short_sums) for planes in (2, 1))
    upper = np.empty((b, rows.groups), np.float32)
    used.scan(rows.struct(), coarse.struct(), upper)
    query, group = (index.ravel() for index in np.indices((b, rows.groups)).astype(np.int64))
    bounds = np.empty((len(query), GROUP), np.float32)
    used.rows(rows.struct(), fine.struct(), query, group, bounds)
    floor = np.sort(bounds.reshape(b, -1), axis=1)[:, -n // 5] - 1e-3
    floor[0] = np.finfo(np.float32).min
    excluded = [np.sort(rng.choice(n, rng.integers(0, n // 2), replace=False)) for _ in range(b)]
    hidden = np.concatenate(excluded), np.concatenate([[0], np.cumsum([len(some) for some in excluded])])
    reached = (bounds >= floor[query][:, None]) & (upper >= floor[:, None]).reshape(-1, 1)
    listed, found = used.list(rows.struct(), fine.struct(), upper, floor, hidden, n)
    for i in range(b):
        at, place = reached[query == i].nonzero()
        wanted = np.setdiff1d(at * GROUP + place, excluded[i])
        some = np.sort(listed[i, : found[i]], order="row")
        assert (some["row"] == wanted).all()
        assert (some["upper"] == bounds.reshape(b, -1)[i, wanted]).all() and (some["lower"] < some["upper"]).all()
    limit = int(np.median(found))
    short, again = used.list(rows.struct(), fine.struct(), upper, floor, hidden, limit)
    assert ((again > limit) == (found > limit)).all(), "who has more is known"
    for i in np.flatnonzero(found <= limit):
        assert (np.sort(short[i, : found[i]], order="row") == np.sort(listed[i, : found[i]], order="row")).all()


@pytest.mark.parametrize("folds", [1, 5, 13])
def test_thresholds_are_the_ranked_bounds_of_folded_groups(kernel: Kernels, folds: int) -> None:
    rng = np.random.default_rng(folds)
    used = kernel("scalar")
    rows = quantise(used, rng.standard_normal((64 * 13, 8)).astype(np.float32), rng.standard_normal(64 * 13).astype(np.float32))
    upper = rng.integers(-9, 9, (4, 13)).astype(np.float32)  # many are equal
    upper[1, 3:] = -np.inf
    by_residual, by_norm = rng.random(4).astype(np.float32), rng.random(4).astype(np.float32)
    less = upper - (np.outer(by_residual, rows.residual) + np.outer(by_norm, rows.norm) + 2 * rows.slack)
    padded = np.pad(less, ((0, 0), (0, -13 % folds)), constant_values=-np.inf).reshape(4, -1, folds).max(axis=1)
    for rank in range(1, folds + 1):
        found = used.thresholds(rows.struct(), upper, by_residual, by_norm, 2.0, folds, rank)
        np.testing.assert_allclose(found, -np.sort(-padded, axis=1)[:, rank - 1], rtol=1e-5, atol=1e-5)


def test_scored_rows_are_put_in_order(kernel: Kernels) -> None:
    rng = np.random.default_rng(0)
    start = np.cumsum([0, 0, 1, 2, 500, 77])
    scored = np.empty(start[-1], SCORED)
    scored["score"], scored["row"] = rng.integers(-3, 3, len(scored)), rng.permutation(len(scored))
    wanted = [some[np.lexsort((some["row"], -some["score"]))] for some in np.split(scored, start[1:-1])]
    kernel("scalar").order(start, scored)
    assert (scored == np.concatenate(wanted)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("level", LEVELS)
def test_components_that_are_not_finite_are_refused(kernel: Kernels, level: str, value: float) -> None:
    vectors = np.ones((300, 9), np.float32)
    vectors[217, 8] = value
    with pytest.raises(SnapshotError, match="vector 217 has a component that is not finite"):
        quantise(kernel(level), vectors)


def test_unknown_levels_and_thread_counts_are_refused(kernel_library: Path) -> None:
    with pytest.raises(ValueError):
        Kernel(kernel_library, "mmx")
    with pytest.raises(ValueError, match="threads must be at least 1"):
        Kernel(kernel_library, "scalar", 0)


def test_without_a_compiler_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build(tmp_path) is None and list(tmp_path.iterdir()) == []


def test_a_failing_compiler_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "broken-cc"
    compiler.write_text("#!/bin/sh\necho cannot compile today >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(RuntimeError, match="could not build the search kernel: cannot compile today"):
        build(tmp_path)
    assert native_build.main() == 1


def test_a_build_replaces_libraries_of_other_sources(tmp_path: Path) -> None:
    if find_compiler() is None:
        pytest.skip("no C compiler")
    old = tmp_path / "kernel-0123456789abcdef.so"
    old.touch()
    built = build(tmp_path, ["-O0"])
    assert built == library_path(tmp_path) and list(tmp_path.iterdir()) == [built]


def test_the_sanitizers_find_nothing(tmp_path: Path) -> None:
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C compiler")
    program = tmp_path / "driver"
    sources = [Path(__file__).with_name("kernel_driver.c"), *sorted(SOURCES.glob("*.c"))]
    trivial = tmp_path / "trivial.c"
    trivial.write_text("int main(void) { return 0; }\n")
    flags = ["-std=c11", "-O1", "-g", "-pthread", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{SOURCES}"]
    if subprocess.run([compiler, *flags, "-o", program, trivial], capture_output=True).returncode:
        pytest.skip("the compiler has no sanitizers")
    built = subprocess.run([compiler, *flags, "-o", program, *sources, "-lm"], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([program], capture_output=True, text=True, env={"ASAN_OPTIONS": "detect_leaks=0"})
    assert done.returncode == 0 and done.stdout.strip() == "sound", done.stderr[-3000:]
