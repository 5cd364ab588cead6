"""One connection to Ray: a cluster of this machine's own, or one that is there. Token authentication on, usage statistics off."""

import importlib
import logging
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

from realm.errors import ConfigError, PoolError, RealmError, needing, said
from realm.storage.processes import environment, safely

LOCAL = "local"
"""The address that means: start a cluster on this machine, and end it afterwards."""
OBJECT_STORE = 1 << 28
"""Bytes of shared memory for what is under way in a local cluster; beyond that Ray goes to disk."""
KNOCK_SECONDS = 5.0
TOKEN, TOKEN_PATH, MODE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_AUTO_CONNECT": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", MODE: "token"}
# Ray takes the machine's outer address even where 127.0.0.1 is asked for, unless clusters are off: then its servers bind to loopback.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


_imported: dict[str, str] = {}
"""The settings under which Ray was imported here: it reads most of them then and never again."""


def ray() -> Any:
    """The package. Raises MissingExtra: it is not installed."""
    with needing("a pool on several machines", "ray"):
        return importlib.import_module("ray")


def _imported_with(settings: dict[str, str]) -> Any:
    """The package, imported under these settings. Raises MissingExtra: not installed; PoolError: imported under others."""
    if sys.modules.get("ray") is not None and settings != _imported:
        raise PoolError("Ray was imported, or another cluster was used, in this process before", cure="Do this in a process of its own")
    package = ray()
    _imported.update(settings)
    if package.is_initialized():
        raise PoolError("this process is connected to Ray already", cure="End that connection first")
    return package


@contextmanager
def connected(address: str = LOCAL, *, cpus: int = 1) -> Iterator[None]:
    """Be connected to a Ray cluster while the block lasts; Ray must not have been imported before.

    ``address``: LOCAL for a new cluster in child processes, on loopback, with a token, of ``cpus``; HOST:PORT of a cluster's head, or
    "auto".

    Raises MissingExtra: no Ray; ConfigError: no address, or no token for a shared cluster; PoolError: nothing answers, or connected
    already."""
    local = address == LOCAL
    settings = QUIET | (LOOPBACK | {TOKEN: _own_token()} if local else _credentials(address))
    # Where a local cluster keeps its sockets and logs.
    place = tempfile.TemporaryDirectory(prefix="realm-ray-", ignore_cleanup_errors=True) if local else nullcontext()
    with environment(settings), place as directory:
        package = _imported_with(settings)
        options = {"num_cpus": cpus, "object_store_memory": OBJECT_STORE, "_temp_dir": directory, "include_dashboard": False}
        try:
            with safely():  # what starts here keeps it, for the workers that it starts
                _start(package, address, options if local else {})
            yield
        finally:
            package.shutdown()


@contextmanager
def located() -> Iterator[None]:
    """Name the actor's machine in an error that a user can cure. Raises PoolError instead of any other RealmError."""
    try:
        yield
    except RealmError as said:
        problem = f"{said.problem} (in an actor on {socket.gethostname()})"
        raise PoolError(problem, path=said.path, line=said.line, cure=said.cure) from said


def cause_of(error: Any) -> Exception:
    """The error that ``located`` raised in the actor, otherwise the RayTaskError itself."""
    cause = error.cause
    return cause if isinstance(cause, PoolError) else error


def _start(package: Any, address: str, options: dict[str, Any]) -> None:
    """Connect, or start. Raises PoolError: see ``connected``."""
    try:
        if not options and address != "auto":
            host, _, port = address.rpartition(":")  # where nothing listens Ray would try for two minutes
            socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()
        # Ray would put the directory where this process stands on the path of its workers; they get an empty one.
        with tempfile.TemporaryDirectory(prefix="realm-ray-stand-") as empty:
            environment = {"working_dir": empty}
            package.init(address=address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=environment, **options)
    except (OSError, RuntimeError, ValueError, package.exceptions.RayError) as error:
        cure = "Start Ray on this machine with the same token: RAY_AUTH_MODE=token ray start --address HOST:PORT (--head on the first)"
        raise PoolError(f"no Ray cluster at {address}: {said(error)}", cure=cure) from error
    outer = package.util.get_node_ip_address()
    if options and not outer.startswith("127."):
        cure = "Start a cluster yourself and name its address"
        raise PoolError(f"Ray binds to {outer} and not to loopback", cure=cure)


def _credentials(address: str) -> dict[str, str]:
    """Settings for a cluster that is there: the user's own token is used, and one must be there. Raises ConfigError: see ``connected``."""
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isdecimal() and "/" not in host):
        raise ConfigError(
            f"'{address}' is not the address of a Ray cluster", cure="Give HOST:PORT of its head, auto, or nothing for this machine"
        )
    named = os.environ.get(TOKEN_PATH)
    file = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        token = os.environ.get(TOKEN) or file.read_text("utf-8").strip()
    except OSError:
        token = ""
    if not token:
        cure = f"Start every Ray process of it with {MODE}=token and one token, and put that into {TOKEN}, or a file named by {TOKEN_PATH}"
        raise ConfigError(f"there is no token for the Ray cluster at {address}, and without one anyone could run code there", cure=cure)
    return {TOKEN: token}


@cache
def _own_token() -> str:
    """Token of this process's local clusters: Ray remembers the first one it saw."""
    return secrets.token_hex(32)
