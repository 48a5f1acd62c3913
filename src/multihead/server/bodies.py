"""From the bytes of a request to a checked object, and from a prediction to bytes. No error repeats the input."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from multihead.data.readers.json import InvalidJson as RefusedJson
from multihead.data.readers.json import parse
from multihead.inference.engine import RejectedInput
from multihead.server.limits import Limits, RequestError
from multihead.tasks import Task, Values
from multihead.tasks.task import EmptyInput

Form = TypeVar("Form", bound=BaseModel)
JSON_FAULTS = {
    "duplicate key": "a key stands twice in one object",
    "NaN in JSON": "NaN and Infinity are no JSON; write a number or null",
    "lone surrogate": "a \\u escape is half a character; write both halves",
}
DRAINED = 8  # times the limit are read of a body that is too large: whoever is cut off while sending sees no answer
ECHO = 6  # characters in a row that a message and an input may not share


async def read_form(request: Request, form: type[Form], limits: Limits) -> Form:
    """Read a request's body as an object of this form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError(415, "wrong_type", "send JSON: Content-Type: application/json")
    value = parse_json(await read_body(request, limits), limits.depth)
    try:
        return form.model_validate(value)
    except ValidationError as error:
        raise RequestError(422, "bad_request", describe_fault(error, form)) from None


async def read_body(request: Request, limits: Limits) -> bytes:
    """Read the body, so much at most, and so long at most."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.slow):
            async for part in request.stream():
                size += len(part)
                if size > DRAINED * limits.body:
                    break
                parts.append(part) if size <= limits.body else parts.clear()
    except TimeoutError:
        raise RequestError(408, "slow", f"the body did not come within {limits.slow:g} s; send it faster") from None
    if size > limits.body:
        raise too_large(limits)
    return b"".join(parts)


def too_large(limits: Limits) -> RequestError:
    return RequestError(413, "too_large", f"the body is larger than {limits.body:,} bytes; send less at a time")


def parse_json(body: bytes, depth: int) -> Any:
    """Parse a body as strictly as `predict` does its lines."""
    try:
        value = parse(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise RequestError(400, "bad_encoding", "the body is not UTF-8") from None
    except RefusedJson as error:
        message = JSON_FAULTS.get(error.code, "the body is not JSON")
        raise RequestError(400, "bad_json", message) from None
    level: list[Any] = [value]
    for _ in range(depth + 1):
        level = [item for part in level for item in _items(part) if isinstance(item, dict | list)]
        if not level:
            return value
    raise RequestError(400, "too_deep", f"the JSON is nested more than {depth} levels deep")


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def describe_fault(error: ValidationError, form: type[BaseModel]) -> str:
    """Say where the first fault is and what is wanted, in the form's own words."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if first["type"] == "extra_forbidden":
        return f"there is a field that is not known here; known: {', '.join(form.model_fields)}"
    known = set(form.model_fields)
    place = [str(part) for part in first["loc"] if isinstance(part, int) or part in known]
    if first["type"] == "value_error":  # raised by a validator of ours, which repeats nothing
        return first["msg"].removeprefix("Value error, ")
    return f"{'.'.join(place) or 'the body'}: {first['msg']}"


def check_inputs(task: Task, given: Sequence[Any], *, single: bool) -> list[Values]:
    """Check inputs by the rules of `predict`; of several, a bad one is answered in its place with an error."""
    rows: list[Values] = []
    for number, item in enumerate(given):
        where = "the input" if single else f"input {number}"
        try:
            rows.append(task.validate(task.map_columns(item), where))
        except EmptyInput as error:
            rows.append(RejectedInput("empty_input", without_echo(str(error), item, f"{where} is empty")))
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            wanted = f"{where}: {task.name} takes {describe_inputs(task)}"
            rows.append(RejectedInput("bad_input", without_echo(str(error), item, wanted)))
    if single:
        refuse_single(rows[0])
    return rows


def refuse_single(answer: Any) -> None:
    """Raise if the only input of a request was rejected: there is nothing else to answer."""
    if isinstance(answer, RejectedInput):
        raise RequestError(422, answer["error"]["code"], answer["error"]["message"])


def describe_inputs(task: Task) -> str:
    if task.spec.documents:
        return "a text, {prompt: …} or {messages: [{role, content}, …]}"
    columns = ", ".join(f"{name}: …" for name in task.inputs)
    also = " or {text: …}" if task.spec.tags_words else ""
    return f"a text or {{{columns}}}{also}" if len(task.inputs) == 1 else f"{{{columns}}}"


def without_echo(message: str, given: Any, instead: str) -> str:
    """Return the message if it repeats nothing of what was given, else the other one."""
    try:
        written = json.dumps(given, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return instead
    leaves = {leaf for leaf in _leaves(given) if leaf}
    shared = any(message[i : i + ECHO] in written for i in range(len(message) - ECHO + 1))
    return instead if shared or any(leaf in message for leaf in leaves) else message


def _leaves(value: Any) -> Iterator[str]:
    """All texts and numbers of a JSON value, keys too, as they would be printed."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield str(value)


def answer_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response; arrays of numpy become lists."""
    body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    return Response(body, status, headers, media_type="application/json")


def answer_error(error: RequestError) -> Response:
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    found = {"code": error.code, "message": error.message, "type": kind}
    return answer_json({"error": found}, error.status, headers)
