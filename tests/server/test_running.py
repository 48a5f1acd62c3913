"""`multihead serve` as a person starts and stops it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

import multihead as mh
from multihead.inference import Pipeline
from multihead.pretrained import save
from multihead.server import Access
from multihead.server.models import split_entry
from multihead.server.running import bind

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")


@pytest.fixture(scope="module")
def saved(models: dict[str, Pipeline], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "mood" / "model"
    save(models["classify"], path)
    return path


@contextmanager
def started(*words: str) -> Iterator[tuple[subprocess.Popen[str], HTTPConnection, str]]:
    """A server in a process of its own, a connection to it and the line that it prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "multihead", "serve", *words, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"at http://127\.0\.0\.1:(\d+)", line)
        assert address, line + process.communicate(timeout=20)[1]
        yield process, HTTPConnection("127.0.0.1", int(address[1]), timeout=60), line
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def ask(connection: HTTPConnection, path: str, body: object) -> tuple[int, dict]:
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_a_signal_stops_it_after_what_was_begun(saved: Path, number: int, code: int) -> None:
    with started(str(saved), f"again={saved}") as (process, connection, line):
        assert line.startswith("multihead: serving mood (classify), again (classify) at http://127.0.0.1:")
        assert ask(connection, "/v1/predict/mood", {"input": "a fine film"})[0] == 200
        long = ["a fine film " * 90] * 120
        answers: list[tuple[int, dict]] = []
        asking = threading.Thread(target=lambda: answers.append(ask(connection, "/v1/predict/again", {"inputs": long})))
        asking.start()
        while not _queued(process, connection.port):
            pass
        process.send_signal(number)
        asking.join(60)
        _, log = process.communicate(timeout=60)
        assert process.returncode == code
        assert [status for status, _ in answers] == [200]
        assert len(answers[0][1]["predictions"]) == 120
        assert re.search(r"^127\.0\.0\.1 POST /v1/predict/mood 200 [\d.]+ ms \d+ B$", log, re.MULTILINE)
        assert "Traceback" not in log


def _queued(process: subprocess.Popen[str], port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return re.search(r'^multihead_queue_inputs\{model="again"\} 120', text, re.MULTILINE) is not None


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["{model}", "--host", "0.0.0.0"], 1, "give a --key"),
        (["{model}", "--port", "70000"], 2, "--port"),
    ],
)
def test_faults_are_told_in_a_line(saved: Path, words: list[str], code: int, told: str) -> None:
    command = [sys.executable, "-m", "multihead", "serve", *(word.format(model=saved) for word in words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_told_with_another() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} is taken; choose another: --port"):
            bind("127.0.0.1", port)


def test_names_come_from_paths() -> None:
    assert split_entry("runs/ner/model") == ("ner", "runs/ner/model")
    assert split_entry("a=runs/x=y/model") == ("a", "runs/x=y/model")
    assert split_entry("/models/smol.gguf") == ("smol", "/models/smol.gguf")
    assert split_entry("hub:owner/some model") == ("some-model", "hub:owner/some model")
    assert split_entry("../..") == ("model", "../..")


def test_elsewhere_a_key_is_wanted() -> None:
    with pytest.raises(ValueError, match="--key"):
        mh.serve("unused", host="192.0.2.1")
    with pytest.raises(ValueError, match="name the origins"):
        Access(origins=("*",))
    with pytest.raises(ValueError, match="nowhere"):
        mh.serve("nowhere", port=0)


def test_two_models_of_one_name_are_refused(saved: Path) -> None:
    with pytest.raises(ValueError, match="two models are called 'mood'"):
        mh.serve([saved, f"mood={saved}"], port=0)


def test_loopback_wants_no_key() -> None:
    assert Access("::1").key == ""
    assert Access("0.0.0.0", "secret").key == "secret"
