"""Clients of other servers: rerankers, text-embeddings-inference, KServe v2."""

from __future__ import annotations

import json

import numpy as np
import pytest

TEXTS = ["Ada is in Oslo", "Ada is in Rome", "很好"]
QUERY = "Ada went to Rome"


def test_rerank_by_a_cross_encoder(client, models) -> None:
    wanted = [p["scores"]["yes"] for p in models["match"].predict([{"text_a": QUERY, "text_b": t} for t in TEXTS])]
    asked = {"model": "match", "query": QUERY, "documents": [*TEXTS[:2], {"text": TEXTS[2]}], "return_documents": True}
    results = client.post("/v1/rerank", asked).json["results"]
    scores = [result["relevance_score"] for result in results]
    assert scores == sorted(scores, reverse=True)
    for result in results:
        assert result["relevance_score"] == pytest.approx(wanted[result["index"]], abs=1e-5)
        assert result["document"]["text"] == TEXTS[result["index"]]
    assert len(client.post("/v1/rerank", {**asked, "top_n": 1}).json["results"]) == 1


def test_rerank_by_vectors(client, models) -> None:
    query, *others = models["vectors"].embed([QUERY, *TEXTS])
    results = client.post("/v1/rerank", {"model": "vectors", "query": QUERY, "documents": TEXTS}).json["results"]
    for result in results:
        assert result["relevance_score"] == pytest.approx(float(query @ others[result["index"]]), abs=1e-5)


def test_text_embeddings_inference(client, models) -> None:
    vectors = client.post("/embed", {"inputs": TEXTS, "truncate": True}).json
    assert np.allclose(vectors, models["vectors"].embed(TEXTS), atol=1e-5)
    assert np.shape(client.post("/embed", {"inputs": "one"}).json) == (1, 24)
    ranked = client.post("/rerank", {"query": QUERY, "texts": TEXTS, "return_text": True}).json
    assert sorted(entry["index"] for entry in ranked) == [0, 1, 2]
    assert [entry["score"] for entry in ranked] == sorted((e["score"] for e in ranked), reverse=True)
    scores = models["classify"]("a fine film")["scores"]
    single = client.post("/predict", {"inputs": "a fine film"}).json
    assert {entry["label"]: entry["score"] for entry in single} == pytest.approx(scores, abs=1e-5)
    several = client.post("/predict", {"inputs": ["a fine film", "a dull film"]}).json
    assert [entries[0]["label"] for entries in several] == [
        prediction["label"] for prediction in models["classify"].predict(["a fine film", "a dull film"])
    ]
    pair = client.post("/predict", {"inputs": [[QUERY, TEXTS[0]]]}).json
    assert {entry["label"] for entry in pair[0]} == {"yes", "no"}


def test_kserve(client, models) -> None:
    assert client.get("/v2/health/live").status == 200
    assert client.get("/v2/models/classify/ready").json["ready"]
    described = client.get("/v2/models/classify").json
    assert described["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    texts = ["a fine film", "a dull film"]
    body = {"id": "7", "inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": texts}]}
    answer = client.post("/v2/models/classify/infer", body).json
    outputs = {output["name"]: output for output in answer["outputs"]}
    wanted = models["classify"].predict(texts)
    assert answer["id"] == "7"
    assert outputs["label"]["data"] == [prediction["label"] for prediction in wanted]
    assert outputs["score"]["data"] == pytest.approx([prediction["score"] for prediction in wanted], abs=1e-5)
    assert json.loads(outputs["prediction"]["data"][0])["label"] == wanted[0]["label"]
    wrong = {"inputs": [{"name": "text", "shape": [1], "datatype": "FP32", "data": [0.5]}]}
    assert client.post("/v2/models/classify/infer", wrong).status == 422
