"""Take one guard away at a time and see whether a test notices: ``mutations.toml`` names the guards.

    python -m benchmarks.reliability.mutation_check [NAME ...]

Each is changed in a scratch copy of the sources, and the tests named for it run against that copy. The last line is one JSON object: how
many were noticed, and the names of those that no test notices (asked for: none). Exit code 1 where there are such.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("mutations.toml")
SECONDS = 3600
"""Of the tests of one guard; tests that no longer end have noticed, too."""
FAILED = (1,)
"""pytest's exit codes of tests that failed. Others say that there was nothing to run, or that it could not be."""


@dataclass(frozen=True)
class Guard:
    """One guard: where it stands, what takes it away, and who must notice."""

    name: str
    file: str
    text: str
    instead: str
    tests: tuple[str, ...]

    def mutated(self, source: str) -> str:
        """The file's text without the guard.

        Raises:
            ValueError: the guard does not stand in it exactly once.
        """
        if (count := source.count(self.text)) != 1:
            raise ValueError(f"src/realm/{self.file}: the text of '{self.name}' stands there {count} times, not once: change {TABLE.name}")
        return source.replace(self.text, self.instead)


def read_guards() -> list[Guard]:
    """All guards of the table, in its order."""
    rows = tomllib.loads(TABLE.read_text("utf-8"))["guard"]
    return [Guard(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def noticed(guard: Guard, scratch: Path) -> bool:
    """Whether one of the tests fails without the guard."""
    package = scratch / "src" / "realm"
    shutil.rmtree(scratch / "src", ignore_errors=True)
    shutil.copytree(ROOT / "src", scratch / "src", ignore=shutil.ignore_patterns("__pycache__"))
    path = package / guard.file
    path.write_text(guard.mutated(path.read_text("utf-8")), "utf-8")
    there = [test for test in guard.tests if (ROOT / test.partition("::")[0]).exists()]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *there]
    environment = os.environ | {"PYTHONPATH": str(scratch / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    return bool(there) and done.returncode in FAILED


def main() -> int:
    """Run the guards that were asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="guards, as the table names them; all by default")
    wanted = parser.parse_args().names
    guards = [guard for guard in read_guards() if not wanted or guard.name in wanted]
    unnoticed, started = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="realm-mutations-") as scratch:
        for guard in guards:
            try:
                found = noticed(guard, Path(scratch))
            except ValueError as error:
                print(f"error: {error}", file=sys.stderr)
                return 2
            print(f"{'noticed' if found else 'NOT NOTICED'}: {guard.name} ({guard.file})", flush=True)
            unnoticed += [] if found else [guard.name]
    seconds = round(time.monotonic() - started)
    print(json.dumps({"guards": len(guards), "noticed": len(guards) - len(unnoticed), "unnoticed": unnoticed, "seconds": seconds}))
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
