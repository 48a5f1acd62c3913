"""Batches, order, bounds and what happens to a request that cannot be answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from multihead.inference import Pipeline
from multihead.server.batching import SLACK, choose_batch
from multihead.server.limits import Limits, RequestError
from multihead.server.scheduler import Scheduler


class Counter:
    def __init__(self) -> None:
        self.batches: list[int] = []

    def saw_batch(self, rows: int, tokens: int, padding: int, seconds: float) -> None:
        self.batches.append(rows)


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
def scheduler(models: dict[str, Pipeline], counter: Counter) -> Iterator[Scheduler]:
    made = Scheduler(models["classify"].model, Limits(queue=8, inputs=8, tokens=200, seconds=30), counter)
    yield made
    made.close()


class Gate:
    """Holds a scheduler's only worker until it is opened."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.opened, begun = threading.Event(), threading.Event()
        self.future = scheduler.submit_alone(lambda: (begun.set(), self.opened.wait(30)))
        assert begun.wait(10)

    def open(self) -> None:
        self.opened.set()
        self.future.result(10)


def row(text: str) -> dict[str, str]:
    return {"text": text}


def test_a_batch_takes_similar_lengths_within_the_budget() -> None:
    assert choose_batch([10], 0, 5) == [0]
    lengths = [100, 400, 98, 390, 101, 5]
    assert sorted(choose_batch(lengths, 0, 1024)) == [0, 2, 4, 5]
    assert sorted(choose_batch(lengths, 1, 1024)) == [1, 3]
    chosen = choose_batch([8] * 1000, 0, 1024)
    assert len(chosen) == 128
    for seed in range(6):
        picked = [lengths[i] for i in choose_batch(lengths, seed, 1024)]
        assert picked[0] == lengths[seed]
        area = max(picked) * len(picked)
        assert area <= 1024
        assert area - sum(picked) <= max(SLACK, area // 4)


def test_what_waits_is_read_together(scheduler: Scheduler, counter: Counter, models) -> None:
    task, gate = models["classify"].make_task(), Gate(scheduler)
    futures = [scheduler.submit(task, [row("a fine film")]) for _ in range(6)]
    time.sleep(0.1)  # until they are encoded
    gate.open()
    assert len({str(future.result(10)) for future in futures}) == 1
    assert counter.batches == [6]


def test_a_full_queue_refuses_and_recovers(scheduler: Scheduler, models) -> None:
    task, gate = models["classify"].make_task(), Gate(scheduler)  # which is one of eight
    futures = [scheduler.submit(task, [row("a fine film")]) for _ in range(7)]
    with pytest.raises(RequestError) as refused:
        scheduler.submit(task, [row("a dull film")])
    assert refused.value.status == 429
    assert refused.value.retry_after is not None
    gate.open()
    assert all(future.result(10) for future in futures)
    assert scheduler.depth == 0
    assert scheduler.submit(task, [row("a dull film")] * 8).result(10)


def test_interactive_requests_go_first(scheduler: Scheduler, models) -> None:
    task, gate, order = models["classify"].make_task(), Gate(scheduler), []
    slow = scheduler.submit(task, [row("a fine film " * 12)])
    slow.add_done_callback(lambda _: order.append("batch"))
    time.sleep(0.05)
    quick = scheduler.submit(models["classify"].make_task(), [row("a dull film")], interactive=True)
    quick.add_done_callback(lambda _: order.append("interactive"))
    alone = scheduler.submit_alone(lambda: order.append("alone"))
    time.sleep(0.05)
    gate.open()
    for future in (slow, quick, alone):
        future.result(10)
    assert order.index("interactive") < order.index("batch")
    assert order.index("alone") < order.index("batch")


def test_deadlines_and_clients_that_leave(scheduler: Scheduler, counter: Counter, models) -> None:
    task, gate = models["classify"].make_task(), Gate(scheduler)
    late = scheduler.submit(task, [row("a fine film")], seconds=0.01)
    left = scheduler.submit(task, [row("a fine film")])
    stays = scheduler.submit(task, [row("a dull film")])
    time.sleep(0.1)
    assert left.cancel()
    gate.open()
    assert stays.result(10)
    with pytest.raises(RequestError) as refused:
        late.result(10)
    assert refused.value.status == 429
    assert counter.batches == [1]  # nothing was read for the other two
    assert scheduler.depth == 0


def test_a_poisoned_request_costs_only_itself(scheduler: Scheduler, models, monkeypatch) -> None:
    task, gate = models["classify"].make_task(), Gate(scheduler)
    forward = task.forward

    def fail_on_long(model, batch):
        if batch["tokens"].shape[1] > 20:
            raise RuntimeError("no memory for that")
        return forward(model, batch)

    monkeypatch.setattr(task, "forward", fail_on_long)
    poisoned = scheduler.submit(task, [row("a fine film " * 8)])
    others = [scheduler.submit(task, [row("a fine film")]) for _ in range(3)]
    time.sleep(0.1)
    gate.open()
    assert all(future.result(10) for future in others)
    with pytest.raises(RuntimeError, match="no memory"):
        poisoned.result(10)


def test_too_much_in_one_request_is_refused(scheduler: Scheduler, models) -> None:
    task = models["classify"].make_task()
    with pytest.raises(RequestError, match="8 inputs"):
        scheduler.submit(task, [row("a fine film")] * 9)
    with pytest.raises(RequestError, match="200 tokens"):
        scheduler.submit(task, [row("a fine film " * 400)]).result(10)


def test_what_waits_is_told_when_the_server_stops(models, counter: Counter) -> None:
    scheduler, task = Scheduler(models["classify"].model, Limits(seconds=5), counter), models["classify"].make_task()
    gate = Gate(scheduler)
    waiting = scheduler.submit(task, [row("a fine film")])
    time.sleep(0.1)
    closing = threading.Thread(target=scheduler.close)
    closing.start()
    with pytest.raises(RequestError) as refused:
        waiting.result(10)
    assert refused.value.code == "stopping"
    gate.opened.set()
    closing.join(20)
    assert not closing.is_alive()
    with pytest.raises(RequestError):
        scheduler.submit(task, [row("a fine film")])
