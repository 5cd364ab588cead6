"""The web page: files of the package, read once, that every browser gets as they are. No run is in them, so they need no token."""

import hashlib
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from realm.serve.refusals import Refusal

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Media types of the page's files; a file of another kind is not served."""
START_PAGE = "index.html"
PAGE_PREFIX = "/page/"


def is_page(path: str) -> bool:
    """Return whether a path belongs to the page: the one thing besides health that is answered without a token."""
    return path == "/" or path.startswith(PAGE_PREFIX)


def page_routes() -> APIRouter:
    """The page and its files. They are not part of the API, so the OpenAPI document does not name them."""
    router = APIRouter(include_in_schema=False)
    served = {}
    for entry in (files("realm.serve") / "page").iterdir():
        if kind := MEDIA_TYPES.get(entry.name[entry.name.rfind(".") :]):
            data = entry.read_bytes()
            tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'  # changes when the bytes do
            served["/" if entry.name == START_PAGE else PAGE_PREFIX + entry.name] = data, kind, tag

    @router.api_route("/", methods=["GET", "HEAD"])
    @router.api_route(PAGE_PREFIX + "{name}", methods=["GET", "HEAD"])
    async def file(request: Request) -> Response:
        """The file, or 304 to a browser that has it. ``no-cache``: kept, but asked for each time, so that a new version is seen at once."""
        if request.scope["path"] not in served:
            raise Refusal(404, "not_found", "the page has no such file")
        data, kind, tag = served[request.scope["path"]]
        headers = {"etag": tag, "cache-control": "no-cache"}
        known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
        if tag in known:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type=kind, headers=headers)

    return router
