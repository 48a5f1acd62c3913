"""The studio: a web page on which people use the models and look inside them, and the routes that only it needs.

The page's modules are in `studio_page/` and in `report/views`, which reports use too; they are read once,
when the server starts, and nothing else can be asked for by a path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from multihead.pruning.prune import write
from multihead.pruning.surgery import make_plan
from multihead.report.html import VIEWS
from multihead.server.api import Api, add_post
from multihead.server.bodies import answer_json, check_inputs, read_form
from multihead.server.evaluation import Evaluation
from multihead.server.inspection import check_heads
from multihead.server.limits import RequestError
from multihead.server.models import ServedModel
from multihead.server.picture import picture_heads
from multihead.server.schemas import EvaluateForm, GenerateForm, PictureForm, SaveForm
from multihead.server.token_stream import TokenStream
from multihead.tasks import Values
from multihead.tasks.generate import Generate

STUDIO = Path(__file__).parent / "studio_page"
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
# Scripts and styles of this server only, none inline; pictures that the page itself draws; no other host at all.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
EXAMPLES = 12  # rows of a model's data that the page offers


@dataclass
class StudioOptions:
    """What the studio may do besides looking.

    rows: by model, rows with their answers, to score a selection of heads on.
    save_to: the directory that pruned models are saved to; None: none are.
    """

    rows: dict[str, list[Values]] = field(default_factory=dict)
    save_to: Path | None = None


class StudioRoutes:
    """The page and what it asks."""

    def __init__(self, api: Api, options: StudioOptions) -> None:
        self.api, self.options = api, options
        self.files = read_files()
        self.evaluations: dict[str, Evaluation] = {}
        self.saving = asyncio.Lock()

    def add_routes(self, app: FastAPI) -> None:
        for path in self.files:
            app.add_api_route(path, self.make_handler(path), methods=["GET"], include_in_schema=False)
        app.add_api_route("/v1/studio/{model}", self.describe, methods=["GET"], summary="What the page may offer.")
        add_post(app, "/v1/picture/{model}", self.picture, PictureForm, "A small map of every head on one input.")
        add_post(
            app, "/v1/generate/{model}", self.generate, GenerateForm,
            "A text, token by token, with probabilities and alternatives (server-sent events).",
        )  # fmt: skip
        add_post(
            app, "/v1/evaluate/{model}", self.evaluate, EvaluateForm,
            "The score without some heads, on the server's own data (server-sent events).",
        )  # fmt: skip
        add_post(app, "/v1/save/{model}", self.save, SaveForm, "Save a model without some heads.")

    def make_handler(self, path: str) -> Callable[[], Awaitable[Response]]:
        content, kind = self.files[path]

        async def send_file() -> Response:
            return Response(content, media_type=kind, headers={"Content-Security-Policy": POLICY})

        return send_file

    async def describe(self, model: str) -> Response:
        served, rows = self.api.table.find(model), self.options.rows.get(model, [])
        task = served.task
        examples = [] if task is None else [pick_columns(row, served) for row in rows[:: max(1, len(rows) // EXAMPLES)]]
        chat = isinstance(task, Generate) and task.tokenizer.template is not None
        return answer_json(
            {
                "examples": [row for row in examples if row][:EXAMPLES],
                "rows": len(rows),
                "saves": self.options.save_to is not None and served.directory is not None,
                "chat": chat,
                "mask": "" if task is None else task.tokenizer.named.get("mask", ""),
            }
        )

    async def picture(self, request: Request, model: str) -> Response:
        served = self.api.table.find(model)
        form = await read_form(request, PictureForm, self.api.limits)
        task = served.task or served.need_embedder()
        (values,) = check_inputs(task, [form.input], single=True)
        draw = partial(picture_heads, served.loaded, task, values, form, self.api.limits)
        answer = await self.api.wait(request, served.scheduler.submit_alone(draw))
        return answer_json({"model": served.name, **answer})

    async def generate(self, request: Request, model: str) -> Response:
        served = self.api.table.find(model)
        task = served.need_writer()
        form = await read_form(request, GenerateForm, self.api.limits)
        (values,) = check_inputs(task, [form.input], single=True)
        return await TokenStream(self.api, served, task, form).answer(request, values)

    async def evaluate(self, request: Request, model: str) -> Response:
        served = self.api.table.find(model)
        form = await read_form(request, EvaluateForm, self.api.limits)
        rows = self.options.rows.get(served.name)
        if not rows:
            raise RequestError(422, "no_data", "start the server with data to score on: --data NAME=FILE")
        check_heads(served.loaded.model, form.heads_off)
        evaluation = self.evaluations.setdefault(served.name, Evaluation(served, rows))
        evaluation.check_idle()
        return StreamingResponse(evaluation.stream(form.heads_off), media_type="text/event-stream")

    async def save(self, request: Request, model: str) -> Response:
        served = self.api.table.find(model)
        form = await read_form(request, SaveForm, self.api.limits)
        if self.options.save_to is None:
            raise RequestError(422, "no_saving", "start the server with a directory to save models to: --save-to")
        if served.directory is None:
            raise RequestError(422, "no_saving", "this model was not opened from a directory of its own")
        check_heads(served.loaded.model, form.heads_off)
        async with self.saving:
            return answer_json(await asyncio.to_thread(self.write_model, served, form))

    def write_model(self, served: ServedModel, form: SaveForm) -> dict[str, Any]:
        assert self.options.save_to is not None
        assert served.directory is not None
        out = self.options.save_to / form.name
        if out.exists():
            raise RequestError(422, "name_taken", "there is a model of that name already; choose another name")
        try:
            plan = make_plan(served.loaded.model, form.heads_off)
        except ValueError as error:  # the last head of a layer, or one of several that share their keys
            raise RequestError(422, "cannot_cut", str(error)) from None
        try:
            smaller = write(served.directory, plan, out, None)
        except (ValueError, OSError) as error:
            raise RequestError(422, "cannot_save", f"the model could not be saved: {type(error).__name__}") from None
        parameters = sum(weight.numel() for weight in smaller.model.parameters())
        before = served.description["parameters"]
        return {"name": form.name, "path": str(out), "parameters": {"before": before, "after": parameters}}


def pick_columns(row: Values, served: ServedModel) -> dict[str, Any]:
    """What a user would type of a row with its answer."""
    assert served.task is not None
    wanted: Sequence[str] = (*served.task.inputs, *(("text",) if served.task.spec.tags_words else ()))
    return {name: value for name, value in row.items() if name in wanted and isinstance(value, str | list)}


def read_files() -> Mapping[str, tuple[bytes, str]]:
    """By path: the content and type of everything that the page is made of."""
    files = {"/": STUDIO / "index.html"}
    for folder, name in ((STUDIO, "studio"), (VIEWS, "views")):
        files |= {f"/{name}/{path.name}": path for path in sorted(folder.iterdir()) if path.suffix in (".js", ".css")}
    return {path: (file.read_bytes(), TYPES[file.suffix]) for path, file in files.items()}
