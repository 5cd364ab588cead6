"""A cluster that only its owner reaches and that leaves nothing behind; a pool makes the bytes that one process makes, whoever dies."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from processes import until

from realm.documents.ingest.builder import build_corpus
from realm.errors import ConfigError, MissingExtra, PoolError
from realm.models.model import RealmModel
from realm.models.spec import BodySpec, bert_spec, one_body
from realm.search.blocks import open_inputs
from realm.search.publishing import embedding
from realm.search.publishing.embedding import EmbedOptions
from realm.search.publishing.generation import open_generation
from realm.search.publishing.parameters import parameters_path, publishing, request_index
from realm.search.publishing.refresher import Refresher, refresh_index
from realm.storage.files import sha256_file
from realm.storage.generations import generation_path
from realm.storage.layout import RunPaths
from realm.training import pool as our
from realm.training.pool import Builder, BuilderPool, connected

NICENESS = "RAY_worker_niceness"


def processes(marker, *without):
    """Number and command of every process, zombies aside, whose environment has ``marker`` and none of the others."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
            if without and not re.match(rb"[A-Za-z_]\w*=", environment):
                continue
            if marker.encode() in environment and not any(other.encode() in environment for other in without):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found


@pytest.fixture(scope="session")
def marked():
    if not Path("/proc/self/environ").exists():
        pytest.skip("no /proc here")
    return processes


@pytest.fixture(scope="session")
def extra():
    if find_spec("ray") is None:  # importing it here would be too early
        pytest.skip("the extra ray is not installed")


@pytest.fixture(scope="session")
def cluster(extra):
    """This process is connected to a local cluster of 8 CPUs that are not there: only the bookkeeping needs them."""
    # Ray's workers are nice by default: on a busy machine these tests would wait for minutes.
    os.environ[NICENESS] = "0"
    try:
        with connected(cpus=8):
            yield
    finally:
        del os.environ[NICENESS]


@pytest.fixture
def no_token(monkeypatch, tmp_path):
    for name in (our.TOKEN, our.TOKEN_PATH):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


NO_TOKEN, NO_ADDRESS = r"there is no token for the Ray cluster at .*RAY_AUTH_TOKEN", "is not the address of a Ray cluster"
REFUSED = {
    NO_TOKEN: ["10.0.0.7:6379", "head.example:6379", "[fd00::7]:6379", "127.0.0.1:6379", "auto"],
    NO_ADDRESS: ["head", "ray://head:10001", "head:port", ":6379", "http://head:8265", ""],
}


@pytest.mark.parametrize(("said", "address"), [(said, address) for said, addresses in REFUSED.items() for address in addresses])
def test_no_cluster_without_a_token_and_an_address(no_token, monkeypatch, tmp_path, said, address):
    """Nor with an empty token."""
    (tmp_path / "token").write_text("\n")
    for _ in range(2):
        with pytest.raises(ConfigError, match=said) as caught, connected(address):
            pass
        assert len(str(caught.value).splitlines()) == 1
        monkeypatch.setenv(our.TOKEN_PATH, str(tmp_path / "token"))
    (tmp_path / "token").write_text("abc\n")
    assert our._credentials("10.0.0.7:6379") == {our.TOKEN: "abc"}


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"needs the extra 'ray'. Install it: pip install 'realm-qa\[ray\]'"), connected():
        pass


def test_a_cluster_that_cannot_be_had_is_named(cluster, monkeypatch):
    with pytest.raises(PoolError, match=r"no Ray cluster at 127.0.0.1:1: .*refused.*ray start --address"):
        our._start(our.ray(), "127.0.0.1:1", {})
    late = Mock(init=Mock(side_effect=Exception("The current node timed out")))
    with pytest.raises(PoolError, match=r"Ray did not start: The current node timed out.*less busy"):
        our._start(late, our.LOCAL, {"num_cpus": 1})
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
    # a process that is just taking its title writes over what we read
    until(lambda: not marked(f"{our.TOKEN}={our._own_token()}", "RAY_USAGE_STATS_ENABLED=0"), 10)
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


def gone(marked, marker):
    """Whether no process of a command is left, at the latest in three minutes: some of Ray's wait 60 seconds for a head that was killed."""
    return until(lambda: not marked(f"REALM_TEST={marker}"), 180)


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
            until(lambda: process.poll() is not None or any("ray::Builder" in line for line in marked(f"REALM_TEST={marker}").values()))
            assert process.poll() is None
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


ONE = EmbedOptions(threads=1)
DOCUMENTS, PART = 60, 7


class Fatal(Builder):
    """Dies over every part that holds the first block."""

    def embed(self, request, block_ids):
        if block_ids[0] == 0:
            os._exit(3)
        return super().embed(request, block_ids)


class FatalPool(BuilderPool):
    actor = Fatal


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(embedding, "PART_ROWS", PART)


@pytest.fixture
def run(tmp_path):
    """A corpus of nine parts, its model, generation 1 made without a pool, and a request for another of the same parameters."""
    paths, text = RunPaths(tmp_path / "run"), "The town lies at the river. Its {} bridges are old. "
    rows = [{"id": f"d{i}", "title": f"Town {i}", "text": text.format(i) * (1 + i % 5)} for i in range(DOCUMENTS)]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    build_corpus([tmp_path / "docs.jsonl"], paths.corpus, vocab_size=300)
    inputs = open_inputs(paths.corpus, 32)
    torch.manual_seed(0)
    sizes = {"hidden": 32, "layers": 1, "heads": 2, "intermediate": 64}
    body = bert_spec(vocab_size=inputs.store.tokenizer.vocab_size, max_length=352, dropout=0.1, attention_dropout=0.0, **sizes)
    model = RealmModel(one_body(BodySpec(body.config), projection=16))
    refresh_index(model, inputs, paths, step=1)
    request_index(model, paths, 2)
    return paths, inputs, model


@pytest.fixture(scope="module")
def pool(cluster):
    """Two actors for all tests of this file; they are killed now and then."""
    with BuilderPool(2) as pool:
        yield pool


def tick(run, pool, seen, options=ONE):
    """Ask for an index of the same parameters and let the pool answer. ``seen`` gets the rows done."""
    paths, inputs, _ = run
    refresher = Refresher(paths, inputs, options, lambda done, total: seen.append(done), pool.parts)
    with publishing(paths.index):
        return refresher.tick()


def same_bytes(paths, first, second):
    """Whether two generations of the same parameters differ in nothing but number, step and time."""
    one, other = (generation_path(paths.index, number) for number in (first, second))
    manifests = [json.loads((place / "manifest.json").read_text("utf-8")) for place in (one, other)]
    for manifest in manifests:
        for name in ("generation", "params_generation", "step", "seconds", "manifest_sha256"):
            manifest.pop(name)
    files = sorted(path.name for path in one.iterdir())
    assert files == sorted(path.name for path in other.iterdir()) and manifests[0] == manifests[1]
    return all(sha256_file(one / name) == sha256_file(other / name) for name in files if name.endswith(".npy"))


def pids(pool):
    import ray

    return [pid for _, pid in ray.get([actor.ready.options(max_task_retries=-1).remote() for actor in pool._actors])]


def test_the_bytes_of_one_process(run, pool):
    (paths, inputs, _), seen = run, []
    assert tick(run, pool, seen) == 2
    assert seen == [*range(PART, DOCUMENTS, PART), DOCUMENTS]
    assert same_bytes(paths, 1, 2) and open_generation(paths, inputs).number == 2


def test_an_actor_killed_over_a_part(run, pool):
    """It is stopped first, so that it has a part when it dies."""
    paths, _, model = run
    assert tick(run, pool, []) == 2
    victim = pids(pool)[0]
    os.kill(victim, signal.SIGSTOP)
    killer = threading.Timer(0.5, os.kill, (victim, signal.SIGKILL))
    killer.start()
    request_index(model, paths, 3)
    assert tick(run, pool, []) == 3
    killer.join()
    assert same_bytes(paths, 1, 3)
    after = pids(pool)
    assert victim not in after and len(after) == 2, "Ray has started it again"


def test_taken_up_at_whole_parts(run, pool):
    """A coordinator that dies after two parts; the next one begins with the third, and the pool is fit for it."""
    (paths, inputs, _), seen = run, []

    class Killed(BaseException):
        """Stands for a coordinator that dies here."""

    def die(done, total):
        if done == 3 * PART:
            raise Killed

    with pytest.raises(Killed), publishing(paths.index):
        Refresher(paths, inputs, ONE, die, pool.parts).tick()
    assert tick(run, pool, seen) == 2
    assert seen[0] == 3 * PART and same_bytes(paths, 1, 2)


def test_a_part_that_kills_every_actor(run, cluster, monkeypatch):
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # actors do not stand where the tests do
    monkeypatch.setattr(our, "MAX_DEATHS", 1)
    with FatalPool(1) as pool, pytest.raises(PoolError, match=r"2 actors died over rows 0 to 7\. .*run the same command again"):
        tick(run, pool, [])
    assert not (run[0].index / "000002").exists()


def test_what_an_actor_cannot_open(run, pool, tmp_path):
    paths, inputs, _ = run
    rows, embedder = np.arange(DOCUMENTS), open_generation(paths, inputs).embedder
    missing = parameters_path(paths, 9)
    with pytest.raises(PoolError, match=r"000009.*\(in an actor on .+\)") as caught:
        list(pool.parts(embedder, missing, inputs, rows, ONE, None)(0))
    assert len(str(caught.value).splitlines()) == 1


def test_actors_that_do_not_fit(run, cluster, monkeypatch):
    with pytest.raises(ConfigError, match="actors = 0 is below 1"):
        BuilderPool(0)
    monkeypatch.setattr(our, "START_SECONDS", 0.1)
    with BuilderPool(2) as pool, pytest.raises(PoolError, match=r"none of 2 actors is up \(the cluster has CPU 8\)"):
        tick(run, pool, [], EmbedOptions(threads=64))
