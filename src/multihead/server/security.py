"""Who may ask, how much and how slowly: checked before a route sees a request."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from multihead.server.bodies import answer_error, read_body, too_large
from multihead.server.limits import Limits, RequestError
from multihead.server.metrics import Metrics

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Paths that need no key: a load balancer asks for health, and the studio's page asks its user for the key.
OPEN = ("/health", "/")
OPEN_FOLDERS = ("/studio/", "/views/")
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
CLOSE = [(b"connection", b"close")]
UNREAD = (408, 413)  # answers to a body that was not read to its end: whatever comes of it is no next request
LONGEST_HEAD = 2**16  # bytes of a request's headers
SHOWN = 120  # characters of a path in the access log


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Attributes:
        host: the address that the server listens on.
        key: what a client must send as `Authorization: Bearer KEY`; "": nothing.
        names: host names, besides loopback's, that clients may call the server by; none given: with a key, any.
        origins: origins of web pages elsewhere that may ask (CORS); none given: none.
    """

    host: str = "127.0.0.1"
    key: str = ""
    names: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.key:
            raise ValueError(f"--host {self.host} can be reached from elsewhere: give a --key that clients must send")
        if "*" in self.origins:
            raise ValueError("--allow-origin *: any web page could ask; name the origins, such as https://example.org")

    def check(self, headers: dict[bytes, bytes], path: str, *, preflight: bool = False) -> None:
        """Raise the answer to a request that is not allowed. A browser's preflight request carries no key."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not self._knows(host_name(host)):
            raise RequestError(403, "wrong_host", "this server is not called by that Host; see --allow-host")
        origin = headers.get(b"origin")
        if origin is not None and not self.allows(origin.decode("latin-1").lower(), host):
            raise RequestError(403, "wrong_origin", "web pages of that origin may not ask; see --allow-origin")
        if self.key and path not in OPEN and not path.startswith(OPEN_FOLDERS) and not preflight:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, b"Bearer " + self.key.encode()):
                raise RequestError(401, "no_key", "send the server's key: Authorization: Bearer KEY")

    def allows(self, origin: str, host: str) -> bool:
        """May a page of this origin ask? The server's own page may."""
        return origin in self.origins or origin in (f"http://{host}", f"https://{host}")

    def _knows(self, name: str) -> bool:
        # A name that an attacker's DNS points at this machine (rebinding) must not reach a server that asks no key.
        if name in LOOPBACK or name in self.names or name == self.host.strip("[]").lower():
            return True
        return bool(self.key) and not self.names


class Guard:
    """The outermost ASGI application: checks, limits, headers, access log and counters around the real one.

    check_room: raises for a path whose model has a full queue; here, as refusing must cost little where there is most
    to reject.
    """

    def __init__(
        self,
        app: App,
        access: Access,
        limits: Limits,
        metrics: Metrics,
        write: Callable[[str], None],
        check_room: Callable[[str], None],
    ) -> None:
        self.app, self.access, self.limits, self.metrics, self.write = app, access, limits, metrics, write
        self.check_room = check_room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = GuardedResponse(send, self._cors(scope))
        start = time.monotonic()
        self.metrics.running.inc()
        try:
            await self._answer(scope, receive, answer)
        except RequestError as error:
            await _reply(error, scope, receive, answer)
        except ClientDisconnect:
            answer.status = answer.status or 499  # as nginx writes it: the client left
        except Exception:
            log.exception("a request failed")
            await _reply(RequestError(500, "internal", "the server failed; its log says why"), scope, receive, answer)
        finally:
            self.metrics.running.dec()
            self._count(scope, answer, time.monotonic() - start)

    async def _answer(self, scope: Scope, receive: Receive, answer: GuardedResponse) -> None:
        headers = dict(scope["headers"])
        preflight = scope["method"] == "OPTIONS" and bool(answer.cors)
        self.access.check(headers, scope["path"], preflight=preflight)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self.limits.body:
            await read_body(Request(scope, receive), self.limits)
            raise too_large(self.limits)
        if preflight:
            await answer({"type": "http.response.start", "status": 204, "headers": []})
            await answer({"type": "http.response.body", "body": b""})
            return
        self.check_room(scope["path"])
        await self.app(scope, receive, answer)

    def _cors(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Headers for a page elsewhere that is named; for others there are none."""
        origin = next((value for name, value in scope["headers"] if name == b"origin"), b"")
        if origin.decode("latin-1").lower() not in self.access.origins:
            return []
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-headers", b"authorization, content-type"),
            (b"access-control-allow-methods", b"GET, POST"),
            (b"vary", b"Origin"),
        ]

    def _count(self, scope: Scope, answer: GuardedResponse, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")  # the pattern: paths themselves would be without number
        self.metrics.requests.labels(route, str(answer.status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        client = (scope.get("client") or ("-",))[0]
        path = scope["path"][:SHOWN].encode("unicode_escape").decode("ascii")
        self.write(f"{client} {scope['method']} {path} {answer.status} {1000 * seconds:.1f} ms {answer.size} B")


class GuardedResponse:
    """`send` with the headers that every answer has."""

    def __init__(self, send: Send, cors: list[tuple[bytes, bytes]]) -> None:
        self.send, self.cors = send, cors
        self.status, self.size = 0, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = {name for name, _ in message.get("headers", [])}  # the studio's page has a policy of its own
            more = [*(header for header in HEADERS if header[0] not in given), *self.cors]
            more += CLOSE if self.status in UNREAD else []
            message = {**message, "headers": [*message.get("headers", []), *more]}
        self.size += len(message.get("body", b""))
        await self.send(message)


async def _reply(error: RequestError, scope: Scope, receive: Receive, answer: GuardedResponse) -> None:
    if not answer.status:  # else half an answer is gone already, and the connection is closed
        await answer_error(error)(scope, receive, answer)


class GuardedProtocol(AutoHTTPProtocol):  # type: ignore[misc]
    """uvicorn's protocol, which would keep a connection for ever whose headers never end, or whose client never takes
    its answer."""

    limits = Limits()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head: asyncio.TimerHandle | None = None  # while headers are waited for
        self._stuck: asyncio.TimerHandle | None = None  # while the client does not read
        self._received = 0  # bytes of headers
        if len(self.connections) > self.limits.connections:
            transport.abort()
        else:
            self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        if not self._is_busy():
            self._received += len(data)
        super().data_received(data)
        self._wait_for_headers()
        if self._received > LONGEST_HEAD + self.limits.body:
            self.transport.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_headers()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stuck is None:
            self._stuck = asyncio.get_running_loop().call_later(self.limits.slow, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._stuck)
        self._stuck = None

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._head, self._stuck)
        super().connection_lost(exc)

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_headers(self) -> None:
        """Start the clock where the next thing to come is a request's headers; stop it once they are there."""
        if self._is_busy():
            _cancel(self._head)
            self._head, self._received = None, 0
        elif self._head is None:
            self._head = asyncio.get_running_loop().call_later(self.limits.slow, self._give_up)

    def _give_up(self) -> None:
        self._head = None
        if not self._is_busy():
            self.transport.abort()


def _cancel(*timers: asyncio.TimerHandle | None) -> None:
    for timer in timers:
        if timer is not None:
            timer.cancel()


def guarded_protocol(limits: Limits) -> type[GuardedProtocol]:
    """Return the protocol's class for these limits: uvicorn makes an instance for every connection."""
    return type("LimitedProtocol", (GuardedProtocol,), {"limits": limits})


def is_loopback(host: str) -> bool:
    """Can this address be reached from this machine only?"""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_name(host: str) -> str:
    """The name in a Host header, without the port: [::1]:80 -> ::1."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
