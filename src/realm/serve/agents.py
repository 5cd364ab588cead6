"""The Model Context Protocol over a run or over documents (docs/serving.md): tools and resources for agents, on standard input and output
or over HTTP. One thread computes, as in ``batching``; a call that waits while documents are indexed tells how far that is."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from realm import __version__
from realm.answering.opening import OpenRun
from realm.answering.records import Explanation, Record
from realm.errors import DataError, RealmError
from realm.serve import tools
from realm.serve.batching import Batcher
from realm.serve.guard import Guard
from realm.serve.server import answer_at, rules_of
from realm.serve.shapes import LIMITS, Json, Refusal, Request
from realm.serve.tools import Place

TOLD_SECONDS = 0.5
"""Seconds between two notifications of progress."""
LISTED = 100
"""Documents in one page of the list of resources."""
SCHEME = "realm://documents/"
HTTP_PATH = "/mcp"
LONGEST_SECONDS = 24 * 3600.0
"""A first call may index a large folder; its client says when it has waited enough."""
INSTRUCTIONS = (
    "The user's own documents. `ask` answers a question in their words, with evidence, or says that it is not here; `search` finds blocks, "
    "`read` shows a document or what stands around a block. Answers are short: ask again with the cursor `next` for more."
)


@dataclass(frozen=True)
class _Offered:
    """A tool: the shapes of its call and of its answer, and what computes one from the other."""

    call: type[Request]
    answer: type[Record]
    compute: Callable[[OpenRun, Any], Record]

    def described(self, name: str) -> types.Tool:
        return types.Tool(
            name=name,
            description=" ".join((self.compute.__doc__ or "").split()),
            input_schema=self.call.model_json_schema(),
            output_schema=TypeAdapter(self.answer).json_schema(),
            annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
        )


TOOLS = {
    "search": _Offered(tools.SearchCall, tools.Found, tools.search),
    "ask": _Offered(tools.AskCall, tools.Told, tools.ask),
    "read": _Offered(tools.ReadCall, tools.Page, tools.read),
    "explain": _Offered(tools.ExplainCall, Explanation, tools.explain),
}


class Agents:
    """Tools and resources of one place. ``explains``: whether it has networks that fill masks."""

    def __init__(self, place: Place, *, explains: bool):
        self._place = place
        self._offered = {name: tool for name, tool in TOOLS.items() if explains or name != "explain"}
        self._batcher = Batcher(lambda _, works: [work(place.current()) for work in works], waiting=LIMITS.waiting, most=1)
        self.server: Server[None] = Server(
            "realm",
            version=__version__,
            instructions=INSTRUCTIONS,
            lifespan=self._opening,
            on_list_tools=self._tools,
            on_call_tool=self._call,
            on_list_resources=self._documents,
            on_list_resource_templates=self._templates,
            on_read_resource=self._document,
        )

    @asynccontextmanager
    async def _opening(self, _: Server[None]) -> AsyncIterator[None]:
        """Index the documents from the start on, so that the first call finds most of it done; what goes wrong, that call will say."""
        early = asyncio.ensure_future(self._batcher.submit("", [lambda opened: None], LONGEST_SECONDS))
        early.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            yield
        finally:
            early.cancel()

    async def _computed(self, context: ServerRequestContext[None], work: Callable[[OpenRun], Any]) -> Any:
        """The result of ``work`` over the place as it is now; says how far indexing is while it lasts. Raises RealmError, Refusal."""
        task = asyncio.ensure_future(self._batcher.submit("", [work], LONGEST_SECONDS))
        told, position = self._place.position.done, self._place.position
        try:
            while not (await asyncio.wait({task}, timeout=TOLD_SECONDS))[0]:
                if position.done > told:
                    told = position.done
                    await context.session.report_progress(told, None, position.line)
            return task.result()[0]
        finally:
            task.cancel()

    async def _tools(self, context: ServerRequestContext[None], params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool.described(name) for name, tool in self._offered.items()])

    async def _call(self, context: ServerRequestContext[None], params: types.CallToolRequestParams) -> types.CallToolResult:
        """A tool's answer as JSON, or one line that says what is wrong with the call, which the model can mend."""
        tool = self._offered.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"no tool {params.name[: LIMITS.id_chars]!r}; there are: {', '.join(self._offered)}")
        try:
            call = tool.call.model_validate(params.arguments or {})
            found = await self._computed(context, lambda opened: tool.compute(opened, call))
        except (ValidationError, RealmError, Refusal) as error:
            return types.CallToolResult(content=[types.TextContent(text=_line(error))], is_error=True)
        text = bytes(Json(found).body).decode()
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=json.loads(text))

    async def _documents(
        self, context: ServerRequestContext[None], params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        start = _number(params.cursor if params else None)
        found, following = await self._answered(context, lambda opened: opened.listed(start, LISTED))
        resources = [types.Resource(uri=f"{SCHEME}{quote(name, safe='')}", name=name, title=title or None) for name, title in found]
        return types.ListResourcesResult(resources=resources, next_cursor=None if following is None else str(following))

    async def _templates(
        self, context: ServerRequestContext[None], params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        about = "The text of a document, from the cursor `start` on; _meta.next is the address of the rest"
        template = types.ResourceTemplate(uri_template=f"{SCHEME}{{id}}{{?start}}", name="document", description=about)
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _document(self, context: ServerRequestContext[None], params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        address, _, start = params.uri.partition("?start=")
        name = unquote(address.removeprefix(SCHEME))
        if not address.startswith(SCHEME) or not 0 < len(name) <= LIMITS.id_chars:
            raise MCPError(types.INVALID_PARAMS, f"not the address of a document; it begins with {SCHEME}")
        call = tools.ReadCall(document=name, cursor=_number(start))
        page = await self._answered(context, lambda opened: tools.read(opened, call))
        rest = None if page.next is None else {"next": f"{address}?start={page.next}"}
        text = "\n\n".join(block.text for block in page.blocks).encode("utf-8", "replace").decode()
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=params.uri, text=text, mime_type="text/plain", _meta=rest)]
        )

    async def _answered(self, context: ServerRequestContext[None], work: Callable[[OpenRun], Any]) -> Any:
        """As ``_computed``, for requests whose errors are the protocol's. Raises MCPError."""
        try:
            return await self._computed(context, work)
        except (RealmError, Refusal) as error:
            raise MCPError(types.INVALID_PARAMS if isinstance(error, DataError) else types.INTERNAL_ERROR, _line(error)) from error


def speak(agents: Agents) -> None:
    """Answer on standard input and output until the input ends. A signal ends the process at once: what is half done was never published,
    and a thread that waits for input would outlive a gentler end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)

    async def speaking() -> None:
        async with stdio_server() as (incoming, outgoing):
            await agents.server.run(incoming, outgoing, agents.server.create_initialization_options())

    asyncio.run(speaking())


def serve_agents(
    agents: Agents, what: str, *, host: str, port: int, token_file: Path | None, allow_hosts: tuple[str, ...], say: Callable[[str], None]
) -> None:
    """Answer over streamable HTTP until SIGTERM or SIGINT, behind the checks and the token of ``realm serve``. Raises ConfigError: as
    ``server.serve`` does."""
    rules = rules_of(host, token_file, allow_hosts, without_token=False)
    unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # the guard checks host and origin
    app = Guard(agents.server.streamable_http_app(streamable_http_path=HTTP_PATH, transport_security=unchecked), rules)
    answer_at(host, port, lambda: app, what, say, HTTP_PATH)


def _number(cursor: str | None) -> int:
    """The number in a cursor. Raises MCPError: it is none that was given out."""
    if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 16):
        raise MCPError(types.INVALID_PARAMS, "not a cursor of this server")
    return int(cursor or 0)


def _line(error: Exception) -> str:
    """One line for the model: the fields of a call that are wrong, or the problem and its cure."""
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in error.errors()[:5])
    return " ".join(str(error).split())
