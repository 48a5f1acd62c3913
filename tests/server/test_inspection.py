"""Heads and what-if: the numbers of `watch` and `ablate`, over HTTP."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from multihead.inference import Pipeline
from multihead.tasks import TASKS

HEADS = ["encoder.2.self.3", "encoder.0.self.1"]


def test_weights_are_those_of_watch(client, models: dict[str, Pipeline]) -> None:
    nlp, text = models["classify"], "a fine film Ada"
    with nlp.watch() as record:
        nlp(text)
    answer = client.post("/v1/heads/classify", {"input": text, "heads": HEADS}).json
    assert answer["tokens"]["encoder"] == nlp.tokenizer.tokens(record[0].tokens)
    for address in HEADS:
        assert np.allclose(answer["weights"][address], record[0].weights(address), atol=1e-6)
    wanted = record.stats([nlp.tokenizer.special["sep"]])
    assert answer["statistics"].keys() == set(wanted.addresses)
    assert answer["statistics"][HEADS[0]]["entropy"] == pytest.approx(wanted[HEADS[0]]["entropy"], abs=1e-5)
    some = client.post("/v1/heads/classify", {"input": text, "heads": HEADS[:1], "rows": [2, 0], "statistics": False})
    assert np.allclose(some.json["weights"][HEADS[0]], record[0].weights(HEADS[0], [2, 0]), atol=1e-6)
    assert "statistics" not in some.json


@pytest.mark.parametrize("name", [*TASKS, "vectors"])
def test_every_task_can_be_looked_into(name: str, client, models, input_of) -> None:
    given = input_of("match" if name == "vectors" else name, 1, models[name])
    given = "Ada went to Rome" if name == "vectors" and models[name].task is None else given
    (described,) = (model for model in client.get("/v1/models").json["data"] if model["id"] == name)
    head = described["heads"][-1]
    reply = client.post(f"/v1/heads/{name}", {"input": given, "heads": [head]})
    assert reply.status == 200, reply.body
    weights = np.array(reply.json["weights"][head])
    stack, _, kind, _ = head.split(".")
    tokens = reply.json["tokens"]
    assert weights.shape == (len(tokens[stack]), len(tokens["encoder" if kind == "cross" else stack]))
    assert np.allclose(weights.sum(1), 1, atol=1e-4)


@pytest.mark.parametrize("name", TASKS)
def test_whatif_is_ablate(name: str, client, models, input_of) -> None:
    nlp, given = models[name], input_of(name, 2, models[name])
    (described,) = (model for model in client.get("/v1/models").json["data"] if model["id"] == name)
    off = described["heads"][::2]
    reply = client.post(f"/v1/whatif/{name}", {"input": given, "heads_off": off})
    assert reply.status == 200, reply.body
    if name == "generate":  # which draws elsewhere, and here takes the likeliest token
        assert reply.json["before"]["text"]
        return
    before = json.loads(json.dumps(nlp(given)))
    with nlp.ablate(off):
        after = json.loads(json.dumps(nlp(given)))
    assert str(reply.json["before"])[:30] == str(before)[:30]
    assert reply.json["after"].keys() == after.keys()
    if name == "classify":
        assert reply.json["after"]["scores"] == pytest.approx(after["scores"], abs=1e-5)
        assert reply.json["after"]["scores"] != pytest.approx(before["scores"], abs=1e-4)
    nothing = client.post(f"/v1/whatif/{name}", {"input": given}).json
    assert nothing["before"] == nothing["after"]


def test_tokens_are_switched_off(client) -> None:
    given = {"input": "a fine film Ada"}
    tokens = client.post("/v1/whatif/classify", given).json["tokens"]
    off = [i for i, token in enumerate(tokens) if token == "fine"]
    assert off
    answer = client.post("/v1/whatif/classify", {**given, "tokens_off": off}).json
    assert answer["after"]["scores"] != answer["before"]["scores"]
    masked = client.post("/v1/predict/classify", {"input": "a [MASK] film Ada"})
    assert masked.status == 200


def test_others_are_not_ablated(client, models) -> None:
    """Predictions that run beside what-ifs are those of the whole model."""
    wanted = models["classify"]("a dull film Ada")["scores"]
    off = [f"encoder.{layer}.self.{head}" for layer in range(3) for head in range(4)]

    def ask(i: int) -> dict:
        if i % 3 == 0:
            return client.post("/v1/whatif/classify", {"input": "a fine film", "heads_off": off}).json
        return client.post("/v1/predict/classify", {"input": "a dull film Ada"}).json["prediction"]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(48)))
    for answer in answers:
        if "scores" in answer:
            assert answer["scores"] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("heads", {"input": "a", "heads": ["encoder.9.self.0"]}, 422, "no_head"),
        ("heads", {"input": "a", "heads": HEADS, "rows": [99]}, 422, "no_row"),
        ("heads", {"input": "a", "heads": HEADS, "window": 7}, 422, "no_window"),
        ("heads", {"input": "a", "heads": HEADS, "side": 1}, 422, "no_side"),
        ("heads", {"input": "", "heads": HEADS}, 422, "empty_input"),
        ("heads", {"heads": HEADS}, 422, "bad_request"),
        ("whatif", {"input": "a", "heads_off": ["<b>"]}, 422, "no_head"),
        ("whatif", {"input": "a", "tokens_off": [-1]}, 422, "no_token"),
        ("whatif", {"input": "a", "heads_of": []}, 422, "bad_request"),
    ],
)
def test_faults(client, path: str, body: dict, status: int, code: str) -> None:
    reply = client.post(f"/v1/{path}/classify", body)
    assert (reply.status, reply.json["error"]["code"]) == (status, code)
    assert b"<b>" not in reply.body
