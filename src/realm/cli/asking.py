"""``realm ask``: one question, a prompt, or a pipe of questions; and ``realm serve``."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import tyro

from realm.cli import show
from realm.cli.arguments import Json, Names, Run

Question = Annotated[str | None, tyro.conf.arg(metavar="QUESTION")]
PROMPT = "? "
REMEMBERED = 1000


def ask(run: Run, question: Question = None, /, *, k: int = 5, abstain_below: float = 0.0, json: Json = False) -> None:
    """Answer a question with its evidence. Without one: a prompt on a terminal, or a question a line from a pipe.

    Args:
        question: the question; none: questions are read from standard input, and from a pipe answered as JSON, one object a line.
        k: blocks to read.
        abstain_below: give no answer whose confidence (p, where none was calibrated) is below this; between 0 and 1.
    """
    from realm.errors import require_share
    from realm.opening import open_run

    require_share("--abstain-below", abstain_below)
    opened = open_run(run)
    if opened.unsearchable:
        show.note(f"note: {opened.unsearchable} blocks of the corpus are not searchable yet; run: realm index build {run}")
    opened.require_k(k)
    if opened.without_questions:
        show.note(f"note: no question has taught this run: its reader has learnt to point from the documents alone{_own(opened.own_em)}")

    def answer(text: str) -> dict[str, Any]:
        return opened.answerer.answer([text], k=k)[0].abstaining(abstain_below).to_dict()

    if question is not None:
        show.result(answer(question), json, show.answer)
    elif sys.stdin.isatty():
        _ = opened.answerer  # a run without a reader says so before anybody types
        with _history():
            _converse(answer, json)
    else:
        for line in sys.stdin.buffer:
            if text := line.decode("utf-8", "replace").strip():
                show.last_line(answer(text), True)


def _own(share: float | None) -> str:
    """What a run without questions can say of its answers."""
    return "" if share is None else f", and answers {share:.0%} of the questions made of its own sentences (people's are harder)"


def _converse(answer: Callable[[str], dict[str, Any]], json: bool) -> None:
    """Questions from a terminal until Ctrl-D; Ctrl-C gives up a line, or an answer that takes too long."""
    show.note("Ask a question; Ctrl-D ends.")
    while True:
        try:
            text = input(PROMPT).encode("utf-8", "replace").decode("utf-8").strip()
            if text:
                show.result(answer(text), json, show.answer)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()


@contextmanager
def _history() -> Iterator[None]:
    """Line editing, with the questions of earlier sessions where the platform has readline."""
    import os

    try:
        import readline
    except ImportError:
        yield
        return
    file = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "realm" / "questions"
    with suppress(OSError):  # the first session, or a file of another kind
        readline.read_history_file(file)
    readline.set_history_length(REMEMBERED)
    try:
        yield
    finally:
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.write_history_file(file)
        except OSError as error:
            show.note(f"note: the questions are not remembered: {error.strerror}")


def serve(
    run: Run,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: Path | None = None,
    allow_host: Names = (),
    without_token: bool = False,
) -> None:
    """A web page and an HTTP API: questions, searches, explanations, and documents that come and go.

    Args:
        host: address to listen on; others than the loopback address need a token.
        port: port to listen on; 0 takes any that is free.
        token_file: a file with the token that requests must carry.
        allow_host: a name that the server may be asked under, besides its address; may be repeated.
        without_token: let everybody who reaches the address read and change everything.
    """
    from realm.errors import MissingExtra

    try:
        from realm.serve.server import serve as listen
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "uvicorn", "starlette", "prometheus_client", "h11", "pydantic"):
            raise
        raise MissingExtra("realm serve", "serve") from error
    listen(run, host=host, port=port, token_file=token_file, allow_hosts=allow_host, without_token=without_token, say=show.note)
