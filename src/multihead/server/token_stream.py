"""A text as it is generated, token by token: how sure the model was of each, and what else it might have written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import torch
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from torch import Tensor

from multihead.server.api import Api
from multihead.server.inspection import display_token
from multihead.server.jobs import Job
from multihead.server.limits import RequestError
from multihead.server.models import ServedModel
from multihead.server.schemas import GenerateForm
from multihead.server.style import GrowingText, Style
from multihead.tasks import Values
from multihead.tasks.generate import Generate


class TokenStream:
    """One request: a prompt, and the events that tell of each token behind it."""

    def __init__(self, api: Api, served: ServedModel, task: Generate, form: GenerateForm) -> None:
        self.api, self.served, self.task, self.form = api, served, task, form
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.loop = asyncio.get_running_loop()
        self.text: GrowingText | None = None
        self.piece = ""
        self.chances: tuple[Tensor, Tensor, Tensor] | None = None  # of the next token: all, the best, and which

    async def answer(self, request: Request, row: Values) -> Response:
        most = self.api.limits.new_tokens
        if self.form.max_tokens > most:
            raise RequestError(422, "too_many_tokens", f"max_tokens may be {most:,} at most")
        style = Style(
            self.form.temperature, None, self.form.max_tokens, self.form.seed, listen=self._listen, witness=self._see
        )
        job = self.served.scheduler.write(self.task, [row], style)
        job.future.add_done_callback(lambda _: self._push(None))
        first = await self.api.wait_task(request, self.events.get(), job.future)
        if first is None:
            await self.api.wait(request, job.future)  # raises, if it failed
        return StreamingResponse(self._stream(job, first), media_type="text/event-stream")

    def _listen(self, row: int, prompt: list[int], stop: frozenset[int]) -> Any:
        self.text = GrowingText(self.task, prompt, stop, emit=self._keep)
        return self._take

    def _keep(self, piece: str) -> None:
        self.piece += piece

    def _see(self, logits: Tensor) -> None:
        """Called with the logits [V] that the next token is chosen by, in the generator's thread."""
        chances = torch.softmax(logits.float(), dim=0)
        self.chances = (chances, *torch.topk(chances, min(self.form.alternatives, len(chances))))

    def _take(self, token: int) -> bool:
        assert self.text is not None
        assert self.chances is not None
        over, (chances, best, which) = self.text(token), self.chances
        others = [
            {"text": self._show(int(other)), "probability": round(float(chance), 6)}
            for chance, other in zip(best, which, strict=True)
        ]
        probability = round(float(chances[token]), 6)
        ends = token in self.text.stop
        self._push({"text": self.piece, "probability": probability, "alternatives": others, "ends": ends})
        self.piece = ""
        return over

    def _show(self, token: int) -> str:
        return display_token(self.task.tokenizer, token)

    def _push(self, event: dict[str, Any] | None) -> None:
        self.loop.call_soon_threadsafe(self.events.put_nowait, event)

    async def _stream(self, job: Job, event: dict[str, Any] | None) -> AsyncIterator[bytes]:
        try:
            while event is not None:
                yield write_event(event)
                event = await self.events.get()
            if job.future.cancelled():
                return
            if (error := job.future.exception()) is not None:
                yield write_event(describe_error(error))
                return
            assert self.text is not None
            self.text.finish()  # what was held back: half a character
            yield write_event({"done": True, "text": self.piece, "reason": self.text.reason})
        finally:
            job.future.cancel()


def write_event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n\n"


def describe_error(error: BaseException) -> dict[str, Any]:
    """The last event of a stream that failed: its status was sent before."""
    known = error if isinstance(error, RequestError) else RequestError(500, "internal", "the model failed")
    return {"error": {"code": known.code, "message": known.message}}
