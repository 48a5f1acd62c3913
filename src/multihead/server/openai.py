"""The routes of OpenAI's API that its clients need for text and vectors."""

from __future__ import annotations

import asyncio
import base64
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from multihead.server.api import Api, add_post
from multihead.server.bodies import answer_json, check_inputs, read_form
from multihead.server.jobs import Job
from multihead.server.limits import RequestError
from multihead.server.models import ServedModel
from multihead.server.schemas import ChatForm, CompletionForm, EmbeddingsForm, GenerationForm
from multihead.server.style import GrowingText, Style
from multihead.tasks import Values
from multihead.tasks.generate import Generate

DONE = b"data: [DONE]\n\n"


class OpenAIRoutes:
    """Chat, completions and embeddings."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def add_routes(self, app: FastAPI) -> None:
        add_post(app, "/v1/chat/completions", self.chat, ChatForm, "Answer in a conversation (OpenAI's API).")
        add_post(app, "/v1/completions", self.complete, CompletionForm, "Go on with a text (OpenAI's API).")
        add_post(app, "/v1/embeddings", self.embed, EmbeddingsForm, "Vectors of texts (OpenAI's API).")

    async def embed(self, request: Request) -> Response:
        form = await read_form(request, EmbeddingsForm, self.api.limits)
        served = self.api.table.find(form.model)
        if form.dimensions is not None:
            raise RequestError(422, "bad_request", "dimensions is not done here; leave it out")
        texts = [form.input] if isinstance(form.input, str) else form.input
        vectors, tokens = await embed_texts(self.api, request, served, texts)
        data = [
            {"object": "embedding", "index": i, "embedding": _encode_vector(vector, form.encoding_format)}
            for i, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return answer_json({"object": "list", "data": data, "model": served.name, "usage": usage})

    async def chat(self, request: Request) -> Response:
        form = await read_form(request, ChatForm, self.api.limits)
        served = self.api.table.find(form.model)
        task = served.need_writer()
        if task.tokenizer.template is None:
            raise RequestError(422, "wrong_model", "this model has no chat template; use /v1/completions")
        rows = check_inputs(task, [{"messages": form.messages}], single=True)
        form.max_tokens = form.max_completion_tokens or form.max_tokens
        return await Answering(self.api, served, task, form, rows, chat=True).answer(request)

    async def complete(self, request: Request) -> Response:
        form = await read_form(request, CompletionForm, self.api.limits)
        served = self.api.table.find(form.model)
        task = served.need_writer()
        prompts = [form.prompt] if isinstance(form.prompt, str) else form.prompt
        if not prompts:
            raise RequestError(422, "bad_request", "prompt holds no text")
        rows = [row for text in prompts for row in check_inputs(task, [{"prompt": text}], single=True)]
        return await Answering(self.api, served, task, form, rows, chat=False).answer(request)


class Answering:
    """One request for texts: its choices, each a text that grows."""

    def __init__(
        self, api: Api, served: ServedModel, task: Generate, form: GenerationForm, rows: list[Values], *, chat: bool
    ) -> None:
        self.api, self.served, self.task, self.form, self.chat = api, served, task, form, chat
        self.choices = form.n or 1
        self.rows = [row for row in rows for _ in range(self.choices)]
        self.texts: dict[int, GrowingText] = {}
        self.phrases = (form.stop,) if isinstance(form.stop, str) else tuple(form.stop or ())
        self.phrases = tuple(phrase for phrase in self.phrases if phrase)
        kind = "chatcmpl" if chat else "cmpl"
        self.head = {"id": f"{kind}-{uuid.uuid4().hex[:24]}", "created": int(time.time()), "model": served.name}
        self.pieces: asyncio.Queue[tuple[int, str | None]] = asyncio.Queue()
        self.loop = asyncio.get_running_loop()

    async def answer(self, request: Request) -> Response:
        most = self.api.limits.new_tokens
        if (self.form.max_tokens or 0) > most:
            raise RequestError(422, "too_many_tokens", f"max_tokens may be {most:,} at most")
        style = Style(
            self.form.temperature,
            self.form.top_p,
            self.form.max_tokens,
            None if self.form.seed is None else self.form.seed % 2**63,
            self.choices,
            self._listen,
        )
        job = self.served.scheduler.write(self.task, self.rows, style)
        if self.form.stream:
            # The first piece, or the error instead of it: a status cannot be changed once it was sent.
            first = await self._first(request, job)
            return StreamingResponse(self._stream(job, first), media_type="text/event-stream")
        await self.api.wait(request, job.future, writes=True)
        choices = [self._choice(i, self.texts[i].finish()) for i in sorted(self.texts)]
        kind = "chat.completion" if self.chat else "text_completion"
        return answer_json({**self.head, "object": kind, "choices": choices, "usage": self._usage()})

    def _listen(self, row: int, prompt: list[int], stop: frozenset[int]) -> GrowingText:
        """Called where prompts are encoded, before any token comes."""
        emit = (lambda piece: self._push(row, piece)) if self.form.stream else None
        self.texts[row] = GrowingText(self.task, prompt, stop, self.phrases, emit, trim=self.chat)
        return self.texts[row]

    def _push(self, row: int, piece: str | None) -> None:
        self.loop.call_soon_threadsafe(self.pieces.put_nowait, (row, piece))

    async def _first(self, request: Request, job: Job) -> tuple[int, str | None]:
        job.future.add_done_callback(lambda _: self._push(-1, None))
        row, piece = await self.api.wait_task(request, self.pieces.get(), job.future)
        if row < 0:
            await self.api.wait(request, job.future)  # raises, if it failed
        return row, piece

    async def _stream(self, job: Job, first: tuple[int, str | None]) -> AsyncIterator[bytes]:
        try:
            if self.chat:
                for row in range(len(self.rows)):
                    yield self._event(row, {"delta": {"role": "assistant", "content": ""}})
            row, piece = first
            while row >= 0:
                yield self._event(row, self._delta(piece or ""))
                row, piece = await self.pieces.get()
            if job.future.cancelled():
                return
            if (error := job.future.exception()) is not None:
                known = error if isinstance(error, RequestError) else RequestError(500, "internal", "the model failed")
                yield _data({"error": {"code": known.code, "message": known.message}})
                return
            for piece_event in self._rest():
                yield piece_event
            yield DONE
        finally:
            job.future.cancel()

    def _rest(self) -> Iterator[bytes]:
        """What was held back of each text, why it ended, and the counts."""
        for row in sorted(self.texts):
            text = self.texts[row]
            sent, text.emit = text.sent, None
            text.finish()
            if len(text.text) > sent:
                yield self._event(row, self._delta(text.text[sent:]))
            yield self._event(row, {**({"delta": {}} if self.chat else {"text": ""}), "finish_reason": text.reason})
        if (self.form.stream_options or {}).get("include_usage"):
            yield _data({**self.head, "object": self._kind, "choices": [], "usage": self._usage()})

    @property
    def _kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _delta(self, piece: str) -> dict[str, Any]:
        return {"delta": {"content": piece}} if self.chat else {"text": piece}

    def _event(self, row: int, choice: dict[str, Any]) -> bytes:
        whole = {"index": row, "logprobs": None, "finish_reason": None, **choice}
        return _data({**self.head, "object": self._kind, "choices": [whole]})

    def _choice(self, row: int, text: str) -> dict[str, Any]:
        said = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return {"index": row, **said, "logprobs": None, "finish_reason": self.texts[row].reason}

    def _usage(self) -> dict[str, int]:
        read = sum(len(self.texts[row].prompt) for row in self.texts if row % self.choices == 0)
        written = sum(len(text.tokens) for text in self.texts.values())
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


async def embed_texts(api: Api, request: Request, served: ServedModel, texts: list[str]) -> tuple[list[Any], int]:
    """Return a vector of length 1 for each text, and how many tokens they had."""
    embedder = served.need_embedder()
    rows = [row for text in texts for row in check_inputs(embedder, [text], single=True)]
    job = served.scheduler.admit_rows(embedder, rows)
    predictions = await api.wait(request, job.future)
    for prediction in predictions:
        if "error" in prediction:
            raise RequestError(422, "bad_input", "the model cannot read one of the texts")
    return [prediction["vector"] for prediction in predictions], job.tokens


def _encode_vector(vector: Any, form: str) -> Any:
    if form == "base64":
        return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()
    return vector


def _data(value: Any) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
