"""The images, as far as they can be checked where none can be built: their files are read, and their steps are run in a new environment."""

import fnmatch
import json
import re
import shlex
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"
KNOWN = {"FROM", "RUN", "WORKDIR", "COPY", "ARG", "ENV", "USER", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
"""Instructions we use; ADD is not among them: it fetches and unpacks."""


@dataclass(frozen=True)
class Step:
    """One instruction: its word, its flags, and what else stands there."""

    word: str
    flags: list[str]
    rest: str


def steps_of(path):
    """The instructions of a Dockerfile, lines put together, comments left out."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    found = []
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            flags = re.match(r"(?:--\S+\s+)*", rest)
            found.append(Step(word, flags.group().split(), rest[flags.end() :].strip()))
    return found


def stages_of(path):
    stages = []
    for step in steps_of(path):
        if step.word == "FROM":
            stages.append([])
        stages[-1].append(step)
    return stages


def words(step):
    """The list of an instruction in exec form, which needs no shell and passes signals on."""
    parts = json.loads(step.rest)
    assert isinstance(parts, list) and all(isinstance(part, str) for part in parts)
    return parts


def is_sent(path):
    """Whether the builder gets a file, by .dockerignore: the last line that fits decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.lstrip("!").removeprefix("**/")
        if any(fnmatch.fnmatch(part, pattern) for part in (path, path.split("/")[0], path.split("/")[-1])):
            sent = line.startswith("!")
    return sent


def test_instructions():
    steps = steps_of(DOCKERFILE)
    assert {step.word for step in steps} <= KNOWN
    bases = [step.rest for step in steps if step.word == "FROM"]
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-bookworm( AS \w+)?", base) for base in bases), bases
    for step in steps:
        if step.word == "RUN":
            assert not re.search(r"\b(sudo|curl|wget|--trusted-host)\b", step.rest)
            assert "apt-get install" not in step.rest or (
                "--no-install-recommends" in step.rest and "rm -rf /var/lib/apt/lists/*" in step.rest
            )
            assert subprocess.run(["sh", "-n", "-c", step.rest], capture_output=True).returncode == 0, step.rest


def test_the_last_stage_is_a_service_of_nobody_special():
    last = {step.word: step for step in stages_of(DOCKERFILE)[-1]}
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", last["USER"].rest), "a number above 0: orchestrators can check it"
    uid, gid = last["USER"].rest.split(":")
    assert f"--uid {uid}" in last["RUN"].rest and f"--gid {gid}" in last["RUN"].rest
    after = [step.word for step in stages_of(DOCKERFILE)[-1]]
    assert "RUN" not in after[after.index("USER") :] and "gcc" not in last["RUN"].rest
    assert words(last["ENTRYPOINT"]) == ["realm"] and words(last["CMD"])[0] == "serve"
    assert last["STOPSIGNAL"].rest == "SIGTERM" and last["EXPOSE"].rest == "8000"
    assert {flag.split("=")[0] for flag in last["HEALTHCHECK"].flags} == {"--interval", "--timeout", "--start-period", "--retries"}


def test_what_is_copied_is_there_and_is_sent():
    names, copied = [stage[0].rest.partition(" AS ")[2] for stage in stages_of(DOCKERFILE)], []
    for step in steps_of(DOCKERFILE):
        if step.word == "COPY" and step.flags:
            assert step.flags == [f"--from={names[0]}"]
        elif step.word == "COPY":
            copied += shlex.split(step.rest)[:-1]
    assert copied and all((ROOT / name).exists() and is_sent(name) for name in copied), copied
    assert {"pyproject.toml", "constraints.txt", "hatch_build.py", "src"} <= set(copied)
    assert not any(map(is_sent, ("runs", "token", ".git", ".venv", "tests", "src/realm/search/index/native/kernel-1.so")))


def test_the_server_accepts_what_the_image_says(tmp_path):
    """The options of CMD, of the compose file and of the unit are options that there are; the address asks for a token."""
    from realm.cli import verbs
    from realm.errors import ConfigError
    from realm.serve.server import rules_of

    yaml, options = pytest.importorskip("yaml"), _options(verbs.serve)
    service = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]["realm"]
    for command in [service["command"], *(words(step) for step in steps_of(DOCKERFILE) if step.word == "CMD")]:
        assert {part for part in command if part.startswith("--")} <= options
        assert command[command.index("--token-file") + 1] == "/run/secrets/realm_token"
    (tmp_path / "token").write_text("a" * 64)
    assert rules_of("0.0.0.0", tmp_path / "token", ("localhost",), False).token == "a" * 64
    with pytest.raises(ConfigError):
        rules_of("0.0.0.0", None, ("localhost",), False)


def _options(verb):
    import inspect

    return {f"--{name.replace('_', '-')}" for name in inspect.signature(verb).parameters}


def test_compose():
    found = pytest.importorskip("yaml").safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    service = found["services"]["realm"]
    assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert set(service["secrets"]) == set(found["secrets"]) == {"realm_token"}
    assert all(port.startswith("127.0.0.1:") for port in service["ports"]) and service["ports"][0].endswith(":8000")
    (volume,) = service["volumes"]
    assert service["command"][1].startswith(volume.partition(":")[2] + "/")
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and "privileged" not in service


def test_the_unit_in_the_documentation():
    """Every option of the unit is one, what is written to may be written, and there is time to drain."""
    from realm.cli import verbs
    from realm.serve.shapes import LIMITS

    (unit,) = re.findall(r"^```ini\n(.*?)^```$", (ROOT / "docs" / "serving.md").read_text("utf-8"), re.M | re.S)
    values = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    command = shlex.split(values["ExecStart"])
    assert (
        command[0].startswith("/")
        and command[1] == "serve"
        and {part for part in command if part.startswith("--")} <= _options(verbs.serve)
    )
    assert values["ReadWritePaths"] == command[2] and int(values["TimeoutStopSec"]) > LIMITS.drain_seconds
    assert values["User"] != "root" and values["NoNewPrivileges"] == "yes" and values["ProtectSystem"] == "strict"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_steps_of_the_image_in_a_new_environment(tiny_run, tmp_path):
    """What the build stage runs, then what the container runs: a wheel installed elsewhere serves a run and says that it is well."""
    python = tmp_path / "realm" / "bin" / "python"
    subprocess.run(["sh", str(ROOT / "docker" / "install.sh"), str(tmp_path / "realm")], check=True, cwd=tmp_path, timeout=1500)
    where = subprocess.run([python, "-c", "import realm; print(realm.__file__)"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert where.stdout.startswith(str(tmp_path))
    command = [str(python.with_name("realm")), "serve", str(tiny_run), "--port", "0"]
    server = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        line = next(line for line in server.stderr if line.startswith("serving "))
        url = line.split(" at ")[1].split(";")[0]
        (check,) = (step for step in steps_of(DOCKERFILE) if step.word == "HEALTHCHECK")
        code = json.loads(check.rest.partition(" ")[2])[2].replace("http://127.0.0.1:8000", url)
        assert subprocess.run([python, "-c", code], timeout=60).returncode == 0
        with urllib.request.urlopen(url, timeout=60) as page:
            assert b"<title>REALM</title>" in page.read()
    finally:
        server.terminate()
        server.communicate(timeout=60)
    assert server.returncode == 0
