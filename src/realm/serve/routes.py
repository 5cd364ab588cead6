"""The endpoints, and the files of the page. Questions go through the batcher; documents change in threads, which wait for the disk."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from realm import __version__
from realm.answering import records
from realm.answering.levels import leveled
from realm.answering.writing import Endpoint, written_in_time
from realm.documents.pictures import SHOWN
from realm.report.read import run_summary
from realm.serve import shapes
from realm.serve.batching import Answers, Explain, Result, Search
from realm.serve.documents import Documents
from realm.serve.guard import PAGE_PREFIX
from realm.serve.serving import Serving
from realm.serve.shapes import LIMITS, Json, Refusal

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": records.Problem} for status in (400, 401, 403, 404, 405, 408, 409, 411, 413, 414, 415, 422, 431, 500, 502, 503, 504)
}
DocId = Annotated[str, Path(description="an id, slashes included")]
BlockId = Annotated[int, Path(ge=0, le=2**53)]
AnyId = Annotated[
    str | None, Query(alias="id", min_length=1, max_length=LIMITS.id_chars, description="an id of a document, which is then shown")
]
Start = Annotated[int, Query(ge=0, le=2**53)]
PageSize = Annotated[int, Query(ge=1, le=1000)]


def _described(model: Any) -> dict[int | str, dict[str, Any]]:
    """Responses of a route in the OpenAPI document; tests compare them with the answers."""
    return {200: {"model": model}, **REFUSALS}


def _versions(results: Sequence[Result]) -> records.Versions:
    return records.Versions(**results[-1][1])


def question_routes(serving: Serving, endpoint: Endpoint | None) -> APIRouter:
    """Answering, searching, explaining; ``endpoint`` writes prose."""
    router = APIRouter(prefix="/v1", default_response_class=Json, tags=["questions"])

    @router.post("/answer", responses=_described(records.AnswerResponse))
    async def answer(request: shapes.AnswerRequest) -> Response:
        """Answer questions with their evidence."""
        if request.write and endpoint is None:
            raise Refusal(422, "invalid", "this server has no language model; start it with realm serve --write URL#MODEL")
        until = time.monotonic() + request.timeout_ms / 1000
        results = await serving.ask(Answers(request.k, tuple(request.exclude_documents)), request.questions, request.timeout_ms)
        below = serving.current.abstain_below if request.abstain_below is None else request.abstain_below
        answers = [leveled(found, below) for found, _ in results]
        if request.write and endpoint is not None:
            answers = await written_in_time(answers, endpoint, until - time.monotonic())
        return Json(records.AnswerResponse(answers, _versions(results)))

    @router.post("/search", responses=_described(records.SearchResponse))
    async def search(request: shapes.SearchRequest) -> Response:
        """Find the nearest blocks of texts."""
        results = await serving.ask(Search(request.k), request.texts, request.timeout_ms)
        return Json(records.SearchResponse([hits for hits, _ in results], _versions(results)))

    @router.post("/explain", responses=_described(records.ExplainResponse))
    async def explain(request: shapes.ExplainRequest) -> Response:
        """Say which documents help to fill a masked sentence."""
        ((found, versions),) = await serving.ask(Explain(), [request], request.timeout_ms)
        return Json(records.ExplainResponse(**vars(found), versions=records.Versions(**versions)))

    return router


def document_routes(documents: Documents) -> APIRouter:
    """Living documents, and pictures of their blocks."""
    router = APIRouter(prefix="/v1", default_response_class=Json, tags=["documents"])

    @router.post("/documents", responses=_described(records.DocumentsResponse))
    def add(request: shapes.DocumentsRequest) -> Response:
        """Add documents; they are searchable when this returns."""
        return Json(documents.add(request.documents))

    @router.put("/documents", responses=_described(records.DocumentsResponse))
    def replace(request: shapes.DocumentsRequest) -> Response:
        """Replace documents by their ids."""
        return Json(documents.replace(request.documents))

    @router.post("/documents/remove", responses=_described(records.RemoveResponse))
    def remove(request: shapes.RemoveRequest) -> Response:
        """Remove documents; no answer holds them when this has returned."""
        return Json(documents.remove(request.ids))

    @router.get("/documents", responses=_described(records.ListResponse | records.DocumentResponse))
    def listed(start: Start = 0, limit: PageSize = 100, doc_id: AnyId = None) -> Response:
        """List documents, a page at a time; or show the one with this id, which may be one that no path can hold, such as two dots."""
        return Json(documents.page(start, limit) if doc_id is None else documents.get(doc_id))

    @router.get("/documents/{doc_id:path}", responses=_described(records.DocumentResponse))
    def get(doc_id: DocId) -> Response:
        """Show one document, block by block."""
        return Json(documents.get(doc_id))

    @router.delete("/documents/{doc_id:path}", responses=_described(records.RemoveResponse))
    def delete(doc_id: DocId) -> Response:
        """Remove one document."""
        return Json(documents.remove([doc_id]))

    @router.get(
        "/pictures/{block_id}", response_class=Response, responses={200: {"content": {kind: {} for kind in sorted(SHOWN)}}, **REFUSALS}
    )
    def picture(block_id: BlockId) -> Response:
        """The picture that a block is of, as it was when the corpus read it."""
        data, kind = documents.picture(block_id)
        return Response(data, media_type=kind)

    return router


def state_routes(serving: Serving, writes: str) -> APIRouter:
    """The run, and how the server is."""
    router = APIRouter(default_response_class=Json, tags=["state"])

    @router.get("/v1/run", responses=_described(records.RunResponse))
    def run() -> Response:
        """Versions, sizes, limits and the curves of training."""
        return Json(_run(serving, writes))

    @router.get("/healthz", responses={200: {"model": records.Health}, **REFUSALS})
    async def health() -> Response:
        """Say that the process answers."""
        return Json(records.Health("ok"))

    @router.get("/readyz", responses={200: {"model": records.Health}, **REFUSALS})
    async def ready() -> Response:
        """Say that questions are taken."""
        if not serving.batcher.alive:
            raise Refusal(503, "stopping", "no questions are taken", retry_after=5)
        return Json(records.Health("ready"))

    return router


def _run(serving: Serving, writes: str) -> records.RunResponse:
    opened = serving.current
    manifest, store = opened.generation.snapshot.manifest, opened.inputs.store
    return records.RunResponse(
        **run_summary(serving.paths),
        realm=__version__,
        reader=opened.tuned.has("reader") if opened.tuned is not None else opened.reads,
        without_questions=opened.without_questions,
        abstain_below=opened.abstain_below if opened.reads else 0.0,
        versions=records.Versions(**opened.versions),
        corpus={"documents": store.manifest.documents, "blocks": store.manifest.blocks, "unsearchable": opened.unsearchable},
        index={"generation": manifest.generation, "step": manifest.step, "blocks": manifest.count, "dim": manifest.dim},
        limits=asdict(serving.limits),
        writes=writes,
    )


MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Media types of the page's files; a file of another kind is not served."""
START_PAGE = "index.html"


def page_routes() -> APIRouter:
    """The page and its files. They are not part of the API, so the OpenAPI document does not name them."""
    router = APIRouter(include_in_schema=False)
    served = {}
    for entry in (files("realm.serve") / "page").iterdir():
        if kind := MEDIA_TYPES.get(entry.name[entry.name.rfind(".") :]):
            data = entry.read_bytes()
            tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'  # changes when the bytes do
            served["/" if entry.name == START_PAGE else PAGE_PREFIX + entry.name] = data, kind, tag

    @router.get("/")
    @router.get(PAGE_PREFIX + "{name}")
    async def file(request: Request) -> Response:
        """The file, or 304 to a browser that has it. ``no-cache``: kept, but asked for each time, so that a new version is seen at once."""
        if request.scope["path"] not in served:
            raise Refusal(404, "not_found", "the page has no such file")
        data, kind, tag = served[request.scope["path"]]
        headers = {"etag": tag, "cache-control": "no-cache"}
        known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
        if tag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type=kind, headers=headers)

    return router
