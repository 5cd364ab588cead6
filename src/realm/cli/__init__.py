"""The command ``realm``: parse, call one function, print; torch and transformers come with the verb that needs them.

Errors that a user can cure are one line and exit code 2."""

import _thread
import atexit
import errno
import gc
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from realm.errors import ConfigError, RealmError, by_torch, is_blank
from realm.progress import QUIET

USAGE, INTERRUPTED, TERMINATED = 2, 130, 143
SHOWN = 100
"""Characters of an argument that an error shows."""
INTACT = "and run the same command again; everything published before is intact."
CURES = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS), f"Make room or make the directory writable {INTACT}"
    ),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), f"Allow more open files (ulimit -n), or ask for less at once, {INTACT}"),
    **dict.fromkeys((errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP), "Check the path; put the question last, in quotes."),
    errno.EXDEV: f"Put the whole directory on one file system, without links to others in it, {INTACT}",
}
"""Cures of errors of the operating system, by their number."""
DESCRIPTION = (
    "REALM for your own documents: a retriever and a reader trained together, answers with evidence. realm --version prints the version; "
    "with --quiet a verb prints its result and errors alone."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 for what the user can cure, 130 when interrupted, 143 when terminated."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:  # the process is this command's: what a start makes stays, and looking for garbage in it takes a fifth of the time
        gc.set_threshold(10_000)
        atexit.register(gc.freeze)
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115  closed: `>&-`
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what its encoding does not have is written as an escape
            stream.reconfigure(errors="backslashreplace")
    try:
        with _ended_by_signals(), by_torch("this command"), _quiet("--quiet" in arguments):
            arguments = [argument for argument in arguments if argument != "--quiet"]
            _require_text(arguments)
            _dispatch(arguments)
    except _Terminated:
        print("terminated; run the same command again to continue", file=sys.stderr)
        return TERMINATED
    except RealmError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue", file=sys.stderr)
        return INTERRUPTED
    except UnicodeEncodeError as error:  # the name of a file that is no UTF-8, where it would be stored as text
        print(f"error: {error.object[:SHOWN]!a}: no UTF-8. Rename it.", file=sys.stderr)
        return USAGE
    except PermissionError as error:  # wherever it happens, it is the user's to cure
        print(f"error: {error.filename}: {error.strerror}. Give a place that you may write to.", file=sys.stderr)
        return USAGE
    except MemoryError:
        print("error: memory ran out. Take less at once (--workers, batches, shorter documents), or more memory.", file=sys.stderr)
        return USAGE
    except BrokenPipeError:  # `realm ask ... | head`: whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if (line := refusal(error)) is None:
            raise
        print(f"error: {line}", file=sys.stderr)
        return USAGE
    return 0


@contextmanager
def _quiet(wanted: bool) -> Iterator[None]:
    """Keep notes and progress back while the block lasts."""
    before = os.environ.get(QUIET, "")
    os.environ[QUIET] = "1" if wanted else before
    try:
        yield
    finally:
        os.environ[QUIET] = before


def refusal(error: OSError) -> str | None:
    """One line for an error of the operating system, with its cure; None if there is none."""
    cure = CURES.get(error.errno or 0)
    where = f"{error.filename}: " if error.filename else ""
    return None if cure is None else f"{where}{error.strerror}. {cure}"


class _Terminated(BaseException):
    """SIGTERM, which job schedulers send, ends a command in the way of Ctrl-C: children are ended, what is half-written goes."""


FINALISED = 0.01
"""Seconds between looks at whether a finaliser that swallowed a signal has ended."""


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Raise :class:`_Terminated` where SIGTERM finds the command, and KeyboardInterrupt where SIGINT does, unless they are handled already.
    Native code may make another exception of either (safetensors, a ValueError): what comes out after a signal is that signal. A finaliser
    lets no exception out: a signal that finds one running comes again."""
    came: list[BaseException] = []
    report, reporting = sys.unraisablehook, False

    def ends(number: int, frame: object) -> None:
        if number == signal.SIGTERM and _on_the_way_out():
            return
        came.append(_Terminated() if number == signal.SIGTERM else KeyboardInterrupt())
        raise came[-1]

    def again(number: int) -> None:
        while reporting:  # raised in the hook it would be lost
            time.sleep(FINALISED)
        if signal.getsignal(number) is ends:
            signal.pthread_kill(threading.main_thread().ident or 0, number)

    def swallowed(lost: Any) -> None:
        nonlocal reporting
        if lost.exc_value not in came:
            report(lost)
            return
        reporting = True
        _thread.start_new_thread(again, (signal.SIGTERM if isinstance(lost.exc_value, _Terminated) else signal.SIGINT,))
        reporting = False  # no signal is handled between this and the end of the hook

    before: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    handled = [number for number, own in before.items() if signal.getsignal(number) is own]
    if threading.current_thread() is not threading.main_thread():
        handled = []
    for number in handled:
        signal.signal(number, ends)
    sys.unraisablehook = swallowed if handled else report
    try:
        yield
    except Exception:
        if came:
            raise came[-1] from None
        raise
    finally:
        for number in handled:
            signal.signal(number, before[number])
        sys.unraisablehook = report


def _on_the_way_out() -> bool:
    """Return whether SIGTERM has come before, and what is left of the command is its cleaning up."""
    found = sys.exception()
    while found is not None and not isinstance(found, _Terminated):
        found = found.__context__
    return found is not None


def _require_text(arguments: Sequence[str]) -> None:
    """Refuse arguments that name nothing: an empty path would be the working directory. Raises ConfigError: one is empty, or is no UTF-8
    and names no file."""
    for argument in arguments:
        value = argument.partition("=")[2] if argument.startswith("--") and "=" in argument else argument
        if "\0" in value or (value != value.encode("utf-8", "replace").decode() and not os.path.lexists(value)):
            raise ConfigError(f"{value[:SHOWN]!a}: no UTF-8", cure="Write the argument in UTF-8, as the terminal's encoding.")
        if is_blank(value) and not os.path.lexists(value):
            raise ConfigError("an empty question, path or name", cure="Give one, or leave the option out.")


def _dispatch(arguments: list[str]) -> None:
    from realm import __version__
    from realm.cli import groups, verbs

    if arguments in (["--version"], ["-V"]):
        print(f"realm {__version__}")
        return
    if arguments and arguments[0] in groups.GROUPS:
        name, rest = arguments[0], arguments[1:]
        _parse(groups.GROUPS[name], f"realm {name}", groups.ABOUT[name], rest)
        return
    listed = {**verbs.VERBS, **{name: _stub(name, about) for name, about in groups.ABOUT.items()}}
    _parse(listed, "realm", DESCRIPTION, arguments)


def _parse(verbs: dict[str, Callable[..., Any]], prog: str, about: str, arguments: list[str]) -> None:
    from contextlib import nullcontext

    import tyro

    from realm.cli.arguments import options_first, wrapped_output

    config = (tyro.conf.FlagCreatePairsOff,)
    with wrapped_output() if {"-h", "--help"} & set(arguments) else nullcontext():
        if arguments and (verb := verbs.get(arguments[0])):  # the others need not be looked at
            tyro.cli(verb, prog=f"{prog} {arguments[0]}", args=options_first(verb, arguments[1:]), config=config)
        else:
            tyro.extras.subcommand_cli_from_dict(verbs, prog=prog, description=about, args=arguments, config=config)


def _stub(name: str, about: str) -> Callable[[], None]:
    """A group of verbs in the list of verbs; :func:`_dispatch` answers for it."""

    def group() -> None: ...

    group.__doc__ = f"{about} (realm {name} --help)"
    return group
