"""The application: routes over one run, behind the guard."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from realm import __version__
from realm.errors import RealmError
from realm.serve.documents import Documents
from realm.serve.guard import Guard, Rules
from realm.serve.pages import page_routes
from realm.serve.refusals import Refusal, refusal_of
from realm.serve.routes import document_routes, question_routes, state_routes
from realm.serve.serving import Serving

NAME_CHARS = 60
CODES = {404: "not_found", 405: "method"}


def make_app(serving: Serving, rules: Rules) -> FastAPI:
    """The ASGI application. It closes ``serving`` when it is shut down.

    Args:
        serving: the run.
        rules: who may ask.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        serving.close()

    # No documentation pages: they would fetch scripts from elsewhere. The document itself is at /openapi.json.
    app = FastAPI(title="REALM", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.include_router(question_routes(serving))  # first: routes are tried in order
    app.include_router(document_routes(Documents(serving)))
    app.include_router(state_routes(serving))
    for kind in (Refusal, RealmError):
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.include_router(page_routes())
    app.add_middleware(Guard, rules=rules, meter=serving.meter, limits=serving.limits)  # type: ignore[arg-type]
    return app


async def _refused(request: Request, error: Any) -> Response:
    return (refusal_of(error) if isinstance(error, RealmError) else error).response()


async def _invalid(request: Request, error: Any) -> Response:
    """Where a request is not as described, and how. What was sent is not repeated: it may be large, or nobody's business."""
    found = [f"{'.'.join(str(part)[:NAME_CHARS] for part in problem['loc'])}: {problem['msg']}" for problem in error.errors()[:5]]
    return Refusal(422, "invalid", "; ".join(found)).response()


async def _http(request: Request, error: Any) -> Response:
    """Errors of the framework itself: no such route, no such method, no JSON."""
    response = Refusal(error.status_code, CODES.get(error.status_code, "invalid"), str(error.detail)).response()
    response.headers.update(error.headers or {})
    return response
