"""What the studio asks for: maps of all heads, tokens with probabilities, scores of a selection, a pruned model."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multihead.inference import Pipeline
from multihead.pretrained import load, save
from multihead.server import ModelServer, StudioOptions, serve_in_thread
from multihead.tasks import TASKS

OFF = ["encoder.0.self.1", "encoder.2.self.3"]


def read_events(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(part.removeprefix(b"data: ")) for part in body.split(b"\n\n") if part]


def unpack(map_: dict[str, Any]) -> Any:
    whole = np.frombuffer(base64.b64decode(map_["weights"]), dtype=np.uint8) / 255
    return (whole**2).reshape(map_["shape"])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: Any) -> Path:
    return tmp_path_factory.mktemp("saved")


@pytest.fixture(scope="module")
def studio(models: dict[str, Pipeline], row_of: Any, saved: Path, tmp_path_factory: Any) -> Iterator[ModelServer]:
    directory = tmp_path_factory.mktemp("mood") / "model"
    save(models["classify"], directory)
    options = StudioOptions(rows={"model": [row_of("classify", i) for i in range(40)]}, save_to=saved)
    with serve_in_thread(f"model={directory}", studio=options) as running:
        yield running


@pytest.mark.parametrize("name", TASKS)
def test_picture_has_every_head(name: str, client: Any, models: dict[str, Pipeline], input_of: Any) -> None:
    (described,) = (model for model in client.get("/v1/models").json["data"] if model["id"] == name)
    reply = client.post(f"/v1/picture/{name}", {"input": input_of(name, 1, models[name]), "rollout": True})
    assert reply.status == 200, reply.body
    views = reply.json["views"]
    assert sorted(one["address"] for view in views for one in view["maps"]) == sorted(described["heads"])
    for view in views:
        assert view["maps"][0]["shape"] == [len(view["queries"]), len(view["keys"])]
        assert all(one["name"] for one in view["maps"])
        flow = view["rollout"] if view["kind"] == "self" else view["alignment"]
        assert np.allclose(unpack(flow).sum(1), 1, atol=0.05)


def test_picture_shows_the_weights(client: Any) -> None:
    asked = {"input": "a fine film Ada", "heads": OFF[:1]}
    exact = np.array(client.post("/v1/heads/classify", asked).json["weights"][OFF[0]])
    (view,) = client.post("/v1/picture/classify", asked).json["views"]
    assert np.allclose(unpack(view["maps"][0]), exact, atol=0.006)
    (coarse,) = client.post("/v1/picture/classify", {**asked, "bands": 2}).json["views"]
    assert coarse["maps"][0]["shape"] == [2, 2]
    half = [exact[: len(exact) // 2], exact[len(exact) // 2 :]]
    wanted = [[part[:, : len(exact) // 2].max(), part[:, len(exact) // 2 :].max()] for part in half]
    assert np.allclose(unpack(coarse["maps"][0]), wanted, atol=0.006)


def test_tokens_come_with_their_probabilities(client: Any) -> None:
    asked = {"input": "number 1", "max_tokens": 5, "temperature": 0, "alternatives": 3}
    *tokens, last = read_events(client.post("/v1/generate/generate", asked).body)
    text = client.post(
        "/v1/completions", {"model": "generate", "prompt": "number 1", "max_tokens": 5, "temperature": 0}
    )
    assert "".join(token["text"] for token in tokens) + last["text"] == text.json["choices"][0]["text"]
    for token in tokens:
        assert len(token["alternatives"]) == 3
        assert token["probability"] == token["alternatives"][0]["probability"]  # the likeliest is taken
    asked = {"input": "number 1", "heads_off": ["decoder.0.self.0"]}
    following = client.post("/v1/whatif/generate", asked).json["next"]
    assert following[0]["before"] == pytest.approx(tokens[0]["probability"], abs=1e-5)
    assert any(one["before"] != one["after"] for one in following)


def test_selection_is_scored_as_evaluate_does(studio: ModelServer, client_of: Any, models: Any, row_of: Any) -> None:
    client, nlp, rows = client_of(studio), models["classify"], [row_of("classify", i) for i in range(40)]
    *progress, last = read_events(client.post("/v1/evaluate/model", {"heads_off": OFF}).body)
    assert [event["done"] for event in progress] == sorted(event["done"] for event in progress)
    assert progress[-1] == {"done": 80, "total": 80}
    with nlp.ablate(OFF):
        wanted = nlp.evaluate(rows)["accuracy"].value
    assert last["after"]["accuracy"]["value"] == wanted
    assert last["before"]["accuracy"]["value"] == nlp.evaluate(rows)["accuracy"].value
    *progress, again = read_events(client.post("/v1/evaluate/model", {"heads_off": OFF}).body)
    assert progress[-1]["total"] == 40  # the whole model's score is remembered
    assert again == last


def test_selection_is_saved(studio: ModelServer, client_of: Any, models: Any, saved: Path) -> None:
    client, nlp = client_of(studio), models["classify"]
    reply = client.post("/v1/save/model", {"heads_off": OFF, "name": "small"})
    assert reply.status == 200, reply.body
    smaller = load(saved / "small")
    with nlp.ablate(OFF):
        wanted = nlp("a fine film Ada")
    assert smaller("a fine film Ada")["score"] == pytest.approx(wanted["score"], abs=1e-5)
    assert reply.json["parameters"]["after"] < reply.json["parameters"]["before"]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("save/model", {"heads_off": OFF, "name": "../x"}, "bad_request"),
        ("save/model", {"heads_off": OFF, "name": "."}, "bad_request"),
        ("save/model", {"heads_off": ["<b>"], "name": "x"}, "no_head"),
        ("save/model", {"heads_off": [f"encoder.0.self.{i}" for i in range(4)], "name": "x"}, "cannot_cut"),
        ("save/model", {"heads_off": [], "name": "x"}, "bad_request"),
        ("evaluate/model", {"heads_off": ["encoder.9.self.0"]}, "no_head"),
        ("picture/model", {"input": "a", "heads": ["encoder.9.self.0"]}, "no_head"),
        ("picture/model", {"input": "a", "window": 5}, "no_window"),
        ("picture/model", {"input": "a", "bands": 0}, "bad_request"),
        ("generate/model", {"input": "a"}, "wrong_model"),
    ],
)
def test_faults(studio: ModelServer, client_of: Any, saved: Path, path: str, body: Any, code: str) -> None:
    before = sorted(saved.rglob("*"))
    reply = client_of(studio).post(f"/v1/{path}", body)
    assert (reply.status, reply.json["error"]["code"]) == (422, code)
    assert sorted(saved.rglob("*")) == before


def test_nothing_is_saved_or_scored_without_leave(client: Any) -> None:
    reply = client.post("/v1/save/classify", {"heads_off": OFF, "name": "small"})
    assert (reply.status, reply.json["error"]["code"]) == (422, "no_saving")
    reply = client.post("/v1/evaluate/classify", {"heads_off": OFF})
    assert (reply.status, reply.json["error"]["code"]) == (422, "no_data")
