"""What an installed copy holds, and that each fact about the package is written once."""

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import realm

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "realm"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def canonical(requirement):
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name.group()).lower()


@pytest.fixture(scope="module")
def pins():
    lines = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return {canonical(line): line for line in lines}


def test_the_package_says_what_it_is():
    assert Path(realm.__file__).with_name("py.typed").is_file()
    assert realm.__version__ == importlib.metadata.version(PROJECT["name"])
    assert "version" not in PROJECT
    others = [path for path in PACKAGE.rglob("*.py") if re.search(r"^__version__\b", path.read_text("utf-8"), re.M)]
    assert others == [PACKAGE / "__init__.py"]
    if (ROOT / "README.md").is_file():
        assert PROJECT.get("readme") == "README.md", "add readme = 'README.md' to [project]"
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {realm.__version__}\n" in citation and "\nlicense: Apache-2.0\n" in citation


def test_every_dependency_is_pinned_exactly_and_justified(pins):
    wanted = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"] + PROJECT["optional-dependencies"]["bm25"]
    assert {canonical(requirement) for requirement in wanted} <= pins.keys()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", pin) for pin in pins.values())  # and no local version such as +cpu
    rows = {canonical(name) for name in re.findall(r"^\| `([^`]+)`", (ROOT / "docs" / "dependencies.md").read_text("utf-8"), re.M)}
    extras = [requirement for extra in PROJECT["optional-dependencies"].values() for requirement in extra]
    assert rows == {canonical(requirement) for requirement in PROJECT["dependencies"] + extras}


def test_the_wheel_holds_every_file_of_the_package(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        packed = {name for name in wheel.namelist() if name.startswith("realm/")}
    ours = {
        f"realm/{path.relative_to(PACKAGE).as_posix()}" for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == ours


def test_a_pure_wheel_fits_every_platform(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120, env={**os.environ, "REALM_NO_KERNEL": "1"})
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert not [name for name in packed.namelist() if name.endswith(".so")]
