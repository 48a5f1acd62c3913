"""Every curl command of docs/serving.md is run as it stands, against a server with models of those names."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from multihead.inference import Pipeline
from multihead.server import serve_in_thread

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
COMMANDS = [
    command
    for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for command in re.split(r"\n(?=curl )", block.strip())
]


@pytest.fixture(scope="module")
def port(models: dict[str, Pipeline]):
    names = {"mood": "classify", "names": "ner", "writer": "chat", "vectors": "vectors"}
    with serve_in_thread({name: models[model] for name, model in names.items()}) as running:
        yield running.address.rpartition(":")[2]


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_gets_an_answer(command: str, port: str) -> None:
    typed = command.replace("localhost:8000", f"127.0.0.1:{port}").replace("curl -s", "curl --fail-with-body -s")
    done = subprocess.run(["bash", "-c", typed], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if "stream" in command:
        assert done.stdout.endswith("data: [DONE]\n\n")
    elif "/metrics" in command:
        assert "multihead_requests_total" in done.stdout
    else:
        assert json.loads(done.stdout)


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 14
