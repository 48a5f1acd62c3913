"""generate: a language model: it goes on with a text, or answers in a conversation.

It is trained on running text: all documents one after the other, each with what the tokenizer puts around a text and
an end token, cut into windows of the model's length without padding. As in GPT-2, a window may hold the end of one
document and the beginning of the next. Or on conversations, each an example of its own, cut where the model ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multihead.data.batching import plan_batches
from multihead.generation import GenerationConfig, Hypothesis, decode, stream
from multihead.kernels.chunked_cross_entropy import vocabulary_loss, vocabulary_nats
from multihead.metrics import PerplexityMetric, Score
from multihead.models import Decoder, LMReadout, TaskModel
from multihead.tasks.chat import encode_conversation, message_of
from multihead.tasks.scored_text import ScoredText, score_text
from multihead.tasks.spec import SPECS
from multihead.tasks.task import (
    IGNORE,
    Batch,
    Prediction,
    ReadoutKind,
    Scorer,
    Task,
    Values,
    Window,
    check_filled,
    content_span,
)

if TYPE_CHECKING:
    from multihead.tasks.sections import GenerateSection, TaskSection

NEW = 256  # tokens that are written, where nobody says how many
JUDGED = 4096  # tokens per batch
TOGETHER = 256  # conversations, of which those of similar length share a batch


class Generate(Task):
    """options: start, stop: the token before an empty prompt, and those that end a text; decode: how it is written;
    system: what a conversation begins with; chat: it was trained on conversations; turns: whose were learnt."""

    spec = SPECS["generate"]
    readout = ReadoutKind("ForCausalLM", "vocabulary", other="LMHeadModel")

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.running = not self.options.get("chat")

    @classmethod
    def options_of_files(cls, section: TaskSection, formats: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """chat: the files hold conversations; all of them do, or none."""
        kinds = {format == "chat": file for file, format in formats}
        if len(kinds) > 1:
            raise ValueError(f"{kinds[True]} holds conversations, {kinds[False]} texts; make a task of each: [[tasks]]")
        section = cast("GenerateSection", section)
        if section.turns != "assistant" and True not in kinds:
            raise ValueError("generate.turns is about conversations, and the data are texts; leave it out")
        return {"chat": True} if True in kinds else {}

    @classmethod
    def collect_labels(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        return []

    def validate(self, given: Any, where: str) -> Values:
        """A text: what a person says, to a model that knows conversations; else a beginning to go on with."""
        if isinstance(given, str):
            check_filled({"prompt": given}, where)
            chats = self.tokenizer.template is not None
            return {"messages": [{"role": "user", "content": given}]} if chats else {"prompt": given}
        if isinstance(given, dict) and isinstance(given.get("messages"), list) and given["messages"]:
            numbered = enumerate(given["messages"], 1)
            return {**given, "messages": [message_of(one, f"{where}: message {number}") for number, one in numbered]}
        if isinstance(given, dict) and isinstance(given.get("prompt"), str):
            said = self.validate(given["prompt"], where)
            return said if self.options.get("chat") else given
        raise ValueError(f"{where}: generate takes a text, {{prompt: …}} or {{messages: [{{role, content}}, …]}}")

    def map_columns(self, given: Any) -> Any:
        """Of a whole conversation, what the last answer answered; a row of training data is a text to go on with."""
        row, given = given, super().map_columns(given)
        if isinstance(row, Mapping) and "conversation" in row:  # as files of conversations are read
            given = {"messages": row["conversation"]}
        elif isinstance(row, Mapping) and not given.keys() & {"prompt", "messages"}:
            learnt = self.options.get("columns", {}).get("text", "text")
            if (text := row.get(learnt, row.get("text"))) is not None:
                return {**given, "prompt": text}
        if isinstance(given, Mapping) and isinstance(given.get("messages"), list):
            said = given["messages"]
            while said and isinstance(said[-1], Mapping) and said[-1].get("role") == "assistant":
                said = said[:-1]
            return {**given, "messages": said or given["messages"]}
        return given

    def encode(self, values: Values) -> list[Window]:
        if "text" in values:
            inside = values.get("at", 0) > 0 and values["at"] + len(values["text"]) < values["of"]
            ids = self.tokenizer.ids(values["text"]) if inside else self.scored_text(values).tokens
            return [{"tokens": np.asarray(ids, dtype=np.int32)}]
        if "conversation" in values:
            return [self.encode_conversation(values)]
        ids = self.prompt(values)
        lost = max(0, len(ids) - (self.size - 1))  # of a prompt that is too long, its end counts
        return [{"tokens": np.array(ids[lost:], dtype=np.int32), "cut": np.array(lost, dtype=np.int32)}]

    def prompt(self, values: Values) -> list[int]:
        if "messages" in values:
            return self.tokenizer.encode_chat(self.with_system_prompt(values["messages"]))
        found = self.tokenizer.encode(values["prompt"])
        return found.ids[: content_span(found.special)[1]] or [self.options["start"]]

    def with_system_prompt(self, messages: Sequence[Any]) -> list[Any]:
        """The messages behind what the model is told before every conversation."""
        system = self.options.get("system")
        first = [{"role": "system", "content": system}] if system and messages[0].get("role") != "system" else []
        return [*first, *messages]

    def encode_conversation(self, values: Values) -> Window:
        """A whole conversation, with what of it is learnt."""
        messages = self.with_system_prompt(values.get("conversation") or values["messages"])
        try:
            everyone = self.options.get("turns") == "all"
            return encode_conversation(self.tokenizer, messages, self.options["stop"], everyone, self.size)
        except ValueError as error:
            place = f"{values['file']}:{values['line']}: " if "file" in values else ""
            raise ValueError(f"{place}{error}") from None

    def skip_reason(self, windows: Sequence[Window]) -> str:
        empty = "counted" in windows[0] and not windows[0]["counted"][1:].any()
        return f"no answer begins within the model's {self.size} tokens" if empty else ""

    def scored_text(self, values: Values) -> ScoredText:
        return score_text(self.tokenizer, values, self.options["stop"][:1])

    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        hidden, labels = self.next_token_states(model, batch)
        total = vocabulary_loss(cast(LMReadout, model.readout), hidden, labels, self.smoothing)
        return total, (labels != IGNORE).sum()

    def next_token_states(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        """Hidden states [B, T, D] before each token, and the tokens [B, T]. Padding stands behind and needs no mask."""
        tokens, keep = batch["tokens"], batch["keep"]
        learnt = keep & batch["counted"].bool() if "counted" in batch else keep
        return model.body(tokens[:, :-1]), tokens[:, 1:].masked_fill(~learnt[:, 1:], IGNORE)

    def score_rows(self, model: TaskModel, rows: Iterable[Values]) -> Iterator[tuple[Values, Prediction]]:
        """Every token of the rows is foretold once, in windows as in training: from what its window holds before it. Of
        conversations, those that are learnt."""
        model.eval()
        ahead = iter(rows)
        first = list(islice(ahead, 1))
        if first and "text" not in first[0]:
            yield from self._score_answers(model, chain(first, ahead))
            return
        source = self._windows(chain(first, ahead))
        while block := list(islice(source, max(1, JUDGED // self.size))):
            batch = self.collate([{"tokens": stretch.tokens} for stretch in block])
            with torch.inference_mode():
                hidden, labels = self.next_token_states(model, batch)
                nats = vocabulary_nats(cast(LMReadout, model.readout), hidden, labels).sum(1).tolist()
            for stretch, lost in zip(block, nats, strict=True):
                characters, octets = (int(part[1:].sum()) for part in (stretch.characters, stretch.octets))
                counts = {"tokens": len(stretch.tokens) - 1, "characters": characters, "octets": octets}
                yield {}, {"nats": lost, **counts}

    def _score_answers(self, model: TaskModel, rows: Iterable[Values]) -> Iterator[tuple[Values, Prediction]]:
        source = ((values, self.encode_conversation(values)) for values in rows)
        while block := list(islice(source, TOGETHER)):
            sizes = np.array([len(window["tokens"]) for _, window in block])
            found: dict[int, Prediction] = {}
            for numbers in plan_batches(sizes, max(JUDGED, int(sizes.max())), 0, 0):
                with torch.inference_mode():
                    hidden, labels = self.next_token_states(model, self.collate([block[i][1] for i in numbers]))
                    nats = vocabulary_nats(cast(LMReadout, model.readout), hidden, labels).sum(1).tolist()
                counts = (labels != IGNORE).sum(1).tolist()
                for i, lost, count in zip(numbers.tolist(), nats, counts, strict=True):
                    found[i] = {"nats": lost, "tokens": count}
            for i, (values, window) in enumerate(block):
                input_info = {"windows": 1, "truncated": int(window["cut"]), "unknown": 0}
                yield values, {**found[i], **({"input_info": input_info} if input_info["truncated"] else {})}

    def _windows(self, rows: Iterable[Values]) -> Iterator[ScoredText]:
        held: list[NDArray[Any]] = [np.zeros(0, np.int64)] * 3
        for values in rows:
            new = self.scored_text(values)
            added: tuple[NDArray[Any], ...] = (new.tokens, new.characters, new.octets)
            held = [np.concatenate(pair) for pair in zip(held, added, strict=True)]
            while len(held[0]) > self.size:
                yield ScoredText(*(part[: self.size + 1] for part in held))
                held = [part[self.size :] for part in held]
        if len(held[0]) > 1:
            yield ScoredText(*held)

    def forward(self, model: TaskModel, batch: Batch) -> list[tuple[list[int], list[Hypothesis]]]:
        """Prompts with what was written behind each. Where the window is full, its second half is read again, and the
        text goes on from there."""
        lengths = batch["keep"].sum(1).tolist()
        prompts = [row[:length].tolist() for row, length in zip(batch["tokens"], lengths, strict=True)]
        wanted = [self.max_new_tokens(length) for length in lengths]
        rows = [crc32(np.array(prompt, np.int32).tobytes()) for prompt in prompts]
        found = self._decode(
            model, prompts, [min(most, self.size - n) for most, n in zip(wanted, lengths, strict=True)], rows
        )
        open_ = list(range(len(prompts))) if self.generation_config().nbest == 1 else []
        while open_ := [i for i in open_ if self._continues(found[i][0].tokens, wanted[i])]:
            wholes = [[*prompts[i], *found[i][0].tokens][-max(1, self.size // 2) :] for i in open_]
            rooms = [min(wanted[i] - len(found[i][0].tokens), self.size - len(wholes[k])) for k, i in enumerate(open_)]
            written = min(len(found[i][0].tokens) for i in open_)
            more = self._decode(model, wholes, rooms, [rows[i] + len(found[i][0].tokens) for i in open_], written)
            for i, several in zip(open_, more, strict=True):
                found[i] = [Hypothesis([*found[i][0].tokens, *several[0].tokens], several[0].score)]
            open_ = [i for i, several in zip(open_, more, strict=True) if several[0].tokens]  # others may not go on
        return list(zip(prompts, found, strict=True))

    def _decode(
        self, model: TaskModel, prompts: list[list[int]], limits: list[int], rows: list[int], written: int = 0
    ) -> list[Any]:
        """All together; where positions are counted in a table, only prompts of one length: padding would take room.
        written: tokens of each text that were there before, and count for its shortest length."""
        if len({len(prompt) for prompt in prompts}) > 1 and cast(Decoder, model.body).stem.positions is not None:
            found: dict[int, Any] = {}
            for length in {len(prompt) for prompt in prompts}:
                mine = [i for i, prompt in enumerate(prompts) if len(prompt) == length]
                some, most, numbers = ([column[i] for i in mine] for column in (prompts, limits, rows))
                found.update(zip(mine, self._decode(model, some, most, numbers, written), strict=True))  # type: ignore[arg-type]
            return [found[i] for i in range(len(prompts))]
        batch = self.collate([{"tokens": np.array(prompt, dtype=np.int32)} for prompt in prompts])
        return decode(
            model,
            batch["tokens"],
            self._config_after(model, written),
            keep=None if bool(batch["keep"].all()) else batch["keep"],
            limit=limits,
            stop=frozenset(self.options["stop"]),
            seed=int(self.settings.get("seed", 0)),
            rows=rows,
        )

    def _config_after(self, model: TaskModel, written: int) -> GenerationConfig:
        how = self.generation_config().restrict_to_vocabulary(
            len(self.tokenizer), cast(LMReadout, model.readout).weight.shape[0]
        )
        return replace(how, min_length=max(0, how.min_length - written))

    def _continues(self, tokens: Sequence[int], wanted: int) -> bool:
        return len(tokens) < wanted and not (tokens and tokens[-1] in self.options["stop"])

    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[Any]) -> Prediction:
        ((prompt, several),) = outputs
        texts = [self.text(prompt, one.tokens) for one in several]
        texts = [text.strip() for text in texts] if "messages" in values else texts
        ends = [self.finish_reason(one, len(prompt)) for one in several]
        prediction: Prediction = {"text": texts[0], "tokens": len(several[0].tokens), "ended": ends[0]}
        if len(several) > 1:
            prediction["nbest"] = [
                {"text": text, "score": round(one.score, 6), "ended": end}
                for text, one, end in zip(texts, several, ends, strict=True)
            ]
        return prediction

    def finish_reason(self, written: Hypothesis, prompt: int) -> str:
        """What ended a text behind a prompt of so many tokens: a stop token, the length that was asked for, rules
        (nothing may follow), or, of n-best, the model's window."""
        if written.tokens and written.tokens[-1] in self.options["stop"]:
            return "stop"
        if len(written.tokens) >= self.max_new_tokens(prompt):
            return "length"
        return "rules" if self.generation_config().nbest == 1 else "window"

    def text(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """What new tokens add behind the prompt."""
        ended = tokens[:-1] if tokens and tokens[-1] in self.options["stop"] else tokens
        return self.tokenizer.decode([*prompt, *ended]).removeprefix(self.tokenizer.decode(prompt))

    def stream(self, model: TaskModel, values: Values, turn: int = 0) -> Iterator[str]:
        """What is written, in pieces, each as soon as it is there. turn: other draws for the same prompt."""
        seed = int(self.settings.get("seed", 0)) + turn
        prompt = self.encode(values)[0]["tokens"].tolist()
        wanted, stop = self.max_new_tokens(len(prompt)), frozenset(self.options["stop"])
        done: list[int] = []
        text = shown = ""
        before = -1  # tokens that were there when the window was read; a text that may not go on ends
        while len(done) > before and self._continues(done, wanted):
            before = len(done)
            whole = [*prompt, *done] if not done else [*prompt, *done][-max(1, self.size // 2) :]
            room = min(wanted - len(done), self.size - len(whole))
            tokens = torch.tensor([whole]).to(self.device)
            how = self._config_after(model, len(done))
            for token in stream(model, tokens, how, limit=room, stop=stop, seed=seed, row=len(done)):
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
        found: dict[str, Any] = self.options.get("decode") or {}
        chosen = found.keys() - {"with_prompt"}  # which only says how much
        return found if chosen else {"sample": True, "temperature": warm, "top_p": 0.9, **found}

    def max_new_tokens(self, prompt: int) -> int:
        """New tokens at most behind a prompt of so many. A model's own file may count both together; what such a file
        says of a prompt that leaves no room, or was cut, is of no use."""
        told, room = self.settings.get("max_length"), self.settings.get("with_prompt", 0) - prompt
        return int(told or (room if room > 0 and prompt < self.size - 1 else NEW))

    def generation_config(self) -> GenerationConfig:
        known = {field.name for field in fields(GenerationConfig)}
        return GenerationConfig(**{name: value for name, value in self.settings.items() if name in known})

    def scorer(self, replicates: int = 1000) -> Scorer:
        return PerplexityScorer(replicates)


class PerplexityScorer(Scorer):
    """How well texts were foretold; a sample is a window."""

    main = "loss"

    def __init__(self, replicates: int) -> None:
        self.texts = PerplexityMetric(replicates)

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        counts = (prediction.get("characters", 0), prediction.get("octets", 0))
        self.texts.add([prediction["nats"]], [prediction["tokens"]], [counts[0]], [counts[1]], index=[index])
        return True

    def result(self) -> dict[str, Score]:
        return self.texts.result()
