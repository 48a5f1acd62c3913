"""The HTTP interface: routes, their documentation and what they answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from multihead import __version__
from multihead.inference.engine import RejectedInput
from multihead.server.bodies import answer_error, answer_json, check_inputs, read_form, refuse_single, without_echo
from multihead.server.inspection import compare_without, see_heads
from multihead.server.limits import Limits, RequestError, deadline_error
from multihead.server.metrics import Metrics
from multihead.server.models import ModelTable
from multihead.server.schemas import HeadsForm, PredictForm, WhatIfForm

log = logging.getLogger(__name__)

GRACE = 2.0  # seconds beyond a deadline: the worker itself tells of it, but may be amid a batch
STATUSES = {
    400: "Not JSON, or nested too deep.",
    401: "The server wants a key.",
    403: "A Host or an Origin that is not allowed.",
    404: "No such model, or no such path.",
    405: "The path knows other methods.",
    408: "The body came too slowly.",
    413: "Too many bytes, inputs or tokens.",
    415: "Not application/json.",
    422: "JSON, but not what is wanted here.",
    429: "The queue is full, or there was no time; Retry-After says when to come again.",
}
Result = TypeVar("Result")


class Api:
    """What all routes share: the models, the limits and how a request waits for its answer."""

    def __init__(self, table: ModelTable, limits: Limits, metrics: Metrics) -> None:
        self.table, self.limits, self.metrics = table, limits, metrics
        self.ready = False

    def add_routes(self, app: FastAPI) -> None:
        app.add_api_route("/health", self.health, methods=["GET"], summary="Is the process alive?")
        starting: dict[int | str, dict[str, Any]] = {503: {"description": "Not yet, or not any more."}}
        app.add_api_route(
            "/ready", self.is_ready, methods=["GET"], summary="Are the models loaded and warm?", responses=starting
        )
        app.add_api_route(
            "/metrics", self.write_metrics, methods=["GET"], summary="Counters for Prometheus.",
            response_class=PlainTextResponse,
        )  # fmt: skip
        app.add_api_route("/v1/models", self.list_models, methods=["GET"], summary="The models and what they can do.")
        app.add_api_route("/v1/models/{model}", self.show_model, methods=["GET"], summary="One model.")
        add_post(
            app, "/v1/predict/{model}", self.predict, PredictForm, "Predictions, as `multihead predict` makes them."
        )
        add_post(app, "/v1/heads/{model}", self.heads, HeadsForm, "What heads attend to in one input.")
        add_post(app, "/v1/whatif/{model}", self.whatif, WhatIfForm, "A prediction without some heads or tokens.")

    async def health(self) -> Response:
        return answer_json({"status": "alive"})

    async def is_ready(self) -> Response:
        if not self.ready:
            raise RequestError(503, "not_ready", "the models are being loaded, or the server stops", retry_after=5)
        return answer_json({"status": "ready"})

    async def write_metrics(self) -> Response:
        return Response(self.metrics.write(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def list_models(self) -> Response:
        return answer_json({"object": "list", "data": [served.description for served in self.table.models.values()]})

    async def show_model(self, model: str) -> Response:
        return answer_json(self.table.find(model).description)

    async def predict(self, request: Request, model: str) -> Response:
        served = self.table.find(model)
        task = served.need_task()
        form = await read_form(request, PredictForm, self.limits)
        single = form.inputs is None
        rows = check_inputs(task, [form.input] if form.inputs is None else form.inputs, single=single)
        future = served.scheduler.submit(task, rows, interactive=form.interactive)
        predictions = await self.wait(request, future, writes=task.readout.over == "vocabulary")
        given = [form.input] if form.inputs is None else form.inputs
        found = [conceal(prediction, item) for prediction, item in zip(predictions, given, strict=True)]
        if single:
            refuse_single(found[0])
            return answer_json({"model": served.name, "prediction": found[0]})
        return answer_json({"model": served.name, "predictions": found})

    async def heads(self, request: Request, model: str) -> Response:
        served = self.table.find(model)
        form = await read_form(request, HeadsForm, self.limits)
        task = served.task or served.need_embedder()
        (values,) = check_inputs(task, [form.input], single=True)
        look = partial(see_heads, served.loaded, task, values, form, self.limits)
        answer = await self.wait(request, served.scheduler.submit_alone(look))
        return answer_json({"model": served.name, **answer})

    async def whatif(self, request: Request, model: str) -> Response:
        served = self.table.find(model)
        form = await read_form(request, WhatIfForm, self.limits)
        task = served.need_task()
        (values,) = check_inputs(task, [form.input], single=True)
        compare = partial(compare_without, served.loaded, task, values, form.heads_off, form.tokens_off, self.limits)
        answer = await self.wait(request, served.scheduler.submit_alone(compare))
        return answer_json({"model": served.name, **answer})

    async def wait(self, request: Request, future: Future[Result], *, writes: bool = False) -> Result:
        """Wait for an answer, or until the client leaves, or until its time is over."""
        seconds = self.limits.seconds + (self.limits.writing if writes else 0)
        return await self._wait(request, asyncio.wrap_future(future), future, seconds)

    async def wait_task(self, request: Request, task: Coroutine[Any, Any, Result], work: Future[Any]) -> Result:
        """Wait for something on the way to an answer, as for the answer itself."""
        return await self._wait(request, asyncio.ensure_future(task), work, self.limits.seconds, settle=False)

    async def _wait(
        self,
        request: Request,
        answer: asyncio.Future[Result],
        work: Future[Any],
        seconds: float,
        *,
        settle: bool = True,
    ) -> Result:
        gone = asyncio.ensure_future(wait_for_disconnect(request))
        waiting: set[asyncio.Future[Any]] = {answer, gone}
        done = False
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=seconds + GRACE)
            if done := answer.done():
                return answer.result()
            raise ClientDisconnect if gone.done() else deadline_error()
        except (ValueError, RuntimeError, MemoryError) as error:
            # Of a row that the model cannot read, or whose answer is not finite, or for which memory did not suffice.
            log.warning("a request was refused: %s: %s", type(error).__name__, error)
            raise RequestError(422, "bad_input", "the model cannot read this input") from None
        finally:
            gone.cancel()
            if settle or not done:
                answer.cancel()
                work.cancel()  # nobody waits for it any more


async def wait_for_disconnect(request: Request) -> None:
    """Return once the client has left; its body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def conceal(prediction: Any, given: Any) -> Any:
    """A prediction as it is; of an error, its message without what the client sent."""
    if not isinstance(prediction, RejectedInput):
        return prediction
    found = prediction["error"]
    return RejectedInput(found["code"], without_echo(found["message"], given, "the model cannot read this input"))


def add_post(
    app: FastAPI, path: str, handler: Callable[..., Any], form: type[BaseModel], summary: str, **more: Any
) -> None:
    """Add a route that takes JSON. The body is read by `read_form` and not by FastAPI, whose errors repeat the input
    and whose parser takes NaN and duplicate keys; the documentation is the same."""
    schema = form.model_json_schema()
    body = {"required": True, "content": {"application/json": {"schema": _inline(schema, schema.pop("$defs", {}))}}}
    app.add_api_route(path, handler, methods=["POST"], summary=summary, openapi_extra={"requestBody": body}, **more)


def _inline(schema: Any, parts: dict[str, Any]) -> Any:
    """A schema with the parts that it refers to in their places."""
    if isinstance(schema, dict) and "$ref" in schema:
        return _inline(parts[schema["$ref"].rpartition("/")[2]], parts)
    if isinstance(schema, dict):
        return {name: _inline(value, parts) for name, value in schema.items()}
    return [_inline(value, parts) for value in schema] if isinstance(schema, list) else schema


def make_app(api: Api) -> FastAPI:
    """Return the application with all routes; pages of documentation would fetch scripts from elsewhere: none."""
    error = {"type": "object", "properties": {"error": {"type": "object"}}}
    responses: dict[int | str, dict[str, Any]] = {
        status: {"description": text, "content": {"application/json": {"schema": error}}}
        for status, text in STATUSES.items()
    }
    app = FastAPI(
        title="multihead", version=__version__, docs_url=None, redoc_url=None, responses=responses,
        redirect_slashes=False,
    )  # fmt: skip
    app.add_exception_handler(RequestError, _answer_request_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(ClientDisconnect, _answer_nobody)
    app.add_exception_handler(Exception, _answer_failure)
    return app


def document_models(app: FastAPI, table: ModelTable) -> None:
    """Name the models in the schema, wherever a request names one."""
    schema = app.openapi()  # which FastAPI keeps
    for operations in schema["paths"].values():
        for operation in operations.values():
            fields = [parameter for parameter in operation.get("parameters", []) if parameter["name"] == "model"]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            named = body.get("properties", {}).get("model")
            for field in [*(parameter["schema"] for parameter in fields), *([named] if named else [])]:
                field["enum"] = list(table.models)


async def _answer_request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return answer_error(error)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """Of a path or a method that no route has."""
    assert isinstance(error, HTTPException)
    known = {404: ("not_found", "there is no such path; /openapi.json lists them"),
             405: ("wrong_method", "this path knows other methods; /openapi.json lists them")}  # fmt: skip
    code, message = known.get(error.status_code, ("bad_request", "this request cannot be answered"))
    return answer_error(RequestError(error.status_code, code, message))


async def _answer_nobody(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # as nginx calls it in logs: the client left


async def _answer_failure(request: Request, error: Exception) -> Response:
    """Of a fault of our own; `Guard` logs it."""
    return answer_error(RequestError(500, "internal", "the server failed; its log says why"))
