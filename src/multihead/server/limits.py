"""What a server grants to one request, and to all of them together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds that hold for every model and every route.

    Attributes:
        queue: inputs of a model that are admitted and not answered yet; more are rejected with 429.
        inputs: inputs of one request, at most.
        tokens: tokens of one request, windows and their overlaps included, at most.
        alone: tokens of a request that needs the model alone (heads, what-if), at most.
        body: bytes of a request's body.
        depth: levels of nesting in its JSON.
        seconds: from admission to the answer; what waits longer is rejected with 429.
        writing: seconds that one text may take from its first token to its last.
        slow: seconds that a client may take to send its headers, or its body, or to take a piece of the answer.
        connections: open connections, at most, or as many as the system grants; further ones are closed at once.
        weights: attention weights in one answer.
        new_tokens: tokens that one request may have written.
    """

    queue: int = 256
    inputs: int = 256
    tokens: int = 65_536
    alone: int = 16_384
    body: int = 2**21
    depth: int = 32
    seconds: float = 60.0
    writing: float = 600.0
    slow: float = 8.0
    connections: int = 4096
    weights: int = 2_000_000
    new_tokens: int = 4096


class RequestError(Exception):
    """A request that gets no answer: an HTTP status, a code for programs and a message for people.

    The message never repeats what the client sent: an answer that does could carry markup, or other people's data
    into a log.
    """

    def __init__(self, status: int, code: str, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry_after = status, code, message, retry_after


def overloaded_error(seconds: float) -> RequestError:
    """Return the 429 of a full queue, which will have moved on after so many seconds."""
    wait = max(1, min(60, round(seconds)))
    return RequestError(429, "overloaded", f"the queue is full; try again in {wait} s", retry_after=wait)


def deadline_error() -> RequestError:
    return RequestError(429, "deadline", "there was no time to answer this request; try again later", retry_after=5)


def stopping_error() -> RequestError:
    return RequestError(429, "stopping", "the server is stopping; ask another one", retry_after=5)
