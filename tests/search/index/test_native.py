"""The native kernel: its codes and bounds against numpy, level against level, and under the sanitizers."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from realm.errors import SnapshotError
from realm.search.index.native import build as native_build
from realm.search.index.native.build import SOURCES, build, find_compiler, library_path
from realm.search.index.native.kernel import GROUP, LEVELS, LISTED, Kernel
from realm.search.index.quantised import MAX_LANE_SUM, code_queries, quantise


def decoded(rows):
    """The vectors that the codes stand for, float64 [n,d]."""
    codes = rows.codes.transpose(0, 1, 3, 2, 4).reshape(rows.groups * GROUP, -1).astype(np.float64) - 128
    return (codes * rows.scale[:, None])[: rows.rows, : rows.dim]


def group_max(values):
    return np.array([values[start : start + GROUP].max() for start in range(0, len(values), GROUP)])


def awkward(n, d, seed):
    """Rows of very different lengths, some zero, some tiny, some with one large component."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-3, 4, (n, 1))
    vectors[::7] = 0
    vectors[::11] *= 1e-40
    vectors[::13, d // 2] = 1e20
    return vectors.astype(np.float32)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("n", "d"), [(1, 8), (64, 1), (200, 13), (130, 128), (65, 2048)])
def test_codes_and_their_bounds(kernel, level, n, d):
    vectors, bias = awkward(n, d, n + d), np.random.default_rng(0).standard_normal(n).astype(np.float32)
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
def test_query_codes_never_overflow_16_bits(planes, d, short_sums):
    rng = np.random.default_rng(d)
    queries = np.concatenate([rng.standard_normal((3, d)), np.ones((1, d)), -np.ones((1, d)), np.eye(1, d) * 1e30, np.zeros((1, d))])
    coded = code_queries(queries.astype(np.float32), planes, short_sums)
    quads = coded.panels.shape[1]
    codes = coded.panels.transpose(0, 2, 1, 3).reshape(-1, quads * 4).astype(np.int64)
    padded = np.pad(codes, ((0, 0), (0, -codes.shape[1] % 16))).reshape(len(codes), -1, 4, 2, 2)
    for sign in (1, -1) if short_sums else ():
        assert np.maximum(sign * padded, 0).sum(axis=(2, 4)).max() <= MAX_LANE_SUM
    assert 255 * MAX_LANE_SUM <= 32767 and np.abs(codes).max() <= 127
    back = (codes[:, :d] * coded.step[:, None].astype(np.float64))[: planes * len(queries)].reshape(len(queries), planes, d).sum(axis=1)
    assert (np.linalg.norm(queries.astype(np.float32) - back, axis=1) <= coded.by_norm).all()
    assert (coded.shift == 128 * codes.sum(axis=1)).all()
    if not short_sums:
        at_most = np.sqrt(d) * 0.501 * (np.abs(queries).max(axis=1) / 126) ** planes + np.linalg.norm(queries, axis=1) * 2.0**-19 + 1e-14
        assert (coded.by_norm[:3] <= at_most[:3]).all(), "each component to half a step of 1/127 of the largest"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("b", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize(("n", "d"), [(3, 8), (321, 30), (640, 128), (70, 2047)])
def test_bounds_hold_and_are_tight(kernel, level, b, n, d):
    rng = np.random.default_rng(n)
    vectors = rng.standard_normal((n, d)).astype(np.float32)
    bias = -np.square(vectors.astype(np.float64)).sum(axis=1).astype(np.float32) / 2
    queries = rng.standard_normal((b, d)).astype(np.float32)
    true, used = queries.astype(np.float64) @ vectors.T.astype(np.float64) + bias, kernel(level)
    rows = quantise(used, vectors, bias)
    removed = rng.random(n) < 0.3
    removed[:GROUP] = True
    for planes in (1, 2):
        coded = code_queries(queries, planes, used.short_sums)
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


def listing_of(rows, upper, room):
    """Addresses of LISTED rows of each query, where they begin, and the arrays to be kept."""
    lists = []
    for some, bounds in zip(rows, upper, strict=True):
        lists.append(np.empty(len(some), LISTED))
        lists[-1]["row"], lists[-1]["upper"], lists[-1]["lower"] = some, bounds, bounds - np.float32(room)
    return np.array([one.ctypes.data for one in lists], np.uint64), np.cumsum([0, *(len(one) for one in lists)]), lists


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("distance", [False, True])
def test_the_best_of_listed_rows(kernel, level, distance):
    rng, used = np.random.default_rng(2), kernel(level)
    for d in (1, 7, 64, 128, 129, 300, 2048):
        vectors, queries = (
            rng.standard_normal((400, d)).astype(np.float32),
            rng.standard_normal((4, d)).astype(np.float32).astype(np.float64),
        )
        vectors[3], vectors[7] = 0, vectors[8]
        rows, score = [rng.permutation(400)[:count] for count in (400, 300, 5, 0)], []
        for some, q in zip(rows, queries, strict=True):
            x = vectors[some].astype(np.float64)
            score.append(0.0 - np.square(x - q).sum(axis=1) if distance else (x * q).sum(axis=1) + 0.0)
        bounded = [(own + np.square(q).sum()) / 2 if distance else own for own, q in zip(score, queries, strict=True)]
        # Bounds just above what they bound; of the second query none is listed below its floor.
        upper = [np.nextafter((own + rng.random(len(own)) * 0.3).astype(np.float32), np.float32(np.inf)) for own in bounded]
        for k in (1, 20, 400):
            address, start, lists = listing_of(rows, upper, 1)
            floor = np.array([np.sort(bounded[0])[-k] - 1e-3, np.float32(np.finfo(np.float32).min), -1e9, 0], np.float32)
            row, found, scored = used.best(vectors, queries, address, start, k, floor, np.full(4, 1e-4), distance)
            for i in range(4):
                order = np.lexsort((rows[i], -score[i]))[:k]
                got = slice(min(k, len(order)))
                assert (row[i, got] == rows[i][order]).all()
                assert (found[i, got].view(np.int64) == score[i][order].view(np.int64)).all(), "the definition, bit for bit"
                assert min(k, len(rows[i])) <= scored[i] <= len(rows[i])
            assert k > 1 or d < 64 or scored[0] < 200, "bounds and scores rule most out"
            assert len(lists) == 4


def listed_of(used, b, n):
    """Rows of which a fifth is removed, queries, and the rows excluded for each: by query, and in one array with where each begins."""
    rng = np.random.default_rng(b)
    rows = quantise(used, rng.standard_normal((n, 20)).astype(np.float32)).hidden(rng.random(n) < 0.2)
    excluded = [np.sort(rng.choice(n, rng.integers(0, n // 2), replace=False)) for _ in range(b)]
    hidden = np.concatenate(excluded), np.concatenate([[0], np.cumsum([len(some) for some in excluded])])
    return rows, rng.standard_normal((b, 20)).astype(np.float32), excluded, hidden


def assert_same_lists(found, wanted, counts, queries):
    for i in queries:
        assert (np.sort(found[i, : counts[i]], order="row") == np.sort(wanted[i, : counts[i]], order="row")).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("b", "n"), [(1, 5000), (3, 50), (7, 900), (150, 400)])
def test_lists_hold_the_rows_that_reach_the_floor(kernel, level, b, n):
    used = kernel(level)
    rows, queries, excluded, hidden = listed_of(used, b, n)
    fine, coarse = (code_queries(queries, planes, used.short_sums) for planes in (2, 1))
    upper = np.empty((b, rows.groups), np.float32)
    used.scan(rows.struct(), coarse.struct(), upper)
    query, group = (index.ravel() for index in np.indices((b, rows.groups)).astype(np.int64))
    bounds = np.empty((len(query), GROUP), np.float32)
    used.rows(rows.struct(), fine.struct(), query, group, bounds)
    floor = np.sort(bounds.reshape(b, -1), axis=1)[:, -n // 5] - 1e-3
    floor[0] = np.finfo(np.float32).min
    reached = (bounds >= floor[query][:, None]) & (upper >= floor[:, None]).reshape(-1, 1)
    listed, found = used.list(rows.struct(), fine.struct(), upper, floor, hidden, n)
    for i in range(b):
        at, place = reached[query == i].nonzero()
        wanted = np.setdiff1d(at * GROUP + place, excluded[i])
        some = np.sort(listed[i, : found[i]], order="row")
        assert (some["row"] == wanted).all()
        assert (some["upper"] == bounds.reshape(b, -1)[i, wanted]).all() and (some["lower"] < some["upper"]).all()
    limit, listed = int(np.median(found)), listed.copy()  # the next list takes its memory
    short, again = used.list(rows.struct(), fine.struct(), upper, floor, hidden, limit)
    assert ((again > limit) == (found > limit)).all(), "who has more is known"
    assert_same_lists(short, listed, found, np.flatnonzero(found <= limit))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("b", "n", "stride"), [(1, 5000, 7), (3, 50, 1), (7, 900, 4), (150, 4000, 32)])
@pytest.mark.parametrize("planes", [1, 2])
def test_a_sweep_lists_what_a_scan_and_a_list_do(kernel, level, b, n, stride, planes):
    used = kernel(level)
    rows, queries, _, hidden = listed_of(used, b, n)
    fine = code_queries(queries, 2, used.short_sums)
    scanned = fine if planes == 2 else code_queries(queries, 1, used.short_sums)
    upper, sample = np.empty((b, rows.groups), np.float32), np.empty((b, -(-rows.groups // stride)), np.float32)
    used.scan(rows.struct(), scanned.struct(), upper)
    used.scan(rows.struct(), scanned.struct(), sample, stride)
    assert (sample == upper[:, ::stride]).all()
    floor = np.sort(upper, axis=1)[:, -max(1, rows.groups // 3)] - np.float32(1)
    both = fine.struct()
    wanted, counts = used.list(rows.struct(), both, upper, floor, hidden, n)
    listed, found = used.sweep(rows.struct(), both, both if planes == 2 else scanned.struct(), sample, stride, floor, hidden, n)
    assert (found == counts).all() and found.sum() > 0
    assert_same_lists(listed, wanted, found, range(b))
    limit = int(np.median(found))
    short, again = used.sweep(rows.struct(), both, both if planes == 2 else scanned.struct(), sample, stride, floor, hidden, limit)
    assert ((again > limit) == (counts > limit)).all(), "who has more is known"
    assert_same_lists(short, wanted, counts, np.flatnonzero(counts <= limit))


@pytest.mark.parametrize("level", LEVELS)
def test_sampled_bounds_are_refined_where_they_reach(kernel, level):
    rng, used = np.random.default_rng(5), kernel(level)
    rows = quantise(used, rng.standard_normal((3000, 20)).astype(np.float32))
    queries = rng.standard_normal((6, 20)).astype(np.float32)
    coarse, fine = np.empty((6, 10), np.float32), np.empty((6, 10), np.float32)
    used.scan(rows.struct(), code_queries(queries, 1, used.short_sums).struct(), coarse, 5)
    used.scan(rows.struct(), (codes := code_queries(queries, 2, used.short_sums)).struct(), fine, 5)
    floor, refined = np.median(coarse, axis=1), coarse.copy()
    used.refine(rows.struct(), codes.struct(), refined, 5, floor)
    reaches = coarse >= floor[:, None]
    assert np.isneginf(refined[~reaches]).all()
    np.testing.assert_allclose(refined[reaches], fine[reaches], rtol=1e-6)


@pytest.mark.parametrize("stride", [1, 5, 13])
def test_thresholds_are_ranked_bounds_less_their_room(kernel, stride):
    rng, used = np.random.default_rng(stride), kernel("scalar")
    rows = quantise(used, rng.standard_normal((64 * 13, 8)).astype(np.float32), rng.standard_normal(64 * 13).astype(np.float32))
    upper = rng.integers(-9, 9, (4, -(-13 // stride))).astype(np.float32)  # many are equal
    upper[1, 1:] = -np.inf
    by_residual, by_norm = rng.random(4).astype(np.float32), rng.random(4).astype(np.float32)
    room = np.outer(by_residual, rows.residual) + np.outer(by_norm, rows.norm) + 2 * rows.slack
    less = -np.sort(-(upper - room[:, ::stride]), axis=1)
    for rank in range(1, upper.shape[1] + 1):
        found = used.thresholds(rows.struct(), upper, by_residual, by_norm, 2.0, stride, rank)
        np.testing.assert_allclose(found, less[:, rank - 1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("level", LEVELS)
def test_components_that_are_not_finite_are_refused(kernel, level, value):
    vectors = np.ones((300, 9), np.float32)
    vectors[217, 8] = value
    with pytest.raises(SnapshotError, match="vector 217 has a component that is not finite"):
        quantise(kernel(level), vectors)


def test_unknown_levels_and_thread_counts_are_refused(kernel_library):
    with pytest.raises(ValueError):
        Kernel(kernel_library, "mmx")
    with pytest.raises(ValueError, match="threads must be at least 1"):
        Kernel(kernel_library, "scalar", 0)


def test_without_a_compiler_nothing_is_built(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build(tmp_path) is None and list(tmp_path.iterdir()) == []


def test_a_failing_compiler_is_quoted(tmp_path, monkeypatch):
    compiler = tmp_path / "broken-cc"
    compiler.write_text("#!/bin/sh\necho cannot compile today >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(RuntimeError, match="could not build the search kernel: cannot compile today"):
        build(tmp_path)
    assert native_build.main() == 1


def test_a_build_replaces_libraries_of_other_sources(tmp_path):
    if find_compiler() is None:
        pytest.skip("no C compiler")
    old = tmp_path / "kernel-0123456789abcdef.so"
    old.touch()
    built = build(tmp_path, ["-O0"])
    assert built == library_path(tmp_path) and list(tmp_path.iterdir()) == [built]


def test_the_sanitizers_find_nothing(tmp_path):
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
