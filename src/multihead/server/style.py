"""How a request wants a text written, and the text as it grows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from torch import Tensor

from multihead.generation import GenerationConfig
from multihead.models import LMReadout, TaskModel
from multihead.server.generation import Writing
from multihead.server.limits import RequestError
from multihead.tasks import Window
from multihead.tasks.generate import Generate

COLD = 1e-4  # temperatures below are none: the likeliest token


@dataclass(frozen=True)
class Style:
    """What a request may say of its texts; None: as the model's own files have it.

    choices: texts of each prompt; rows i, i + 1 … of a request are choices of one prompt.
    listen: makes, for row i and its prompt, what hears of every token.
    witness: sees the logits [V] of every token before it is chosen; for requests of one text.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    choices: int = 1
    listen: Callable[[int, list[int], frozenset[int]], Callable[[int], bool]] | None = None
    witness: Callable[[Tensor], None] | None = None

    def settings(self, own: GenerationConfig) -> GenerationConfig:
        """The model's own settings, changed as the request says."""
        if self.temperature is not None and self.temperature < COLD:
            return replace(own, beam=1, nbest=1, sample=False, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
        own = replace(own, beam=1, nbest=1)
        if self.temperature is not None:
            own = replace(own, sample=True, temperature=self.temperature)
        if self.top_p is not None:
            own = replace(own, sample=True, top_p=max(self.top_p, 1e-6))
        return replace(own, sample=True) if self.choices > 1 else own


def is_streamed(task: Generate, style: Style | None) -> bool:
    """Can the text be written token by token? A beam search is not."""
    how = task.generation_config()
    return style is not None or (how.beam == 1 and how.nbest == 1)


def make_writing(task: Generate, model: TaskModel, window: Window, style: Style | None, row: int) -> Writing:
    """Return one text to be written behind a prompt."""
    prompt, style = window["tokens"].tolist(), style or Style()
    if style.listen is not None and int(window.get("cut", 0)):
        raise RequestError(422, "context_length_exceeded", f"the prompt is longer than {task.size - 1:,} tokens")
    own = task.generation_config().restrict_to_vocabulary(
        len(task.tokenizer), cast(LMReadout, model.readout).weight.shape[0]
    )
    stop = frozenset(task.options["stop"])
    return Writing(
        prompt,
        style.settings(own),
        style.max_tokens or task.max_new_tokens(len(prompt)),
        task.size,
        stop,
        seed=int(task.settings.get("seed", 0)) if style.seed is None else style.seed,
        draw=row % style.choices,
        listener=None if style.listen is None else style.listen(row, prompt, stop),
        witness=style.witness,
    )


class GrowingText:
    """The text of one answer, in pieces that never end amid a character, up to a phrase that stops it.

    emit: hears of every piece, in the generator's thread. trim: white space before the text is left out.
    """

    def __init__(
        self,
        task: Generate,
        prompt: list[int],
        stop: frozenset[int],
        phrases: tuple[str, ...] = (),
        emit: Callable[[str], None] | None = None,
        trim: bool = False,
    ) -> None:
        self.task, self.prompt, self.stop, self.phrases, self.emit, self.trim = task, prompt, stop, phrases, emit, trim
        self.before = task.tokenizer.decode(prompt)
        self.tokens: list[int] = []
        self.text = ""
        self.sent = 0  # characters
        self.reason = "length"
        self.began = time.monotonic()
        self.held = max(map(len, phrases), default=1) - 1  # characters that may be the beginning of a phrase

    def __call__(self, token: int) -> bool:
        """Take a token; True: a phrase ends the text here."""
        self.tokens.append(token)
        if token in self.stop:
            self.reason = "stop"
            return False
        if self.emit is None and not self.phrases:
            return False
        self._decode()
        at = min((found for phrase in self.phrases if (found := self.text.find(phrase)) >= 0), default=-1)
        if at >= 0:
            self.text, self.reason = self.text[:at], "stop"
            return True
        if not self.text.endswith("\ufffd"):  # a character that is not whole yet
            self._send(len(self.text) - self.held)
        return False

    def finish(self) -> str:
        """Return the whole text, and send what was held back of it."""
        if self.emit is None and not self.phrases:
            self._decode()
        self._send(len(self.text))
        return self.text.strip() if self.trim else self.text

    def _decode(self) -> None:
        kept = self.tokens[:-1] if self.tokens and self.tokens[-1] in self.stop else self.tokens
        text = self.task.tokenizer.decode([*self.prompt, *kept]).removeprefix(self.before)
        self.text = text.lstrip() if self.trim else text

    def _send(self, end: int) -> None:
        if self.emit is not None and end > self.sent:
            self.emit(self.text[self.sent : end])
            self.sent = end
