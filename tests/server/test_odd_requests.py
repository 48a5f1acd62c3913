"""More than 300 odd requests: documented statuses only, nothing of them in an error, and the server lives on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CANARY = "c4n4ry<script>alert(1)</script>"
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/predict/classify": {"input": "TEXT"},
    "/v1/predict/ner": {"inputs": ["TEXT", "TEXT"]},
    "/v1/predict/match": {"input": {"text_a": "TEXT", "text_b": "TEXT"}},
    "/v1/predict/answer": {"input": {"question": "TEXT", "context": "TEXT"}},
    "/v1/predict/translate": {"input": "TEXT"},
    "/v1/predict/generate": {"input": {"prompt": "TEXT"}},
    "/v1/predict/chat": {"input": {"messages": [{"role": "user", "content": "TEXT"}]}},
    "/v1/heads/classify": {"input": "TEXT", "heads": ["encoder.0.self.0"]},
    "/v1/whatif/classify": {"input": "TEXT", "heads_off": ["encoder.0.self.0"], "tokens_off": [0]},
    "/v1/chat/completions": {"model": "chat", "messages": [{"role": "user", "content": "TEXT"}], "max_tokens": 3},
    "/v1/completions": {"model": "generate", "prompt": "TEXT", "max_tokens": 3},
    "/v1/embeddings": {"model": "vectors", "input": "TEXT"},
    "/v1/rerank": {"model": "match", "query": "TEXT", "documents": ["TEXT"]},
    "/embed": {"inputs": "TEXT"},
    "/rerank": {"query": "TEXT", "texts": ["TEXT"]},
    "/predict": {"inputs": "TEXT"},
    "/v2/models/classify/infer": {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["TEXT"]}]},
}
# What stands in the place of a text, as JSON.
ODD_VALUES = {
    "lone surrogate": rf'"\ud800 {CANARY}"',
    "escaped pair": r'"\ud83d\ude00 c4n4ry"',
    "NaN": "NaN",
    "infinite": "1e999",
    "many digits": "9" * 5000,
    "null": "null",
    "number": "4747474747",
    "true": "true",
    "list": f'["{CANARY}", 7]',
    "object": f'{{"{CANARY}": "{CANARY}"}}',
    "empty": '""',
    "blank": '" \\t\\u00a0\\u2028"',
    "NUL": f'"a\\u0000{CANARY}"',
    "control tokens": '"[CLS] [SEP] [PAD] </s> <|user|>"',
    "markup": json.dumps(CANARY),
    "right to left": '"\\u202ec4n4ry\\u202c \\u0300\\u0301"',
    "one long word": json.dumps("x" * 60_000),
    "long text": json.dumps("very long " * 3_000),
    "template": '"{{ 7 * 7 }} {% for x in range(9) %} %s %n ${x}"',
    "path": '"../../etc/passwd\\\\..\\\\.."',
    "deep": "[" * 200 + "]" * 200,
    "too deep": "[" * 100_000 + "]" * 100_000,
    "wide": json.dumps([CANARY] * 2000),
}
# Whole bodies, whatever the route takes.
ODD_BODIES = {
    "nothing": b"",
    "blank": b"  \n ",
    "binary": bytes(range(256)),
    "not UTF-8": b'{"input": "\xff\xfe"}',
    "UTF-16": json.dumps({"input": CANARY}).encode("utf-16"),
    "a mark first": b"\xef\xbb\xbf{}",
    "cut short": f'{{"input": "{CANARY}'.encode(),
    "two values": b"{} {}",
    "a list": f'["{CANARY}"]'.encode(),
    "a text": json.dumps(CANARY).encode(),
    "null": b"null",
    "key twice": f'{{"{CANARY}": 1, "{CANARY}": 2}}'.encode(),
    "unknown key": f'{{"{CANARY}": 1}}'.encode(),
    "too large": b'{"input": "' + b"y" * 2**21 + b'"}',
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
}
STATUSES = {200, 400, 401, 403, 404, 405, 408, 413, 415, 422, 429}


def odd_requests() -> Iterator[tuple[str, str, bytes]]:
    for path, good in ROUTES.items():
        for name, value in ODD_VALUES.items():
            yield path, name, json.dumps(good).replace('"TEXT"', value).encode("utf-8", "surrogatepass")
        for name, body in ODD_BODIES.items():
            yield path, name, body


def assert_sound(reply: Any, where: str) -> None:
    assert reply.status in STATUSES, (where, reply.status, reply.body[:300])
    if reply.status >= 400:
        assert reply.headers["content-type"] == "application/json", where
        error = reply.json["error"]
        assert error["code"], where
        assert error["message"], where
        for part in (b"c4n4ry", b"script", b"4747", b"etc/passwd", b"xxxx", b"7 * 7", b"very long", b"9999"):
            assert part not in reply.body, (where, reply.body)


@pytest.mark.parametrize("path", ROUTES)
def test_odd_bodies(client, path: str) -> None:
    asked = [(name, body) for route, name, body in odd_requests() if route == path]
    for name, body in asked:
        assert_sound(client.post(path, body), f"{path}, {name}")
    good = json.dumps(ROUTES[path]).replace("TEXT", "a fine film").encode()
    assert client.post(path, good).status == 200


def test_there_are_more_than_300() -> None:
    assert len(list(odd_requests())) > 300


PATHS = [
    "/v1/predict/../../../etc/passwd", "/v1/predict/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/v1/predict/..", "/v1/predict/",
    "/v1/predict/%00", "/v1/predict/c4n4ry", "/v1/predict/" + "c4n4ry" * 500, "/v1/models/%E4%BD%A0", "/v1/models/%ff",
    "/v1/models/<script>", "//etc/passwd", "/v2/models/..%5c../infer", "/v1/heads/classify/", "/v1/whatif/%252e%252e",
    "/static/../api.py", "/.git/config", "/v1/predict/classify?model=../x", "/v1/models/classify%0d%0aX-Evil:%201",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "BREW"])
def test_odd_paths_and_methods(client, path: str, method: str) -> None:
    reply = client.send(method, path, b"{}" if method == "POST" else None, {"Content-Type": "application/json"})
    if method == "HEAD" or (method == "BREW" and reply.status == 400):  # no body; or the HTTP parser's own answer
        assert reply.status in STATUSES
    else:
        assert_sound(reply, f"{method} {path}")
    assert "x-evil" not in reply.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=c4n4ry"},
        {"Content-Type": ""},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
        {"Content-Type": "application/json", "Expect": "100-continue"},
        {"Content-Type": "application/json", "X-Long": "c4n4ry" * 5000},
        {"Content-Type": "application/json", "Origin": "null"},
        {"Content-Type": "application/json", "Origin": "http://c4n4ry.example"},
        {"Content-Type": "application/json", "Host": "c4n4ry.example"},
        {"Content-Type": "application/json", "Host": ""},
        {"Content-Type": "application/json", "Authorization": "Bearer \xff\xfe"},
    ],
)
def test_odd_headers(client, headers: dict[str, str]) -> None:
    reply = client.send("POST", "/v1/predict/classify", b'{"input": "a fine film"}', headers)
    assert_sound(reply, str(headers)[:80])


@pytest.mark.slow
def test_requests_made_up_from_the_schema(server) -> None:
    """schemathesis: the statuses and types that the schema documents, and never a 5xx."""
    pytest.importorskip("schemathesis")
    checks = "not_a_server_error,status_code_conformance,content_type_conformance"
    command = [Path(sys.executable).parent / "schemathesis", "run", f"{server.address}/openapi.json"]
    done = subprocess.run(
        [*command, "--checks", checks, "--max-examples", "12"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
