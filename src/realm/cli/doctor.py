"""``realm doctor``: what is installed here, and what is slow or missing, on one screen."""

import os
import platform
import re
import shutil

from realm import DEFAULT_BODY, __version__
from realm.cli import show

DISTRIBUTION = "realm-qa"
NAMED = ("torch", "transformers", "tokenizers", "numpy", "pyarrow")
"""Packages whose versions change what is computed."""
NOT_FOR_USERS = {"browser", "dev", "docs", "notebooks"}
ROOM = 1 << 30
"""Free bytes below which a cache may fill the disk."""


def doctor() -> None:
    """Show versions, kernel, model, extras and caches of this installation, and what is slow or missing, each with its cure."""
    from realm.models.bodies.known import known_body, local_directory

    cures: list[str] = []
    here, missing = extras()
    known = known_body(DEFAULT_BODY)
    model = None if known is None else local_directory(known)
    if model is None:
        cures.append(f"the model {DEFAULT_BODY} is not whole: pip install --force-reinstall --no-deps {DISTRIBUTION}")
    if missing:
        cures.append(f"extras that are not installed: pip install '{DISTRIBUTION}[{','.join(missing)}]' (any of them)")
    show.facts(
        {
            "realm": f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
            "packages": ", ".join(f"{name} {_version(name)}" for name in NAMED),
            "processors": _processors(cures),
            "search kernel": _kernel(cures),
            "model": f"{DEFAULT_BODY}: {model or 'not here'}",
            "extras": ", ".join(here) or "none",
            "caches": _caches(cures),
        }
    )
    for cure in cures or ["nothing is slow or missing"]:
        print(f"* {cure}")


def extras() -> tuple[list[str], list[str]]:
    """Return the extras for users that are installed whole, and the others; of a checkout that was not installed, none."""
    from importlib.metadata import PackageNotFoundError, metadata, requires

    try:
        named = metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return [], []
    needs = [(line.partition(";")[2], re.split(r"[^\w.-]", line)[0]) for line in requires(DISTRIBUTION) or ()]
    users = sorted(set(named) - NOT_FOR_USERS)
    whole = [extra for extra in users if all(_version(package) for marker, package in needs if re.search(rf"['\"]{extra}['\"]", marker))]
    return whole, [extra for extra in users if extra not in whole]


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _processors(cures: list[str]) -> str:
    """The processors that this process may use; a variable that keeps it from them is named."""
    from realm.documents.workers import usable_cores

    cores, asked = usable_cores(), os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked) < cores:
        cures.append(f"OMP_NUM_THREADS={asked} leaves {cores - int(asked)} of {cores} processors unused: unset it")
    return f"{cores} of {os.cpu_count()}"


def _kernel(cures: list[str]) -> str:
    """The native search kernel and the instructions that it uses here."""
    from realm.search.index.native.build import library_path
    from realm.search.index.native.kernel import Kernel

    try:
        return f"{Kernel(library_path()).level} ({library_path().name})"
    except OSError:
        cures.append("searches are slower without the native kernel: install a C compiler, then python -m realm.search.index.native.build")
        return "not built"


def _caches(cures: list[str]) -> str:
    """The caches and their sizes."""
    from platformdirs import user_cache_path

    from realm.storage.files import bytes_below

    root = user_cache_path("realm")
    sizes = {path.name: bytes_below(path) for path in sorted(root.iterdir()) if path.is_dir()} if root.is_dir() else {}
    free = shutil.disk_usage(next(path for path in (root, *root.parents) if path.exists())).free
    if free < ROOM:
        cures.append(f"{root}: {free >> 20} MiB are free. Delete what you do not ask any more: realm cache info, realm cache clear")
    parts = "; ".join(f"{name} {size >> 20:,} MiB" for name, size in sizes.items())
    return f"{root}: {parts or 'empty'}"
