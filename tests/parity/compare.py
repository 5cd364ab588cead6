"""Numerical parity with transformers 4.40.2's REALM classes (`make parity`): a table, a JSON line, exit code 1 above a bound."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch
from measure import BOUNDS, Difference, differences
from ours import Case, compare_case

HERE = Path(__file__).parent
Rows = dict[tuple[str, str, str], list[Difference]]


def collect(directory: Path) -> Rows:
    """Differences by class, precision and group."""
    rows: Rows = defaultdict(list)
    for path in sorted(directory.glob("*.safetensors")):
        kind = Case(path).kind
        for precision in BOUNDS:
            for found in differences(compare_case(path, precision), precision):
                rows[kind, precision, found.group].append(found)
        print(f"compared {path.stem}", file=sys.stderr)
    return rows


def table(rows: Rows) -> str:
    """One line a class, precision and group: quantities, zeros, the worst; "rounds" is the published float32 against its float64."""
    columns = f"{'tensors':>7s} {'zero':>5s} {'worst':>9s} {'bound':>7s} {'rounds':>9s}  worst tensor"
    lines = [f"{'class':10s} {'precision':9s} {'group':10s} {columns}"]
    for (kind, precision, group), found in rows.items():
        worst, zero = max(found, key=lambda d: d.value), sum(d.zero for d in found)
        counts = f"{kind:10s} {precision:9s} {group:10s} {len(found):7d} {zero:5d}"
        rounding = max(d.rounding for d in found)
        lines.append(f"{counts} {worst.value:9.1e} {BOUNDS[precision]:7.0e} {rounding:9.1e}  {worst.name}")
    return "\n".join(lines)


def zeros(rows: Rows) -> str:
    """Tensors that are zero in both, so that nobody takes them for compared."""
    names = {(kind, group, d.name) for (kind, _, group), found in rows.items() for d in found if d.zero}
    return "\n".join(f"  {kind:10s} {group:10s} {name}" for kind, group, name in sorted(names))


def summary(rows: Rows, cases: int) -> dict[str, object]:
    worst: dict[str, dict[str, float]] = defaultdict(dict)
    for (kind, precision, _), found in rows.items():
        worst[precision][kind] = max(worst[precision].get(kind, 0.0), *(d.value for d in found))
    passed = bool(rows) and all(value <= BOUNDS[precision] for precision, kinds in worst.items() for value in kinds.values())
    tensors = sum(len(found) for found in rows.values())
    return {"benchmark": "parity", "cases": cases, "tensors": tensors, "worst": worst, "bounds": BOUNDS, "passed": passed}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", type=Path, help="the parity environment's Python")
    parser.add_argument("--cases", type=Path, help="keep the cases here, or use those that are there")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.cases or Path(scratch)
        if not list(directory.glob("*.safetensors")):
            subprocess.run([options.python, HERE / "published_side.py", directory], check=True)
        rows, cases = collect(directory), len(list(directory.glob("*.safetensors")))
    print(table(rows))
    print("zero in both, in some case:")
    print(zeros(rows))
    result = summary(rows, cases)
    print(json.dumps(result))
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
