"""The score of a model without some heads, on rows that the server was started with, told while it is computed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from multihead.inference.engine import predict_rows
from multihead.inspection import ablate
from multihead.metrics import Score, to_json
from multihead.server.limits import RequestError
from multihead.server.models import ServedModel
from multihead.server.token_stream import describe_error, write_event
from multihead.tasks import Prediction, Scorer, Task, Values

CHUNK = 16  # rows that are read before others are answered


class Evaluation:
    """Scores before and after; the whole model is scored once and remembered."""

    def __init__(self, served: ServedModel, rows: Sequence[Values]) -> None:
        self.served, self.rows = served, rows
        self.whole: dict[str, Score] | None = None
        self.running = False

    def check_idle(self) -> None:
        """Raise the answer to a second request: scoring takes the model much of its time."""
        if self.running:
            raise RequestError(429, "busy", "this model is being scored already; try again later", retry_after=5)

    async def stream(self, heads_off: Sequence[str]) -> AsyncIterator[bytes]:
        """Events {done, total}, and at the end {before, after, rows}. Ends when its client leaves."""
        self.running = True
        try:
            selections = [*([()] if self.whole is None else []), *([heads_off] if heads_off else [])]
            total = len(selections) * len(self.rows)
            results: list[dict[str, Score]] = []
            for number, heads in enumerate(selections):
                scorer = self.served.need_task().scorer()
                async for read in self._score(scorer, heads):
                    yield write_event({"done": number * len(self.rows) + read, "total": total})
                results.append(scorer.result())
            if self.whole is None:
                self.whole = results[0]
            after = results[-1] if heads_off else self.whole
            yield write_event({"before": to_json(self.whole), "after": to_json(after), "rows": len(self.rows)})
        except (RequestError, ValueError, RuntimeError) as error:
            yield write_event(describe_error(error))
        finally:
            self.running = False

    async def _score(self, scorer: Scorer, heads: Sequence[str]) -> AsyncIterator[int]:
        """Read all rows, a few at a time: whoever waits for an answer gets it in between."""
        loaded, task = self.served.loaded, self.served.need_task()
        answered = answer_rows(loaded.model, task, self.rows, loaded.precision)
        read = 0

        def read_chunk() -> int:
            with ablate(loaded.model, list(heads)):
                chunk = list(islice(answered, CHUNK))
            for number, (values, prediction) in enumerate(chunk):
                scorer.add(values, prediction, read + number)
            return len(chunk)

        while True:
            future = self.served.scheduler.submit_alone(read_chunk)
            try:
                count = await asyncio.wrap_future(future)
            finally:
                future.cancel()
            read += count
            if not count:
                return
            yield min(read, len(self.rows))


def answer_rows(model: Any, task: Task, rows: Iterable[Values], precision: str) -> Iterator[tuple[Values, Prediction]]:
    """As `multihead evaluate` answers them, in small blocks."""
    judged = task.score_rows(model, rows)
    return iter(judged if judged is not None else predict_rows(model, task, rows, ahead=CHUNK, precision=precision))
