"""The web page: files of the package, read once, that every browser gets as they are. No run is in them, so they need no token."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from realm.serve.refusals import Refusal

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""What the page is made of; a file of another kind is not served."""
START = "index.html"
FOLDER = "/page/"


@dataclass(frozen=True)
class PageFile:
    """One file of the page.

    Attributes:
        data: its bytes.
        kind: its media type.
        tag: changes when the bytes do; a browser that has them is told so instead of getting them again.
    """

    data: bytes
    kind: str
    tag: str


def page_files() -> dict[str, PageFile]:
    """Every file of the page by the path it is served at; the start page at ``/``."""
    found = {}
    for entry in (files("realm.serve") / "page").iterdir():
        kind = KINDS.get(entry.name[entry.name.rfind(".") :])
        if kind is not None:
            data = entry.read_bytes()
            tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
            found["/" if entry.name == START else FOLDER + entry.name] = PageFile(data, kind, tag)
    return found


def is_page(path: str) -> bool:
    """Whether a path belongs to the page: the one thing besides health that is answered without a token."""
    return path == "/" or path.startswith(FOLDER)


def page_routes() -> APIRouter:
    """The page and its files. They are not part of the API, so the OpenAPI document does not name them."""
    router = APIRouter(include_in_schema=False)
    served = page_files()

    @router.api_route("/", methods=["GET", "HEAD"])
    async def start(request: Request) -> Response:
        return _sent(served["/"], request)

    @router.api_route(FOLDER + "{name}", methods=["GET", "HEAD"])
    async def part(name: str, request: Request) -> Response:
        found = served.get(FOLDER + name)
        if found is None:
            raise Refusal(404, "not_found", "the page has no such file")
        return _sent(found, request)

    return router


def _sent(file: PageFile, request: Request) -> Response:
    """The file, or 304 to a browser that has it. ``no-cache``: kept, but asked for each time, so that a new version is seen at once."""
    headers = {"etag": file.tag, "cache-control": "no-cache"}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if file.tag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.data, media_type=file.kind, headers=headers)
