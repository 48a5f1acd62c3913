"""Contestants in processes of their own: each as it would run by itself, with its own threads, caches and allocator.

In one process all would have what ours sets for training (`memory.disable_malloc_trim`), which is a part of what is
compared.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import torch

from benchmarks.attention_baselines import OURS
from multihead.machine import memory

if TYPE_CHECKING:
    from benchmarks.training import Benchmark, RoundResult

REST = 0.05  # seconds between two turns, so that the threads of the last one have gone to sleep


@contextmanager
def run_in_processes(
    make: Callable[[], Benchmark], names: Mapping[str, object]
) -> Iterator[dict[str, Callable[[], RoundResult]]]:
    """The loops of the race that `make` gives (a function that can be pickled), each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    started = {}
    try:
        for name in names:
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, make, name, torch.get_num_threads()), daemon=True)
            process.start()
            there.close()  # theirs alone now: it ends with them
            started[name] = process, here
        yield {name: partial(_turn, name, here) for name, (_, here) in started.items()}
    finally:
        for process, here in started.values():
            here.close()
            process.terminate()
            process.join()


def _turn(name: str, pipe: Connection) -> RoundResult:
    time.sleep(REST)
    try:
        pipe.send(None)
        ran: RoundResult = pipe.recv()
    except (EOFError, OSError):
        raise ValueError(f"{name}: its process has ended; what it printed last says why") from None
    return ran


def _serve(pipe: Connection, make: Callable[[], Benchmark], name: str, threads: int) -> None:
    torch.set_num_threads(threads)
    if name == OURS:
        memory.disable_malloc_trim()
    run = make().loops[name]
    while True:
        try:
            pipe.recv()
        except EOFError:
            return
        pipe.send(run())
