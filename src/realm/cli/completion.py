"""Completion of verbs and options by a shell."""

import io
import os
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Annotated, Any, Union

import tyro

from realm.errors import ConfigError

FILES = {"bash": "bash-completion/completions/realm", "fish": "fish/vendor_completions.d/realm.fish", "zsh": "zsh/site-functions/_realm"}
"""Places of completions below a user's data directory."""
Verbs = Mapping[str, Callable[..., Any]]
Shell = Annotated[str, tyro.conf.arg(metavar="bash|fish|zsh")]


def install(shell: str, verbs: Verbs, groups: Mapping[str, Verbs]) -> Path:
    """Write the completion of verbs, and of those in groups, where the shell looks for a user's own. Returns the file.

    Raises ConfigError: it is another shell.
    """
    if shell not in FILES:
        raise ConfigError(f"no completion is made for the shell '{shell[:20]}'", cure=f"Name one of: {', '.join(FILES)}.")
    from realm.storage.files import make_directory, write_atomic

    listed = {**verbs, **{name: _group(members) for name, members in groups.items()}}
    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes)
    with redirect_stdout(io.StringIO()) as written, suppress(SystemExit):
        tyro.cli(_choice(listed), prog="realm", args=["--tyro-print-completion", shell], config=config)
    path = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / FILES[shell]
    make_directory(path.parent)
    write_atomic(path, written.getvalue())
    return path


def _choice(verbs: Verbs) -> Any:
    """A type that tyro reads as one of these verbs."""
    named = (Annotated[Any, tyro.conf.subcommand(name=name, constructor=verb)] for name, verb in verbs.items())
    return Union[(*named, Annotated[None, tyro.conf.Suppress])]


def _group(verbs: Verbs) -> Callable[..., None]:
    def group(verb: Any) -> None: ...

    group.__annotations__["verb"] = _choice(verbs)
    return group
