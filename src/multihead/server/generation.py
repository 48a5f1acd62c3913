"""Continuous batching: texts that are generated together join and leave between steps.

One thread per model. A prompt is read in pieces, between steps of the texts that are being written, so that a long one
does not stop the others. Which token comes next is a pure function of (prompt, settings, seed): draws do not depend on
who shares the batch, and are those of `multihead predict`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from multihead.attention import KVCache
from multihead.generation.config import GenerationConfig
from multihead.generation.constraints import LogitsConstraints
from multihead.generation.logits import CounterRNG, argmax, check_logits, sample, to_float32
from multihead.models import TaskModel
from multihead.server.exclusion import ModelLock
from multihead.server.limits import RequestError, deadline_error, stopping_error
from multihead.server.prefixes import PrefixStore
from multihead.server.slots import SlotReader, make_reader, read_on

RUNNING = 16  # texts that are written together; more wait
PIECE = 128  # tokens of a prompt that are read between two steps
NEVER = float("-inf")


class StepObserver(Protocol):
    """Who counts what is written."""

    def saw_step(self, rows: int, seconds: float) -> None: ...
    def saw_prompt(self, read: int, reused: int) -> None: ...
    def saw_sequences(self, running: int) -> None: ...


@dataclass(eq=False)
class Writing:
    """One text that is being written.

    prompt: its tokens.  wanted: new tokens, at most.  size: tokens that the model takes.  draw: which of several texts
    of one prompt.  deadline, latest: when it must have begun, and ended.  listener: called with every new token, in the
    generator's thread; True ends the text.  witness: called before, with the logits [V] that it is chosen by.
    """

    prompt: list[int]
    settings: GenerationConfig
    wanted: int
    size: int
    stop: frozenset[int]
    seed: int = 0
    draw: int = 0
    deadline: float = float("inf")
    latest: float = float("inf")
    listener: Callable[[int], bool] | None = None
    witness: Callable[[Tensor], None] | None = None
    future: Future[list[int]] = field(default_factory=Future)
    tokens: list[int] = field(default_factory=list)  # written so far
    held: list[int] = field(default_factory=list)  # the window: tokens that the model has read, or reads next
    written: int = 0  # tokens that were there when the window was begun
    cache: KVCache = field(default_factory=KVCache)  # while the prompt is read
    reused: int = 0
    draws: CounterRNG | None = None
    rules: LogitsConstraints | None = None

    def begin_window(self, device: torch.device) -> None:
        """Read the prompt; or, where the model's window is full, its second half again, as `GenerateSection.read`
        does."""
        whole = [*self.prompt, *self.tokens]
        self.held = whole if not self.tokens else whole[-max(1, self.size // 2) :]
        self.written, self.cache, self.reused = len(self.tokens), KVCache(), 0
        row = crc32(np.array(self.prompt, np.int32).tobytes()) + self.written
        self.draws = CounterRNG(self.seed, [row], self.draw + 1) if self.settings.sample else None
        room = min(self.wanted - self.written, self.size - len(self.held))
        settings = replace(self.settings, min_length=max(0, self.settings.min_length - self.written))
        rules = LogitsConstraints(
            settings, torch.tensor([self.held], device=device), None, self.stop, None, limits=[room]
        )
        self.rules = rules if rules.looks_back or rules.forbids else None

    @property
    def place(self) -> int:
        """How many tokens were written in this window."""
        return len(self.tokens) - self.written

    def draw_at(self) -> Tensor:
        """Return the number in [0, 1) that the next token is drawn with, [1]."""
        assert self.draws is not None
        return self.draws.at(self.place)[self.draw : self.draw + 1]

    def fail(self, error: BaseException) -> None:
        with suppress(Exception):  # it is settled, or nobody waits any more
            self.future.set_exception(error)


class Generator:
    """The thread that writes texts of one model, and those that wait for it."""

    def __init__(self, model: TaskModel, observer: StepObserver, lock: ModelLock, prefixes: PrefixStore | None = None):
        self.model, self.observer, self.lock = model, observer, lock
        self.prefixes = prefixes or PrefixStore()
        self._condition = threading.Condition()
        self._waiting: list[Writing] = []
        self._reading: list[Writing] = []  # whose prompts are being read
        self._running: list[Writing] = []  # in the order of the reader's places
        self._reader: SlotReader | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="multihead-generate", daemon=True)
        self._thread.start()

    def submit(self, writing: Writing) -> None:
        """Write a text as soon as there is a place; its future gets the new tokens. Cancel that to stop it."""
        with self._condition:
            if self._closed:
                writing.fail(stopping_error())
            self._waiting.append(writing)
            self._condition.notify()

    def close(self) -> None:
        with self._condition:
            self._closed = True
            for writing in self._waiting:
                writing.fail(stopping_error())
            self._waiting = []
            self._condition.notify()
        self._thread.join(timeout=60)

    def _run(self) -> None:
        while self._take():
            with self.lock.shared(), torch.inference_mode():
                try:
                    if self._reading:
                        self._read_prompt(self._reading[0])
                    if self._running:
                        self._step()
                except BaseException as error:  # of the model itself: its texts are lost, the thread is not
                    self._fail_all(error)

    def _take(self) -> bool:
        """Wait until there is something to write, and let in who waits; False: the generator is closed."""
        with self._condition:
            while not (self._waiting or self._reading or self._running):
                if self._closed:
                    return False
                self._condition.wait()
            while self._waiting and len(self._running) + len(self._reading) < RUNNING:
                writing = self._waiting.pop(0)
                if not writing.future.done():
                    writing.begin_window(self.model.device)
                    self._reading.append(writing)
            self.observer.saw_sequences(len(self._running) + len(self._reading))
            return True

    def _read_prompt(self, writing: Writing) -> None:
        """Read a piece of a prompt; behind its last piece the text has its first token, and joins the others."""
        if self._is_over(writing):
            self._reading.remove(writing)
            return
        if not writing.cache.parts and (known := self.prefixes.find(writing.held)) is not None:
            writing.cache, writing.reused = known, known.length
        start = writing.cache.length
        piece = writing.held[start : start + PIECE] if self._running else writing.held[start:]
        try:
            logits = read_on(self.model, torch.tensor(piece, device=self.model.device), writing.cache)
            if start + len(piece) < len(writing.held):
                return
            check_logits(logits)
        except (ValueError, RuntimeError, MemoryError) as error:
            self._reading.remove(writing)
            writing.fail(error)
            return
        self._reading.remove(writing)
        self.observer.saw_prompt(len(writing.held) - writing.reused, writing.reused)
        self.prefixes.add(writing.held, writing.cache)
        (token,) = self._choose(logits, [writing])
        if self._accept(writing, token):
            self._join(writing)

    def _join(self, writing: Writing) -> None:
        if self._reader is None:
            self._reader = make_reader(self.model)
        if len(writing.held) + writing.place >= writing.size:  # the first token filled the window
            writing.begin_window(self.model.device)
            self._reading.append(writing)
            return
        self._reader.join(writing.cache)
        writing.cache = KVCache()  # the reader has its own copy
        self._running.append(writing)

    def _step(self) -> None:
        assert self._reader is not None
        start = time.monotonic()
        tokens = torch.tensor([writing.tokens[-1] for writing in self._running], device=self.model.device)
        logits = self._reader.step(tokens)
        chosen = self._choose(logits, self._running)
        self.observer.saw_step(len(chosen), time.monotonic() - start)
        for place in reversed(range(len(self._running))):
            writing = self._running[place]
            going = not self._is_over(writing) and self._accept(writing, chosen[place])
            full = going and len(writing.held) + writing.place >= writing.size
            if full:
                writing.begin_window(self.model.device)
                self._reading.append(writing)
            if not going or full:
                self._leave(place)

    def _leave(self, place: int) -> None:
        assert self._reader is not None
        writing = self._running[place]
        if writing.written == 0 and writing.future.done() and not writing.future.cancelled():
            # What was read is a text that a conversation's next turn begins with.
            self.prefixes.add([*writing.prompt, *writing.tokens], self._reader.cache_of(place))
        self._reader.leave(place)
        self._running[place] = self._running[-1]
        self._running.pop()

    def _choose(self, logits: Tensor, writings: Sequence[Writing]) -> list[int | None]:
        """The next token of each text: logits [B, V]; None where the rules leave none. Texts that are written alike
        are looked at together."""
        logits = to_float32(logits)
        found: list[int | None] = [None] * len(writings)
        groups: dict[GenerationConfig, list[int]] = {}
        for i, writing in enumerate(writings):
            if writing.witness is not None:
                writing.witness(logits[i])
            if writing.rules is not None:
                found[i] = _choose_by_rules(logits[i : i + 1], writing)
            else:
                groups.setdefault(writing.settings, []).append(i)
        for settings, places in groups.items():
            some = logits if len(places) == len(writings) else logits[places]
            if settings.sample:
                at = torch.cat([writings[i].draw_at() for i in places])
                tokens = sample(torch.log_softmax(some, dim=1), settings, at)
            else:
                tokens = argmax(some)
            for i, token in zip(places, tokens.tolist(), strict=True):
                found[i] = token
        return found

    def _accept(self, writing: Writing, token: int | None) -> bool:
        """Append a token; False: the text ends here."""
        if token is not None:
            writing.tokens.append(token)
            ended = token in writing.stop or len(writing.tokens) >= writing.wanted
            try:
                ended = (writing.listener is not None and writing.listener(token)) or ended
            except Exception as error:
                writing.fail(error)
                return False
            if not ended:
                return True
        with suppress(Exception):  # the client left meanwhile
            writing.future.set_result(writing.tokens)
        return False

    def _is_over(self, writing: Writing) -> bool:
        """Did its client leave, or its time pass?"""
        if time.monotonic() > (writing.latest if writing.tokens else writing.deadline):
            writing.fail(deadline_error())
        return writing.future.done()

    def _fail_all(self, error: BaseException) -> None:
        failed = error if isinstance(error, RequestError | ValueError) else RuntimeError(str(error))
        for writing in (*self._reading, *self._running):
            writing.fail(failed)
        self._reading, self._running, self._reader = [], [], None


def _choose_by_rules(logits: Tensor, writing: Writing) -> int | None:
    """As `decode.single.Single` chooses, for one text: logits [1, V]."""
    assert writing.rules is not None
    written = torch.tensor([writing.tokens[writing.written :]], dtype=torch.long, device=logits.device)
    logp = torch.log_softmax(writing.rules.penalize(logits, written), dim=1)
    if writing.rules.forbids:
        logp = writing.rules.forbid(logp, written)
    if float(logp.amax()) == NEVER:
        return None
    if writing.draws is None:
        return int(argmax(logp))
    return int(sample(logp, writing.settings, writing.draw_at()))
