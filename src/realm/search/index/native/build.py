"""Builds the native kernel into this folder: when the package is installed, or by ``python -m realm.search.index.native.build``.

Uses the standard library only: the build hook (hatch_build.py) runs this file before the package can be imported."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).parent
FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-pthread", "-ffp-contract=off", "-Wall", "-Wextra")
# Instructions beyond the platform's least are chosen at run time, function by function: one library serves every machine of a platform.


def library_path(folder: Path = SOURCES) -> Path:
    """Path of the library of these sources, built or not; its name has their digest, so that no other one is loaded."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return folder / f"kernel-{digest.hexdigest()[:16]}.so"


def find_compiler() -> str | None:
    """The C compiler: $CC, or the first of cc, gcc and clang."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return name
    return None


def build(folder: Path = SOURCES, flags: Sequence[str] = ()) -> Path | None:
    """Compile the kernel into ``folder``, removing others; None without a compiler. Raises RuntimeError: the compiler failed."""
    compiler = find_compiler()
    if compiler is None:
        return None
    target = library_path(folder)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as staging:
        built = Path(staging, target.name)
        sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
        done = subprocess.run([compiler, *FLAGS, *flags, "-o", str(built), *sources, "-lm"], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{compiler} could not build the search kernel: {done.stderr.strip()}")
        for old in folder.glob("kernel-*.so"):
            old.unlink()
        os.replace(built, target)
    return target


def main() -> int:
    """Build and print the path; exit code 1 without a compiler or when it fails."""
    try:
        built = build()
    except (RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(built or "no C compiler found (cc, gcc, clang or $CC): searches multiply whole vectors instead")
    return 0 if built else 1


if __name__ == "__main__":
    sys.exit(main())
