"""generate: a language model: it goes on with a text, or answers in a conversation.

It is trained on running text: all documents one after the other, each with what the tokenizer puts around a text and
an end token, cut into windows of the model's length without padding. As in GPT-2, a window may hold the end of one
document and the beginning of the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, ClassVar, cast
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multihead.decode import Decoding, Hypothesis, decode, stream
from multihead.models import Decoder, Model, Vocabulary
from multihead.scores import Likelihood, Score
from multihead.tasks.task import IGNORE, Batch, Prediction, ReadoutKind, Scorer, Task, Values, Window, frame
from multihead.tasks.vocabulary import vocabulary_loss, vocabulary_nats

NEW = 256  # tokens that are written, where nobody says how many
JUDGED = 4096  # tokens per batch


@dataclass(frozen=True)
class Stretch:
    """Tokens of a text that is being scored, and how many characters and bytes each of them adds."""

    tokens: NDArray[np.int32]
    characters: NDArray[np.int64]
    octets: NDArray[np.int64]


class Generate(Task):
    """options: start, stop: the token before an empty prompt, and those that end a text; decode: how it is written;
    system: what a conversation begins with."""

    name = "generate"
    inputs = ("prompt",)
    gold = ("text",)
    body: ClassVar[Any] = "decoder"
    running = True
    readout = ReadoutKind("ForCausalLM", "vocabulary", other="LMHeadModel")

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        return ("text",)

    @classmethod
    def learn(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        return []

    def checked(self, given: Any, where: str) -> Values:
        """A text: what a person says, to a model that knows conversations; else a beginning to go on with."""
        if isinstance(given, str):
            chats = self.tokenizer.template is not None
            return {"messages": [{"role": "user", "content": given}]} if chats else {"prompt": given}
        if isinstance(given, dict) and isinstance(given.get("messages"), list) and given["messages"]:
            if all(isinstance(one, dict) and isinstance(one.get("role"), str) for one in given["messages"]):
                return given
            raise ValueError(f"{where}: a message is {{role: …, content: …}}")
        if isinstance(given, dict) and isinstance(given.get("prompt"), str):
            return given
        raise ValueError(f"{where}: generate takes a text, {{prompt: …}} or {{messages: [{{role, content}}, …]}}")

    def encode(self, values: Values) -> list[Window]:
        if "text" in values:
            inside = values.get("at", 0) > 0 and values["at"] + len(values["text"]) < values["of"]
            ids = self.tokenizer.ids(values["text"]) if inside else self.stretch(values).tokens
            return [{"tokens": np.asarray(ids, dtype=np.int32)}]
        ids = self.prompt(values)
        lost = max(0, len(ids) - (self.size - 1))  # of a prompt that is too long, its end counts
        return [{"tokens": np.array(ids[lost:], dtype=np.int32), "cut": np.array(lost, dtype=np.int32)}]

    def prompt(self, values: Values) -> list[int]:
        if "messages" in values:
            messages, system = list(values["messages"]), self.options.get("system")
            if system and messages[0].get("role") != "system":
                messages = [{"role": "system", "content": system}, *messages]
            return self.tokenizer.encode_chat(messages)
        found = self.tokenizer.encode(values["prompt"])
        return found.ids[: frame(found.special)[1]] or [self.options["start"]]

    def stretch(self, values: Values) -> Stretch:
        """A document, or a piece of one: what stands before a text and what ends it belong to its first and last."""
        text = values["text"]
        found = self.tokenizer.encode(text)
        first, last = frame(found.special)
        begins = values.get("at", 0) == 0
        ends = values.get("at", 0) + len(text) >= values.get("of", 0)
        head = found.ids[:first] if begins else []
        tail = self.options["stop"][:1] if ends else []
        ids = found.ids[first:last]
        # A token adds what stands between the end of the one before it and its own end; the last one takes the rest.
        bounds = np.array([0, *(end for _, end in found.offsets[first:last])], dtype=np.int64)
        if len(bounds) > 1:
            bounds[-1] = len(text)
        bounds = np.maximum.accumulate(bounds)
        sizes = _octets(text)
        pad = (np.zeros(len(head), np.int64), np.zeros(len(tail), np.int64))
        return Stretch(
            np.array([*head, *ids, *tail], dtype=np.int32),
            np.concatenate((pad[0], np.diff(bounds), pad[1])),
            np.concatenate((pad[0], np.diff(sizes[bounds]), pad[1])),
        )

    def loss(self, model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
        hidden, labels = self.foretell(model, batch)
        total = vocabulary_loss(cast(Vocabulary, model.readout), hidden, labels, self.smoothing)
        return total, (labels != IGNORE).sum()

    def foretell(self, model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
        """Hidden states [B, T, D] before each token, and the tokens [B, T]. Padding stands behind and needs no mask."""
        tokens, keep = batch["tokens"], batch["keep"]
        return model.body(tokens[:, :-1]), tokens[:, 1:].masked_fill(~keep[:, 1:], IGNORE)

    def judged(self, model: Model, rows: Iterable[Values]) -> Iterator[tuple[Values, Prediction]]:
        """Every token of the rows is foretold once, in windows as in training: from what its window holds before it."""
        source = self._windows(rows)
        model.eval()
        while block := list(islice(source, max(1, JUDGED // self.size))):
            batch = self.collate([{"tokens": stretch.tokens} for stretch in block])
            with torch.inference_mode():
                hidden, labels = self.foretell(model, batch)
                nats = vocabulary_nats(cast(Vocabulary, model.readout), hidden, labels).sum(1).tolist()
            for stretch, lost in zip(block, nats, strict=True):
                characters, octets = (int(part[1:].sum()) for part in (stretch.characters, stretch.octets))
                counts = {"tokens": len(stretch.tokens) - 1, "characters": characters, "octets": octets}
                yield {}, {"nats": lost, **counts}

    def _windows(self, rows: Iterable[Values]) -> Iterator[Stretch]:
        held: list[NDArray[Any]] = [np.zeros(0, np.int64)] * 3
        for values in rows:
            new = self.stretch(values)
            added: tuple[NDArray[Any], ...] = (new.tokens, new.characters, new.octets)
            held = [np.concatenate(pair) for pair in zip(held, added, strict=True)]
            while len(held[0]) > self.size:
                yield Stretch(*(part[: self.size + 1] for part in held))
                held = [part[self.size :] for part in held]
        if len(held[0]) > 1:
            yield Stretch(*held)

    def read(self, model: Model, batch: Batch) -> list[tuple[list[int], list[Hypothesis]]]:
        """Prompts with what was written behind each. Where the window is full, its second half is read again, and the
        text goes on from there."""
        lengths = batch["keep"].sum(1).tolist()
        prompts = [row[:length].tolist() for row, length in zip(batch["tokens"], lengths, strict=True)]
        wanted = int(self.settings.get("max_length") or NEW)
        rows = [crc32(np.array(prompt, np.int32).tobytes()) for prompt in prompts]
        found = self._decoded(model, prompts, [min(wanted, self.size - length) for length in lengths], rows)
        while self.decoding().nbest == 1:
            open_ = [i for i, several in enumerate(found) if self._goes_on(several[0].tokens, wanted)]
            if not open_:
                break
            wholes = [[*prompts[i], *found[i][0].tokens][-max(1, self.size // 2) :] for i in open_]
            rooms = [min(wanted - len(found[i][0].tokens), self.size - len(wholes[k])) for k, i in enumerate(open_)]
            more = self._decoded(model, wholes, rooms, [rows[i] + len(found[i][0].tokens) for i in open_])
            for i, several in zip(open_, more, strict=True):
                found[i] = [Hypothesis([*found[i][0].tokens, *several[0].tokens], several[0].score)]
        return list(zip(prompts, found, strict=True))

    def _decoded(self, model: Model, prompts: list[list[int]], limits: list[int], rows: list[int]) -> list[Any]:
        """All together; where positions are counted in a table, only prompts of one length: padding would take room."""
        if len({len(prompt) for prompt in prompts}) > 1 and cast(Decoder, model.body).stem.positions is not None:
            found: dict[int, Any] = {}
            for length in {len(prompt) for prompt in prompts}:
                mine = [i for i, prompt in enumerate(prompts) if len(prompt) == length]
                parts = ([column[i] for i in mine] for column in (prompts, limits, rows))
                found.update(zip(mine, self._decoded(model, *parts), strict=True))  # type: ignore[arg-type]
            return [found[i] for i in range(len(prompts))]
        batch = self.collate([{"tokens": np.array(prompt, dtype=np.int32)} for prompt in prompts])
        return decode(
            model,
            batch["tokens"],
            self.decoding(),
            keep=None if bool(batch["keep"].all()) else batch["keep"],
            limit=limits,
            stop=frozenset(self.options["stop"]),
            seed=int(self.settings.get("seed", 0)),
            rows=rows,
        )

    def _goes_on(self, tokens: Sequence[int], wanted: int) -> bool:
        return len(tokens) < wanted and tokens[-1] not in self.options["stop"]

    def answer(self, values: Values, windows: Sequence[Window], said: Sequence[Any]) -> Prediction:
        ((prompt, several),) = said
        texts = [self.text(prompt, one.tokens) for one in several]
        texts = [text.strip() for text in texts] if "messages" in values else texts
        prediction: Prediction = {"text": texts[0], "tokens": len(several[0].tokens)}
        if len(several) > 1:
            prediction["nbest"] = [
                {"text": text, "score": round(one.score, 6)} for text, one in zip(texts, several, strict=True)
            ]
        return prediction

    def text(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """What new tokens add behind the prompt."""
        ended = tokens[:-1] if tokens and tokens[-1] in self.options["stop"] else tokens
        return self.tokenizer.decode([*prompt, *ended]).removeprefix(self.tokenizer.decode(prompt))

    def stream(self, model: Model, values: Values, seed: int = 0) -> Iterator[str]:
        """What is written, in pieces, each as soon as it is there."""
        prompt = self.encode(values)[0]["tokens"].tolist()
        wanted, stop = int(self.settings.get("max_length") or NEW), frozenset(self.options["stop"])
        done: list[int] = []
        text = shown = ""
        while not done or self._goes_on(done, wanted):
            whole = [*prompt, *done] if not done else [*prompt, *done][-max(1, self.size // 2) :]
            room = min(wanted - len(done), self.size - len(whole))
            tokens = torch.tensor([whole])
            for token in stream(model, tokens, self.decoding(), limit=room, stop=stop, seed=seed, row=len(done)):
                done.append(token)
                text = self.text(prompt, done)
                if len(text) > len(shown) and not text.endswith("\ufffd"):  # a character that is not whole yet
                    yield text[len(shown) :]
                    shown = text
        if len(text) > len(shown):
            yield text[len(shown) :]

    @property
    def settings(self) -> dict[str, Any]:
        """The [decode] section of the run file, or what the model's own files say; small chat models must be sure."""
        warm = 0.8 if self.tokenizer.template is None else 0.2
        found: dict[str, Any] = self.options.get("decode") or {"sample": True, "temperature": warm, "top_p": 0.9}
        return found

    def decoding(self) -> Decoding:
        known = {field.name for field in fields(Decoding)}
        return Decoding(**{name: value for name, value in self.settings.items() if name in known})

    def scorer(self, replicates: int = 1000) -> Scorer:
        return TextScorer(replicates)


class TextScorer(Scorer):
    """How well texts were foretold; a sample is a window."""

    main = "loss"

    def __init__(self, replicates: int) -> None:
        self.texts = Likelihood(replicates)

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        counts = (prediction.get("characters", 0), prediction.get("octets", 0))
        self.texts.add([prediction["nats"]], [prediction["tokens"]], [counts[0]], [counts[1]], index=[index])
        return True

    def result(self) -> dict[str, Score]:
        return self.texts.result()


def _octets(text: str) -> NDArray[np.int64]:
    """[characters + 1] how many bytes of UTF-8 stand before each."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    sizes = 1 + (codes > 0x7F) + (codes > 0x7FF) + (codes > 0xFFFF)
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
