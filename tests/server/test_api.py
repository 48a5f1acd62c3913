"""/v1/predict of every task, and what the server tells about itself."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from multihead.inference import Pipeline
from multihead.tasks import TASKS


def assert_close(found: Any, wanted: Any) -> None:
    """The same objects; scores within what a batch's other rows change."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for name in wanted:
            assert_close(found[name], wanted[name])
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_close(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=2e-5)
    else:
        assert found == wanted


@pytest.mark.parametrize("name", TASKS)
def test_the_same_answers_as_predict(name: str, client, models: dict[str, Pipeline], input_of) -> None:
    given = [input_of(name, i, models[name]) for i in range(12)]
    wanted = json.loads(json.dumps(models[name].predict(given)))
    many = client.post(f"/v1/predict/{name}", {"inputs": given})
    assert many.status == 200, many.body
    assert_close(many.json["predictions"], wanted)
    alone = client.post(f"/v1/predict/{name}", {"input": given[0]})
    assert alone.status == 200
    assert_close(alone.json["prediction"], wanted[0])


@pytest.mark.parametrize("name", ["classify", "ner"])
def test_requests_that_come_together_get_their_own_answers(name: str, client, models, input_of, server) -> None:
    given = [input_of(name, i, models[name]) for i in range(32)]
    wanted = json.loads(json.dumps(models[name].predict(given)))
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda item: client.post(f"/v1/predict/{name}", {"input": item}), given))
    for reply, prediction in zip(replies, wanted, strict=True):
        assert_close(reply.json["prediction"], prediction)
    families = {f.name: f for f in text_string_to_metric_families(client.get("/metrics").body.decode())}
    rows = {s.name: s.value for s in families["multihead_batch_rows"].samples if s.labels == {"model": name}}
    assert rows["multihead_batch_rows_sum"] > rows["multihead_batch_rows_count"]  # some were read together


def test_long_texts_become_windows(client, models) -> None:
    text = "a fine film " * 60
    found = client.post("/v1/predict/classify", {"input": text}).json["prediction"]
    assert_close(found, json.loads(json.dumps(models["classify"](text))))
    assert found["input_info"]["windows"] > 1


def test_a_bad_input_among_good_ones_is_answered_in_its_place(client, models) -> None:
    reply = client.post("/v1/predict/classify", {"inputs": ["a fine film", "", 17, "a dull film"]})
    assert reply.status == 200
    good, empty, number, bad = reply.json["predictions"]
    assert_close([good, bad], json.loads(json.dumps(models["classify"].predict(["a fine film", "a dull film"]))))
    assert empty["error"]["code"] == "empty_input"
    assert number["error"]["code"] == "bad_input"
    assert "17" not in number["error"]["message"]


def test_one_bad_input_is_an_error(client) -> None:
    reply = client.post("/v1/predict/match", {"input": "<script>alert(1)</script>"})
    assert reply.status == 422
    assert reply.json["error"]["code"] == "bad_input"
    assert "text_a" in reply.json["error"]["message"]
    assert b"script" not in reply.body


def test_models_are_listed_with_what_they_can_do(client) -> None:
    listed = {model["id"]: model for model in client.get("/v1/models").json["data"]}
    assert set(TASKS) < set(listed)
    assert listed["classify"]["task"] == "classify"
    assert listed["classify"]["labels"] == ["bad", "good"]
    assert listed["classify"]["heads"][-1] == "encoder.2.self.3"
    assert listed["vectors"]["embeds"]
    assert client.get("/v1/models/ner").json == listed["ner"]


def test_health_readiness_and_metrics(client) -> None:
    assert client.get("/health").json == {"status": "alive"}
    assert client.get("/ready").status == 200
    reply = client.get("/metrics")
    families = {family.name for family in text_string_to_metric_families(reply.body.decode())}
    assert {"multihead_requests", "multihead_request_seconds", "multihead_queue_inputs"} <= families


def test_the_access_log_has_a_line_for_each_request(client, log: list[str]) -> None:
    client.get("/v1/models/%0d%0anone")
    client.get("/health")
    assert any("GET /v1/models/\\r\\nnone 404" in line for line in log)
    assert all("\n" not in line for line in log)


def test_the_schema_names_every_route(client) -> None:
    schema = client.get("/openapi.json").json
    post = schema["paths"]["/v1/predict/{model}"]["post"]
    assert set(post["responses"]) >= {"200", "400", "413", "422", "429"}
    assert "inputs" in post["requestBody"]["content"]["application/json"]["schema"]["properties"]
