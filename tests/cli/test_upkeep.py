"""``realm doctor``: one screen, with a cure for each thing that is slow or missing."""

from importlib import metadata as packages

import pytest

from realm.cli import main, upkeep


@pytest.fixture
def said(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def run():
        assert main(["doctor"]) == 0
        return capsys.readouterr().out

    return run


def test_one_screen(said, tmp_path):
    (tmp_path / "realm" / "models").mkdir(parents=True)
    (tmp_path / "realm" / "models" / "weights").write_bytes(bytes(3 << 20))
    out = said()
    assert len(out.splitlines()) <= 24 and all(len(line) <= 80 for line in out.splitlines() if not line.startswith("*"))
    assert "models 3 MiB" in " ".join(out.split()) and "torch 2." in out and "search kernel" in out and "realm-minilm-en" in out


@pytest.mark.parametrize(("broken", "cure"), [
    (("usable_cores", "OMP_NUM_THREADS"), "* OMP_NUM_THREADS=1 leaves 7 of 8 processors unused: unset it"),
    (("kernel",), "realm.search.index.native.build"),
    (("model",), "* the model realm-minilm-en is not whole: pip install --force-reinstall --no-deps realm-qa"),
    (("package",), "pip install 'realm-qa[ocr]' (any of them)"),
    (("disk",), "4 MiB are free"),
])  # fmt: skip
def test_each_fault_has_its_cure(broken, cure, said, monkeypatch, tmp_path):
    if "OMP_NUM_THREADS" in broken:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        monkeypatch.setattr("realm.documents.workers.usable_cores", lambda: 8)
    if "kernel" in broken:
        monkeypatch.setattr("realm.search.index.native.build.library_path", lambda: tmp_path / "none.so")
    if "model" in broken:
        monkeypatch.setattr("realm.models.bodies.known.local_directory", lambda known: None)
    if "package" in broken:
        monkeypatch.setattr(upkeep, "extras", lambda: (["pdf"], ["ocr"]))
    if "disk" in broken:
        monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 4 << 20}))
    assert cure in said()


def test_extras_are_whole_or_missing(monkeypatch):
    there = {"a": "1", "b": "1"}

    def version(name):
        if name not in there:
            raise packages.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(packages, "version", version)
    monkeypatch.setattr(packages, "metadata", lambda name: type("Meta", (), {"get_all": lambda self, key: ["one", "two", "dev"]})())
    needed = ["a>=1; extra == 'one'", "b; extra == 'two'", "c<2; extra == 'two'", "torch>=2"]
    monkeypatch.setattr(packages, "requires", lambda name: needed)
    assert upkeep.extras() == (["one"], ["two"])
    monkeypatch.setattr(packages, "metadata", lambda name: version("a checkout"))
    assert upkeep.extras() == ([], [])
