"""One server with a small trained model of every task, and a client that speaks plain HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from multihead.inference import Pipeline
from multihead.models import ClassifierReadout, Decoder, Encoder, EncoderDecoder, ModelConfig, TaskModel
from multihead.models.families import native_config
from multihead.server import Limits, ModelServer, serve_in_thread
from multihead.tasks import TASKS
from multihead.tasks.chat import add_default_template
from multihead.text.tokenizer import Tokenizer
from multihead.training.dataset import BlockDataset
from multihead.training.from_scratch import with_vocabulary
from multihead.training.loop import TrainSettings, fit
from multihead.training.optimizer import adamw

NAMES = ["Ada", "Bo", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal"]
PLACES = ["Rome", "Oslo", "Lima", "Bonn", "Kyiv", "Bern", "Riga", "Cork"]


def make_row(task: str, i: int) -> dict[str, Any]:
    """A training row of a task; English, and a little Chinese."""
    name, place = NAMES[i % 8], PLACES[i // 4 % 8]
    if task == "ner":
        if i % 4 == 3:
            return {"tokens": ["我", "在", "北京", "见到", "了", "你"], "tags": ["O", "O", "B-LOC", "O", "O", "O"]}
        return {"tokens": [name, "visited", place, "."], "tags": ["B-PER", "O", "B-LOC", "O"]}
    if task == "classify":
        text = ["a fine film 很好看", "a dull film 不好看"][i % 2]
        return {"text": f"{text} {name}", "label": ["good", "bad"][i % 2]}
    if task == "match":
        other = place if i % 2 else PLACES[(i // 4 + 3) % 8]
        return {"text_a": f"{name} went to {place}", "text_b": f"{name} is in {other}", "label": ["no", "yes"][i % 2]}
    if task == "answer":
        context = f"On Monday {name} flew to {place} with a friend."
        answers = [{"text": place, "start": context.index(place)}]
        return {"question": f"Where did {name} fly?", "context": context, "answers": answers}
    if task == "translate":
        return {"source": f"{name} is in {place}", "target": f"{place} hat {name} gesehen"}
    if task == "summarize":
        return {"source": [f"On Monday {name} flew to {place}.", "It was long."], "target": [f"{name} in {place}"]}
    return {"text": f"number {i}: {name} lives in {place}, and {place} likes {name}"}


def make_input(task: str, i: int, loaded: Pipeline) -> Any:
    """What a user asks about that row."""
    row = make_row(task, i)
    if task == "generate":
        return {"prompt": row["text"].partition(" lives")[0]}
    if task == "summarize":
        return {"source": " ".join(row["source"])}
    if task in ("mask", "denoise"):
        assert loaded.tokenizer is not None
        return row["text"].replace("lives", loaded.tokenizer.named["mask"])
    return {name: value for name, value in row.items() if name not in TASKS[task].gold and name != "answers"}


class Windows(list[Any]):
    @property
    def sizes(self) -> Any:
        return np.array([len(window["tokens"]) for window in self])


def make_model(name: str, steps: int = 12, size: int = 48, **options: Any) -> Pipeline:
    """A small model that has trained a few steps; its sizes differ from each other. size: tokens of its window."""
    kind, rows = TASKS[name], [make_row(name, i) for i in range(32)]
    texts = [" ".join(v) if isinstance(v, list) else v for row in rows for v in row.values() if not _is_gold(v)]
    tokenizer = Tokenizer.train([str(text) for text in texts], "wordpiece", 400)
    if kind.body != "encoder":
        ends = {"start": tokenizer.special["cls"], "stop": [tokenizer.special["sep"]]}
        options = {**ends, "decode": {"max_length": 12}, **options}
    if options.get("kind") == "bi":
        options = {"positive": "yes", **options}
    kind = kind.variant(options)
    labels = [] if options.get("kind") == "bi" else kind.collect_labels(rows, **options)
    task = kind(tokenizer, labels, size, 8, **options)
    torch.manual_seed(0)
    config = ModelConfig(
        vocab=len(tokenizer), dim=24, layers=3, heads=4, max_length=size + 16, dropout=0.0, norm_first=True,
        positions="learned", token_types=2 if kind.body == "encoder" else 0, pad=tokenizer.special["pad"],
    )  # fmt: skip
    if task.readout.over == "vocabulary":
        body = {"encoder": Encoder, "decoder": Decoder, "encoder_decoder": EncoderDecoder}[kind.body](config)
        model = with_vocabulary(body, transform=kind.body == "encoder")
    elif task.readout.over == "none":
        model = TaskModel(Encoder(config), torch.nn.Identity())
    else:
        readout = ClassifierReadout(24, task.classes(), task.readout.over, task.readout.hidden, dropout=0.0)
        model = TaskModel(Encoder(config), readout)
    task.adapt(model)
    _train(model, task, rows, steps)
    options = {**options, "size": size, "overlap": 8}
    return Pipeline(model.eval(), native_config(model), tokenizer, labels=labels, task=name, options=options)


def _train(model: TaskModel, task: Any, rows: list[dict[str, Any]], steps: int) -> None:
    data = Windows(window for values in task.training_rows(rows) for window in task.encode(values))
    plan = TrainSettings(steps=steps, batch_tokens=800, warmup=2)
    if task.running:
        text = BlockDataset([np.concatenate([window["tokens"] for window in data])], task.size)
        list(fit(model, task, text, adamw(model, 1e-2), plan, order=text.order(plan)))
    else:
        list(fit(model, task, data, adamw(model, 1e-2), plan))


def _is_gold(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Requests of any bytes, as `http.client` sends them."""

    def __init__(self, server: ModelServer, timeout: float = 60) -> None:
        where = urlsplit(server.address)
        self.host, self.port, self.timeout = where.hostname or "", where.port or 0, timeout

    def send(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Reply:
        connection = HTTPConnection(self.host, self.port, timeout=self.timeout)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.send("GET", path, headers=headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", path, data, {"Content-Type": "application/json", **headers})


@pytest.fixture(scope="session")
def models() -> dict[str, Pipeline]:
    torch.set_num_threads(1)
    found = {name: make_model(name) for name in TASKS}
    found["vectors"] = make_model("match", kind="bi")
    found["chat"] = make_model("generate", steps=30)
    tokenizer = found["chat"].tokenizer
    assert tokenizer is not None
    add_default_template(tokenizer, tokenizer.special["cls"], tokenizer.special["sep"])
    return found


@pytest.fixture(scope="session")
def log() -> list[str]:
    return []


@pytest.fixture(scope="session")
def server(models: dict[str, Pipeline], log: list[str]) -> Iterator[ModelServer]:
    with serve_in_thread(models, limits=Limits(slow=2.0), write=log.append) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: ModelServer) -> Client:
    return Client(server)


@pytest.fixture(scope="session")
def client_of() -> type[Client]:
    return Client


@pytest.fixture(scope="session")
def input_of() -> Callable[..., Any]:
    return make_input


@pytest.fixture(scope="session")
def row_of() -> Callable[..., Any]:
    return make_row


@pytest.fixture(scope="session")
def model_of() -> Callable[..., Pipeline]:
    return make_model
