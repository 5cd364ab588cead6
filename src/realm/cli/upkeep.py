"""``realm doctor``, ``verify``, ``repair`` and ``completion``."""

import io
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Union

import tyro

from realm import DEFAULT_BODY, __version__
from realm.cli import show
from realm.cli.arguments import Json
from realm.errors import ConfigError, RunError
from realm.progress import Progress

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
    from realm.storage.processes import usable_cores

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
    from platformdirs import user_cache_path

    from realm.storage.files import bytes_below

    root = user_cache_path("realm")
    sizes = {path.name: bytes_below(path) for path in sorted(root.iterdir()) if path.is_dir()} if root.is_dir() else {}
    free = shutil.disk_usage(next(path for path in (root, *root.parents) if path.exists())).free
    if free < ROOM:
        cures.append(f"{root}: {free >> 20} MiB are free. Delete what you do not ask any more: realm cache info, realm cache clear")
    parts = "; ".join(f"{name} {size >> 20:,} MiB" for name, size in sizes.items())
    return f"{root}: {parts or 'empty'}"


_Place = Annotated[Path, tyro.conf.arg(metavar="PLACE", help="the directory of a run, a corpus or a kNN datastore")]


def verify(place: _Place, /, *, json: Json = False) -> None:
    """Read everything in a run, corpus or kNN datastore and compare all checksums; exit code 2 if something is damaged."""
    from realm.runs import mending

    with Progress() as progress:
        found = damage_of(place, progress)
    _end(place, found, {"put_aside": mending.put_aside(place)}, f"realm repair {place}", json)


def repair(place: _Place, /, *, yes: bool = False, json: Json = False) -> None:
    """Rebuild the damaged parts of a run or a corpus that are derived from others: look-up tables, CURRENT, the index.

    Args:
        yes: do it; without this, only show what would be done."""
    from realm.knn.datastore import is_datastore
    from realm.runs import mending

    with Progress() as progress:
        mended, left = mending.repair(place, progress, show.note) if yes and not is_datastore(place) else ([], damage_of(place, progress))
    _end(place, left, {"mended": [damage.facts() for damage in mended]}, "add --yes", json)


def damage_of(place: Path, progress: Progress) -> list[Any]:
    """Read everything in a run, a corpus or a kNN datastore, whichever is there. Raises RunError: none is."""
    from realm.knn.datastore import is_datastore, verify_datastore
    from realm.runs import mending

    return verify_datastore(place) if is_datastore(place) else mending.verify(place, progress)


def _end(place: Path, found: list[Any], more: dict[str, Any], how: str, json: bool) -> None:
    """Show what is damaged. Raises RunError: something is."""
    said = {"place": str(place), **more, "damage": [damage.facts() for damage in found]}
    show.result(said, json, lambda _: show.damage(found, more.get("put_aside", [])))
    mendable = sum(damage.mend is not None for damage in found)
    if found:
        cure = f"{mendable} of them can be repaired: {how}" if mendable else "None of them can be rebuilt here"
        raise RunError(f"{len(found)} damaged", path=place, cure=cure)


FILES = {"bash": "bash-completion/completions/realm", "fish": "fish/vendor_completions.d/realm.fish", "zsh": "zsh/site-functions/_realm"}
"""Places of completions below a user's data directory."""
WITH_PATHS = {
    "    # Output one completion per line.\n": """\
    if not (words[current_index:] or [''])[0].startswith('-') and all(one.startswith('-') for one in completions):
        completions = ['__TYRO_COMPLETE_FILES__']
""",
    'COMPREPLY=($(compgen -f -- "$cur"))': "compopt -o default; COMPREPLY=()",
    "$words $current)": "$words (commandline -ct) $current)",
}
"""Of what tyro writes for shells, the parts that know only options, and those that complete files and folders where a verb takes them."""
Verbs = Mapping[str, Callable[..., Any]]
Shell = Annotated[str, tyro.conf.arg(metavar="bash|fish|zsh")]


def install(shell: str, verbs: Verbs, groups: Mapping[str, Verbs]) -> Path:
    """Write the completion of verbs, and of those in groups, where the shell looks for a user's own. Returns the file.

    Raises ConfigError: it is another shell."""
    if shell not in FILES:
        raise ConfigError(f"no completion is made for the shell '{shell[:20]}'", cure=f"Name one of: {', '.join(FILES)}.")
    from realm.storage.files import make_directory, write_atomic

    words = {**groups, "completion": dict.fromkeys(FILES, doctor)}  # tyro completes verbs alone: the shells' names are such
    listed = {**verbs, **{name: _group(members) for name, members in words.items()}}
    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes)
    with redirect_stdout(io.StringIO()) as written, suppress(SystemExit):
        tyro.cli(_choice(listed), prog="realm", args=["--tyro-print-completion", shell], config=config)
    path = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / FILES[shell]
    make_directory(path.parent)
    write_atomic(path, reduce(lambda text, part: text.replace(*part), WITH_PATHS.items(), written.getvalue()))
    return path


def _choice(verbs: Verbs) -> Any:
    """A type that tyro reads as one of these verbs."""
    named = (Annotated[Any, tyro.conf.subcommand(name=name, constructor=verb)] for name, verb in verbs.items())
    return Union[(*named, Annotated[None, tyro.conf.Suppress])]


def _group(verbs: Verbs) -> Callable[..., None]:
    def group(verb: Any) -> None: ...

    group.__annotations__["verb"] = _choice(verbs)
    return group
