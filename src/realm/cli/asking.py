"""``realm ask``: one question, a prompt, or a pipe of questions; and ``realm serve``: over a run, or documents in the cache."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

import tyro

from realm import DEFAULT_BODY
from realm.cli import show
from realm.cli.arguments import Json, Names, Place, optional_value
from realm.errors import ConfigError, DataError, is_blank, needing, require_share, require_some
from realm.progress import Progress

if TYPE_CHECKING:
    from realm.answering.opening import OpenRun

Asked = Annotated[list, tyro.conf.arg(metavar="RUN|DOCUMENTS... [QUESTION]")]  # type: ignore[type-arg]  # list[str] loads typeguard
Served = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN|DOCUMENTS...")]
Reader = Annotated[str, tyro.conf.arg(help="another model that reads what is found, such as realm-mpnet-en: right more often, slower")]
Body = Annotated[str, tyro.conf.arg(help="the model for documents (realm models lists them); a run uses its own")]


def parted(asked: Sequence[str]) -> tuple[list[Path], str | None]:
    """Split places and question: the last word, unless it is the only one or there is a file or folder of its name. Raises ConfigError: the
    question is blank."""
    if len(asked) > 1 and is_blank(asked[-1]):
        raise ConfigError("an empty question", cure="Ask something, or leave the question out to be asked for it.")
    if len(asked) < 2 or os.path.exists(asked[-1]):
        return [Path(place) for place in asked], None
    return [Path(place) for place in asked[:-1]], asked[-1]


def named_run(places: list[Path]) -> Path | None:
    """The run that is named; None where it is documents. Raises ConfigError: neither is named, or a run with something else; DataError:
    there is no such file or folder."""
    from realm.runs.cached import is_run

    if not places:
        cure = "Name a run, or files and folders: realm ask notes/ 'Who repaired the bridge?'."
        raise ConfigError("no run and no documents are named", cure=cure)
    runs = [place for place in places if is_run(place)]
    if places == runs and len(runs) == 1:
        return runs[0]
    if runs:
        raise ConfigError(f"{runs[0]} is a run and cannot be mixed with documents", cure="Name one run, or documents.")
    for place in places:
        if not place.exists():
            raise DataError("no such run, file or folder", path=place, cure="Check the path; put the question last, in quotes.")
    return None


def opened_documents(places: list[Path], body: str, reader: str = "") -> "OpenRun":
    """Open documents from the cache, indexed or brought up to date. Raises DataError: nothing in them is usable."""
    from realm.runs.cached import open_cached

    with Progress(says=False) as progress:
        return open_cached(places, body, progress, lambda text: show.note(f"note: {text}"), reader=reader)


Threshold = Annotated[Union[float, None], tyro.conf.arg(metavar="FLOAT")]  # noqa: UP007  # as above
Write = Annotated[str, tyro.conf.arg(metavar="URL#MODEL")]
Answering = Callable[[str], dict[str, Any]]
PROMPT = "? "
HISTORY_LINES = 1000


def ask(
    asked: Asked,
    /,
    *,
    k: int = 5,
    abstain_below: Threshold = None,
    write: Write = "",
    body: Body = DEFAULT_BODY,
    reader: Reader = "",
    json: Json = False,
) -> None:
    """Answer a question from a run, or from files and folders of documents, with its evidence.

    Documents are indexed once, and kept in a cache (realm cache); files that have changed are noticed. Without a question: a prompt on a
    terminal, or a question a line from a pipe.

    Args:
        asked: a run directory, or files and folders of documents; then the question. Without one, questions are read from standard
            input; those from a pipe are answered as JSON, one object a line.
        k: blocks to read.
        abstain_below: give no answer whose confidence (p, where none was calibrated) is below this; between 0 and 1. If not given:
            the threshold that was measured with the run's own questions, or with the released model.
        write: a language model of OpenAI's protocol that writes prose from the blocks read, such as http://localhost:11434/v1#llama3.2;
            if not given, that of the run's recipe; none leaves it out."""
    from realm.answering.opening import open_run
    from realm.answering.writing import endpoint_of, written_or_noted

    require_share("--abstain-below", abstain_below or 0.0)  # what is wrong is told before anything is indexed
    require_some("--k", k)
    endpoint_of(write)
    places, question = parted(asked)
    run = named_run(places)
    opened = (opened_documents(places, body, reader) if run is None else open_run(run)).read_by(reader)
    endpoint = endpoint_of(write or opened.recipe.writes)
    if opened.unsearchable:
        show.note(f"note: {opened.unsearchable} blocks of the corpus are not searchable yet; run: realm index build {opened.paths.root}")
    k = opened.require_k(k)
    if opened.without_questions:
        own = opened.own_em
        made = "" if own is None else f", and answers {own:.0%} of the questions made of its own sentences (people's are harder)"
        show.note(f"note: this run's reader was trained on the documents alone, not on questions{made}")

    def answer(text: str) -> dict[str, Any]:
        answer = opened.answers([text], k, abstain_below)[0]
        return (written_or_noted(answer, endpoint) if endpoint else answer).to_dict()

    def found(text: str) -> dict[str, Any]:
        return {"text": text, "results": [hit.to_dict() for hit in opened.search(text, k)], "versions": opened.versions}

    if run is None and not opened.reads:
        show.note(f"note: {body} has no reader; here are the nearest blocks:")
        return _each(question, found, show.passages, json)
    if question is None and sys.stdin.isatty():
        _ = opened.answerer  # a run without a reader says so before anybody types
    _each(question, answer, partial(show.answer, link=partial(_address, opened)), json)


def _address(opened: "OpenRun", evidence: dict[str, Any]) -> str:
    """Address of the file that evidence is from, at its page where it has pages; empty if the file is gone."""
    import numpy as np

    store = opened.inputs.store
    source = Path(store.block(int(store.rows_of(np.array([evidence["block_id"]]))[0])).source).resolve()
    page = re.search(r"#page=\d+", evidence["doc_id"])
    return f"{source.as_uri()}{page.group() if page else ''}" if source.is_file() else ""


def _each(question: str | None, answer: Answering, shown: Callable[[Any], None], json: bool) -> None:
    if question is not None:
        show.result(answer(question), json, shown)
    elif sys.stdin.isatty():
        with _history():
            _converse(answer, shown, json)
    else:
        from realm.documents.streams import decoded

        for number, line in enumerate(sys.stdin.buffer, 1):
            text = decoded(line, "")  # as documents are
            if not isinstance(text, str):
                raise DataError("no text", path=Path("standard input"), line=number, cure="Write a question a line, in UTF-8.")
            if not is_blank(text):
                show.last_line(answer(text.strip()), True)


def _converse(answer: Answering, shown: Callable[[Any], None], json: bool) -> None:
    """Questions from a terminal until Ctrl-D; Ctrl-C gives up a line, or an answer that takes too long."""
    show.note("Ask a question; Ctrl-D ends.")
    while True:
        try:
            text = input(PROMPT).encode("utf-8", "replace").decode("utf-8").strip()
            if not is_blank(text):
                show.result(answer(text), json, shown)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()


@contextmanager
def _history() -> Iterator[None]:
    """Line editing, with the questions of earlier sessions where the platform has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    file = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "realm" / "questions"
    with suppress(OSError):  # the first session, or a file of another kind
        readline.read_history_file(file)
    readline.set_history_length(HISTORY_LINES)
    try:
        yield
    finally:
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.write_history_file(file)
        except OSError as error:
            show.note(f"note: the history of questions is not saved: {error.strerror}")


def serve(
    places: Served,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: Place = None,
    allow_host: Names = (),
    without_token: bool = False,
    write: Write = "",
    body: Body = DEFAULT_BODY,
    reader: Reader = "",
) -> None:
    """Serve a web page and an HTTP API: questions, searches, explanations, and changes of documents.

    Args:
        places: a run directory, or files and folders of documents (as for realm ask).
        host: address to listen on; others than the loopback address need a token.
        port: port to listen on; 0 takes any that is free.
        token_file: a file with the token that requests must carry.
        allow_host: another host name that the server answers to, besides its address; may be repeated.
        without_token: let everyone who reaches the address read and change everything.
        write: a language model for prose, as for realm ask; it is asked where a request says so."""
    from realm.answering.writing import endpoint_of

    endpoint_of(write)
    with needing("realm serve", "serve", "fastapi", "uvicorn", "starlette", "h11", "pydantic"):
        from realm.serve.server import serve as listen
    from realm.runs.cached import follow_documents

    run = named_run(list(places))
    followed = follow_documents if run is None else None
    if run is None:
        run = opened_documents(list(places), body, reader).paths.root
        show.note("note: documents added on the page disappear when the files change")
    listen(
        run,
        host=host,
        port=port,
        token_file=token_file,
        allow_hosts=allow_host,
        without_token=without_token,
        say=show.note,
        documents=followed,
        write=write,
        reader=reader,
    )


Http = Annotated[str | None, optional_value("HOST:PORT", without="127.0.0.1:8000")]


def mcp(places: Served, /, *, http: Http = None, token_file: Place = None, allow_host: Names = (), body: Body = DEFAULT_BODY) -> None:
    """Give agents tools over a run or documents by the Model Context Protocol: search, ask, read, explain; on standard input and output.

    Args:
        places: a run directory, or files and folders of documents (as for realm ask).
        http: answer over streamable HTTP, at 127.0.0.1:8000 if not given, instead of standard input and output.
        token_file: a file with the token that requests over HTTP must carry.
        allow_host: another host name that is answered to over HTTP; may be repeated."""
    run = named_run(list(places))
    with needing("realm mcp", "mcp", "mcp", "mcp_types", "fastapi", "uvicorn", "starlette", "h11", "pydantic"):
        from realm.serve.agents import Agents, serve_agents, speak
    from realm.models.bodies.known import present_directory
    from realm.serve.tools import Place as Asked
    from realm.storage.layout import is_realm_model

    model = None if run is not None else present_directory(body)
    agents = Agents(Asked(run, places, body, show.note), explains=run is not None or (model is not None and is_realm_model(model)))
    if http is None:
        speak(agents)
        return
    host, _, port = http.rpartition(":")
    if not (host and port.isascii() and port.isdigit()):
        raise ConfigError(f"--http {http}: not an address", cure="Write HOST:PORT, such as 127.0.0.1:8000; port 0 takes any that is free.")
    what = ", ".join(map(str, places))
    serve_agents(agents, what, host=host.strip("[]"), port=int(port), token_file=token_file, allow_hosts=allow_host, say=show.note)
