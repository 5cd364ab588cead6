"""A cluster that only its owner reaches, and that leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from realm.errors import ConfigError, MissingExtra, PoolError
from realm.search.blocks import open_inputs
from realm.search.publishing.generation import open_generation
from realm.training.pool import cluster as our
from realm.training.pool.cluster import connected


@pytest.fixture
def no_token(monkeypatch, tmp_path):
    for name in (our.TOKEN, our.TOKEN_PATH):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize("address", ["10.0.0.7:6379", "head.example:6379", "[fd00::7]:6379", "127.0.0.1:6379", "auto"])
def test_no_cluster_without_a_token(no_token, address):
    with pytest.raises(ConfigError, match=r"there is no token for the Ray cluster at .*RAY_AUTH_TOKEN") as caught, connected(address):
        pass
    assert len(str(caught.value).splitlines()) == 1


def test_an_empty_token_is_none(no_token, monkeypatch, tmp_path):
    (tmp_path / "token").write_text("\n")
    monkeypatch.setenv(our.TOKEN_PATH, str(tmp_path / "token"))
    with pytest.raises(ConfigError, match="there is no token"), connected("10.0.0.7:6379"):
        pass
    (tmp_path / "token").write_text("abc\n")
    assert our._credentials("10.0.0.7:6379") == {our.TOKEN: "abc"}


@pytest.mark.parametrize("address", ["head", "ray://head:10001", "head:port", ":6379", "http://head:8265", ""])
def test_what_is_no_address(address):
    with pytest.raises(ConfigError, match="is not the address of a Ray cluster"), connected(address):
        pass


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"needs the extra 'ray'. Install it: pip install 'realm-qa\[ray\]'"), connected():
        pass


def test_a_cluster_that_cannot_be_had_is_named(cluster, monkeypatch):
    with pytest.raises(PoolError, match=r"no Ray cluster at 127.0.0.1:1: .*refused.*ray start --address"):
        our._start(our.ray(), "127.0.0.1:1", {})
    with pytest.raises(PoolError, match="connected to Ray already"), connected():
        pass
    monkeypatch.setattr(our, "_imported", {})
    with pytest.raises(PoolError, match="Ray was imported, or another cluster was used, in this process before"), connected():
        pass


def listening(pids):
    """Addresses, as /proc writes them, at which processes listen for TCP."""
    sockets = set()
    for pid in pids:
        with suppress(OSError):  # a child that lives for a moment may have gone since it was found
            for file in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    sockets |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(file)))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{os.getpid()}/net/{table}").read_text().splitlines()[1:]:
            field = line.split()
            if field[3] == "0A" and field[9] in sockets:
                found.add(field[1].rpartition(":")[0])
    return found


def test_bound_to_loopback_with_a_token_and_no_statistics(cluster, marked):
    import ray

    ours = marked(f"{our.TOKEN}={our._own_token()}")
    assert any("gcs_server" in line for line in ours.values()) and any("raylet" in line for line in ours.values())
    for _ in range(5):  # a process that is just taking its title writes over what we read
        lacking = marked(f"{our.TOKEN}={our._own_token()}", "RAY_USAGE_STATS_ENABLED=0")
        if not lacking:
            break
        time.sleep(1)
    assert not lacking
    # 127.0.0.1 in both tables; 0.0.0.0 and :: would be zeros
    assert listening({*ours, os.getpid()}) <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert our.TOKEN in os.environ and our._own_token() not in " ".join(ours.values()), "no command line shows it"
    address = ray.get_runtime_context().gcs_address
    client = f"from ray._raylet import GcsClient; GcsClient(address='{address}').get_all_node_info()"
    for settings, let_in in (({our.MODE: "token", our.TOKEN: our._own_token()}, True), ({our.MODE: "token", our.TOKEN: "f" * 64}, False)):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | settings
        done = subprocess.run([sys.executable, "-c", client], env=environment, capture_output=True, text=True)
        assert (done.returncode == 0) == let_in, done.stderr
        assert let_in or "authentication" in done.stderr.lower()


def command(paths, marker, temporary, *more):
    environment = os.environ | {"REALM_TEST": marker, "TMPDIR": temporary, "RAY_worker_niceness": "0"}
    environment = {name: value for name, value in environment.items() if name not in (our.TOKEN, our.MODE, *our.LOOPBACK)}
    line = [sys.executable, "-m", "realm", "refresh", str(paths.root), *more, "--ray"]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it would be ignored, by children too
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def gone(marked, marker, seconds=180):
    """Whether no process of a command is left, at the latest some seconds from now: some of Ray's wait 60 for a head that was killed."""
    until = time.monotonic() + seconds
    while (left := marked(f"REALM_TEST={marker}")) and time.monotonic() < until:
        time.sleep(0.2)
    return not left


def test_refresh_on_ray(waiting_run, marked, extra):
    """The command: what was asked for is published, nothing is said on standard error but progress, nothing is left behind."""
    with tempfile.TemporaryDirectory() as temporary:  # pytest's own directories are too deep for sockets
        process = command(waiting_run, "once", temporary, "--once", "--actors", "1")
        _, said = process.communicate()
        assert process.returncode == 0, said
        assert "1 actors on this machine" in said and "no index is requested" in said and "raylet" not in said and "WARNING" not in said
        assert gone(marked, "once") and list(Path(temporary).iterdir()) == []
    assert open_generation(waiting_run, open_inputs(waiting_run.corpus, 32)).number == 1


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, None), (signal.SIGKILL, -signal.SIGKILL)])
def test_nothing_is_left_of_a_killed_command(waiting_run, marked, extra, number, code):
    """Ended in any way while its actor starts to work: every process goes; the same command then does the work."""
    marker = f"killed-{number}-{os.getpid()}"
    with tempfile.TemporaryDirectory() as temporary:
        process = command(waiting_run, marker, temporary, "--actors", "1")
        try:
            while not any("ray::Builder" in line for line in marked(f"REALM_TEST={marker}").values()):
                assert process.poll() is None
                time.sleep(0.1)
            os.kill(process.pid, number)
            _, said = process.communicate()
        finally:
            process.kill()  # what does not end must not stay beside other tests
        assert process.returncode == code if code is not None else process.returncode != 0, (process.returncode, said)
        assert gone(marked, marker)
        assert number == signal.SIGKILL or list(Path(temporary).iterdir()) == []
        again = command(waiting_run, marker, temporary, "--once", "--actors", "1")
        assert (again.communicate(), again.returncode)[1] == 0
        assert gone(marked, marker)
    assert open_generation(waiting_run, open_inputs(waiting_run.corpus, 32)).number == 1
