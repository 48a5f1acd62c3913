"""Thin adapters, so that clients of other servers work: text-embeddings-inference, KServe's v2 protocol, rerankers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from multihead import __version__
from multihead.server.api import Api, add_post, conceal
from multihead.server.bodies import answer_json, check_inputs, read_form, refuse_single
from multihead.server.limits import RequestError
from multihead.server.models import ServedModel
from multihead.server.openai import embed_texts
from multihead.server.schemas import KServeForm, RerankForm, TeiEmbedForm, TeiPredictForm, TeiRerankForm
from multihead.tasks import Prediction, Task
from multihead.tasks.match import Match


class CompatRoutes:
    def __init__(self, api: Api) -> None:
        self.api = api

    def add_routes(self, app: FastAPI) -> None:
        add_post(app, "/v1/rerank", self.rerank, RerankForm, "Texts by how well they answer a question.")
        add_post(app, "/embed", self.tei_embed, TeiEmbedForm, "Vectors (text-embeddings-inference).")
        add_post(app, "/rerank", self.tei_rerank, TeiRerankForm, "Scores of texts (text-embeddings-inference).")
        add_post(app, "/predict", self.tei_predict, TeiPredictForm, "Classes of texts (text-embeddings-inference).")
        app.add_api_route("/v2", self.kserve_server, methods=["GET"], summary="The server (KServe v2).")
        app.add_api_route("/v2/health/live", self.api.health, methods=["GET"], summary="Alive? (KServe v2)")
        app.add_api_route("/v2/health/ready", self.api.is_ready, methods=["GET"], summary="Ready? (KServe v2)")
        app.add_api_route("/v2/models/{model}", self.kserve_model, methods=["GET"], summary="A model (KServe v2).")
        app.add_api_route("/v2/models/{model}/ready", self.kserve_ready, methods=["GET"], summary="Ready? (KServe v2)")
        add_post(app, "/v2/models/{model}/infer", self.kserve_infer, KServeForm, "Predictions (KServe v2).")

    async def rerank(self, request: Request) -> Response:
        form = await read_form(request, RerankForm, self.api.limits)
        served = self.api.table.find(form.model)
        texts = [text if isinstance(text, str) else text.get("text") for text in form.documents]
        if not all(isinstance(text, str) for text in texts):
            raise RequestError(422, "bad_request", "documents are texts, or objects with a text")
        scores = await self._scores(request, served, form.query, texts)  # type: ignore[arg-type]
        order = sorted(range(len(texts)), key=lambda i: -scores[i])[: form.top_n]
        results = [
            {
                "index": i,
                "relevance_score": scores[i],
                **({"document": {"text": texts[i]}} if form.return_documents else {}),
            }
            for i in order
        ]
        return answer_json({"model": served.name, "results": results})

    async def tei_embed(self, request: Request) -> Response:
        form = await read_form(request, TeiEmbedForm, self.api.limits)
        texts = [form.inputs] if isinstance(form.inputs, str) else form.inputs
        vectors, _ = await embed_texts(self.api, request, self.api.table.first(embeds=True), texts)
        return answer_json(vectors)

    async def tei_rerank(self, request: Request) -> Response:
        form = await read_form(request, TeiRerankForm, self.api.limits)
        served = self.api.table.first(embeds=True, tasks=("match",))
        scores = await self._scores(request, served, form.query, form.texts)
        found = [
            {"index": i, "score": score, **({"text": form.texts[i]} if form.return_text else {})}
            for i, score in enumerate(scores)
        ]
        return answer_json(sorted(found, key=lambda entry: -float(entry["score"])))

    async def tei_predict(self, request: Request) -> Response:
        form = await read_form(request, TeiPredictForm, self.api.limits)
        given = [form.inputs] if isinstance(form.inputs, str) else form.inputs
        pairs = [isinstance(entry, list) and len(entry) == 2 for entry in given]
        if any(isinstance(entry, list) and not pair for entry, pair in zip(given, pairs, strict=True)):
            raise RequestError(422, "bad_request", "inputs are texts, or pairs of texts")
        served = self.api.table.first(tasks=("match",) if any(pairs) else ("classify",))
        task = served.need_task()
        inputs = [dict(zip(task.inputs, entry, strict=False)) if isinstance(entry, list) else entry for entry in given]
        classes = [_classes(prediction) for prediction in await self._predict(request, served, task, inputs)]
        return answer_json(classes[0] if isinstance(form.inputs, str) else classes)

    async def kserve_server(self) -> Response:
        return answer_json({"name": "multihead", "version": __version__, "extensions": []})

    async def kserve_model(self, model: str) -> Response:
        served = self.api.table.find(model)
        task = served.task or served.need_embedder()
        inputs = [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in task.inputs]
        outputs = [{"name": "prediction", "datatype": "BYTES", "shape": [-1]}]
        return answer_json({"name": served.name, "platform": "multihead", "inputs": inputs, "outputs": outputs})

    async def kserve_ready(self, model: str) -> Response:
        return answer_json({"name": self.api.table.find(model).name, "ready": True})

    async def kserve_infer(self, request: Request, model: str) -> Response:
        """Predictions as JSON texts; of classes, label and score too; of a model that makes vectors, those."""
        served = self.api.table.find(model)
        form = await read_form(request, KServeForm, self.api.limits)
        columns = {tensor.name: tensor.data for tensor in form.inputs}
        counts = {len(data) for data in columns.values()}
        if len(counts) != 1 or any(tensor.datatype != "BYTES" for tensor in form.inputs):
            raise RequestError(422, "bad_request", "inputs are BYTES tensors of one length: a text in each place")
        count = counts.pop()
        head = {"model_name": served.name, "model_version": "1", **({"id": form.id} if form.id else {})}
        if served.task is None:
            texts = next(iter(columns.values()))
            if not all(isinstance(text, str) for text in texts):
                raise RequestError(422, "bad_request", "data are texts")
            vectors, _ = await embed_texts(self.api, request, served, texts)
            table = np.array(vectors, dtype=np.float32).reshape(count, -1)
            output = {"name": "embedding", "datatype": "FP32", "shape": list(table.shape), "data": table.ravel()}
            return answer_json({**head, "outputs": [output]})
        inputs = [{name: data[i] for name, data in columns.items()} for i in range(count)]
        predictions = await self._predict(request, served, served.task, inputs)
        outputs = [_tensor("prediction", "BYTES", [json.dumps(p, ensure_ascii=False) for p in predictions])]
        if predictions and all("label" in prediction and "score" in prediction for prediction in predictions):
            outputs.append(_tensor("label", "BYTES", [prediction["label"] for prediction in predictions]))
            outputs.append(_tensor("score", "FP32", [prediction["score"] for prediction in predictions]))
        return answer_json({**head, "outputs": outputs})

    async def _predict(self, request: Request, served: ServedModel, task: Task, inputs: list[Any]) -> list[Prediction]:
        """All predictions, or the first error: these protocols have no place for one among them."""
        rows = [row for entry in inputs for row in check_inputs(task, [entry], single=True)]
        predictions = await self.api.wait(request, served.scheduler.submit(task, rows))
        for prediction, entry in zip(predictions, inputs, strict=True):
            refuse_single(conceal(prediction, entry))
        return predictions

    async def _scores(self, request: Request, served: ServedModel, query: str, texts: list[str]) -> list[float]:
        """How well each text goes with the query: what a cross-encoder says, or the cosine of two vectors."""
        if served.embedder is not None:
            vectors, _ = await embed_texts(self.api, request, served, [query, *texts])
            return [round(float(vectors[0] @ vector), 6) for vector in vectors[1:]]
        task = served.need_task()
        if not isinstance(task, Match):
            raise RequestError(422, "wrong_model", "this model does not compare texts; train one: match")
        inputs = [{"text_a": query, "text_b": text} for text in texts]
        predictions = await self._predict(request, served, task, inputs)
        if task.options.get("score"):
            return [float(prediction["score"]) for prediction in predictions]
        positive = task.labels[task._positive()]
        return [float(prediction["scores"][positive]) for prediction in predictions]


def _classes(prediction: Prediction) -> list[dict[str, Any]]:
    scores = prediction.get("scores") or {"score": prediction["score"]}
    found = [{"score": score, "label": label} for label, score in scores.items()]
    return sorted(found, key=lambda entry: -entry["score"])


def _tensor(name: str, datatype: str, data: list[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [len(data)], "data": data}
