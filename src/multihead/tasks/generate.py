"""generate: causal language modeling: continue a text, or answer in a conversation.

The model is trained on running text: documents are concatenated, each with the tokenizer's special tokens and an end
token, and cut into windows of the model's length without padding. As in GPT-2, a window may hold the end of one
document and the beginning of the next. Conversations are separate examples instead, truncated at the model's length.
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

NEW = 256  # default number of new tokens
EVAL_TOKENS = 4096  # tokens per evaluation batch
SORTED_CHATS = 256  # conversations sorted by length before batching


class Generate(Task):
    """Causal language model.

    options: start, stop: the token before an empty prompt, and the tokens that end a text; decode: generation settings;
    system: the system prompt; chat: trained on conversations; turns: whose turns have a loss.
    """

    spec = SPECS["generate"]
    readout = ReadoutKind("ForCausalLM", "vocabulary", other="LMHeadModel")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.running = not self.options.get("chat")

    @classmethod
    def options_of_files(cls, section: TaskSection, formats: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """Return chat: whether the files hold conversations. All of them must, or none."""
        kinds = {format == "chat": file for file, format in formats}
        if len(kinds) > 1:
            raise ValueError(
                f"{kinds[True]} holds conversations, {kinds[False]} texts; make each a task of its own: [[tasks]]"
            )
        section = cast("GenerateSection", section)
        if section.turns != "assistant" and True not in kinds:
            raise ValueError("generate.turns needs conversations, but the dataset has plain texts; remove it")
        return {"chat": True} if True in kinds else {}

    @classmethod
    def collect_labels(cls, rows: Iterable[Values], **options: Any) -> list[str]:
        return []

    def validate(self, raw_input: Any, where: str) -> Values:
        """Return the prompt columns. For a chat model, a plain text is a user message; otherwise it is a prefix to
        continue."""
        if isinstance(raw_input, str):
            check_filled({"prompt": raw_input}, where)
            chats = self.tokenizer.template is not None
            return {"messages": [{"role": "user", "content": raw_input}]} if chats else {"prompt": raw_input}
        if isinstance(raw_input, dict) and isinstance(raw_input.get("messages"), list) and raw_input["messages"]:
            numbered = enumerate(raw_input["messages"], 1)
            return {
                **raw_input,
                "messages": [message_of(message, f"{where}: message {number}") for number, message in numbered],
            }
        if isinstance(raw_input, dict) and isinstance(raw_input.get("prompt"), str):
            mapped = self.validate(raw_input["prompt"], where)
            return mapped if self.options.get("chat") else raw_input
        raise ValueError(f"{where}: generate expects a text, {{prompt: …}} or {{messages: [{{role, content}}, …]}}")

    def map_columns(self, raw_input: Any) -> Any:
        """Map columns. Drop the final answers of a conversation; the text of a training example becomes the prompt."""
        row, raw_input = raw_input, super().map_columns(raw_input)
        if isinstance(row, Mapping) and "conversation" in row:  # the format of conversation files
            raw_input = {"messages": row["conversation"]}
        elif isinstance(row, Mapping) and not raw_input.keys() & {"prompt", "messages"}:
            column = self.options.get("columns", {}).get("text", "text")
            if (text := row.get(column, row.get("text"))) is not None:
                return {**raw_input, "prompt": text}
        if isinstance(raw_input, Mapping) and isinstance(raw_input.get("messages"), list):
            messages = raw_input["messages"]
            while messages and isinstance(messages[-1], Mapping) and messages[-1].get("role") == "assistant":
                messages = messages[:-1]
            return {**raw_input, "messages": messages or raw_input["messages"]}
        return raw_input

    def encode(self, values: Values) -> list[Window]:
        if "text" in values:
            inside = values.get("at", 0) > 0 and values["at"] + len(values["text"]) < values["of"]
            ids = self.tokenizer.ids(values["text"]) if inside else self.scored_text(values).tokens
            return [{"tokens": np.asarray(ids, dtype=np.int32)}]
        if "conversation" in values:
            return [self.encode_conversation(values)]
        ids = self.prompt(values)
        lost = max(0, len(ids) - (self.size - 1))  # a prompt that is too long is truncated on the left
        return [{"tokens": np.array(ids[lost:], dtype=np.int32), "cut": np.array(lost, dtype=np.int32)}]

    def prompt(self, values: Values) -> list[int]:
        if "messages" in values:
            return self.tokenizer.encode_chat(self.with_system_prompt(values["messages"]))
        encoding = self.tokenizer.encode(values["prompt"])
        return encoding.ids[: content_span(encoding.special)[1]] or [self.options["start"]]

    def with_system_prompt(self, messages: Sequence[Any]) -> list[Any]:
        """Return the messages with the system prompt in front."""
        system = self.options.get("system")
        first = [{"role": "system", "content": system}] if system and messages[0].get("role") != "system" else []
        return [*first, *messages]

    def encode_conversation(self, values: Values) -> Window:
        """Encode a full conversation and which of its tokens have a loss."""
        messages = self.with_system_prompt(values.get("conversation") or values["messages"])
        try:
            all_turns = self.options.get("turns") == "all"
            return encode_conversation(self.tokenizer, messages, self.options["stop"], all_turns, self.size)
        except ValueError as error:
            place = f"{values['file']}:{values['line']}: " if "file" in values else ""
            raise ValueError(f"{place}{error}") from None

    def skip_reason(self, windows: Sequence[Window]) -> str:
        empty = "counted" in windows[0] and not windows[0]["counted"][1:].any()
        return f"no answer starts within the model's {self.size} tokens" if empty else ""

    def scored_text(self, values: Values) -> ScoredText:
        return score_text(self.tokenizer, values, self.options["stop"][:1])

    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        hidden, labels = self.next_token_states(model, batch)
        total = vocabulary_loss(cast(LMReadout, model.readout), hidden, labels, self.smoothing)
        return total, (labels != IGNORE).sum()

    def next_token_states(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return hidden states [B, T, D] before each token, and the tokens [B, T]. Padding is on the right and needs no
        mask."""
        tokens, keep = batch["tokens"], batch["keep"]
        has_loss = keep & batch["counted"].bool() if "counted" in batch else keep
        return model.body(tokens[:, :-1]), tokens[:, 1:].masked_fill(~has_loss[:, 1:], IGNORE)

    def score_rows(self, model: TaskModel, rows: Iterable[Values]) -> Iterator[tuple[Values, Prediction]]:
        """Score every token once by next-token prediction, in windows as in training, each conditioned on its window's
        prefix. In conversations, only tokens that have a loss are scored."""
        model.eval()
        ahead = iter(rows)
        first = list(islice(ahead, 1))
        if first and "text" not in first[0]:
            yield from self._score_answers(model, chain(first, ahead))
            return
        source = self._windows(chain(first, ahead))
        while block := list(islice(source, max(1, EVAL_TOKENS // self.size))):
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
        while block := list(islice(source, SORTED_CHATS)):
            sizes = np.array([len(window["tokens"]) for _, window in block])
            predictions: dict[int, Prediction] = {}
            for numbers in plan_batches(sizes, max(EVAL_TOKENS, int(sizes.max())), 0, 0):
                with torch.inference_mode():
                    hidden, labels = self.next_token_states(model, self.collate([block[i][1] for i in numbers]))
                    nats = vocabulary_nats(cast(LMReadout, model.readout), hidden, labels).sum(1).tolist()
                counts = (labels != IGNORE).sum(1).tolist()
                for i, lost, count in zip(numbers.tolist(), nats, counts, strict=True):
                    predictions[i] = {"nats": lost, "tokens": count}
            for i, (values, window) in enumerate(block):
                input_info = {"windows": 1, "truncated": int(window["cut"]), "unknown": 0}
                yield values, {**predictions[i], **({"input_info": input_info} if input_info["truncated"] else {})}

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
        """Return prompts with their generated hypotheses. When the window is full, its second half becomes the new
        prefix and decoding continues."""
        lengths = batch["keep"].sum(1).tolist()
        prompts = [row[:length].tolist() for row, length in zip(batch["tokens"], lengths, strict=True)]
        limits = [self.max_new_tokens(length) for length in lengths]
        rows = [crc32(np.array(prompt, np.int32).tobytes()) for prompt in prompts]
        hypotheses = self._decode(
            model, prompts, [min(most, self.size - n) for most, n in zip(limits, lengths, strict=True)], rows
        )
        open_ = list(range(len(prompts))) if self.generation_config().nbest == 1 else []
        while open_ := [i for i in open_ if self._continues(hypotheses[i][0].tokens, limits[i])]:
            prefixes = [[*prompts[i], *hypotheses[i][0].tokens][-max(1, self.size // 2) :] for i in open_]
            rooms = [
                min(limits[i] - len(hypotheses[i][0].tokens), self.size - len(prefixes[k])) for k, i in enumerate(open_)
            ]
            written = min(len(hypotheses[i][0].tokens) for i in open_)
            more = self._decode(
                model, prefixes, rooms, [rows[i] + len(hypotheses[i][0].tokens) for i in open_], written
            )
            for i, several in zip(open_, more, strict=True):
                hypotheses[i] = [Hypothesis([*hypotheses[i][0].tokens, *several[0].tokens], several[0].score)]
            open_ = [
                i for i, several in zip(open_, more, strict=True) if several[0].tokens
            ]  # drop those that may not continue
        return list(zip(prompts, hypotheses, strict=True))

    def _decode(
        self, model: TaskModel, prompts: list[list[int]], limits: list[int], rows: list[int], written: int = 0
    ) -> list[Any]:
        """Decode one batch; with learned absolute positions, only prompts of equal length share one, since padding
        would use positions. written: tokens generated in earlier windows, which count toward the minimum length."""
        if len({len(prompt) for prompt in prompts}) > 1 and cast(Decoder, model.body).stem.positions is not None:
            outputs: dict[int, Any] = {}
            for length in {len(prompt) for prompt in prompts}:
                group = [i for i, prompt in enumerate(prompts) if len(prompt) == length]
                some, most, numbers = ([column[i] for i in group] for column in (prompts, limits, rows))
                outputs.update(zip(group, self._decode(model, some, most, numbers, written), strict=True))  # type: ignore[arg-type]
            return [outputs[i] for i in range(len(prompts))]
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

    def _continues(self, tokens: Sequence[int], limit: int) -> bool:
        return len(tokens) < limit and not (tokens and tokens[-1] in self.options["stop"])

    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[Any]) -> Prediction:
        ((prompt, several),) = outputs
        texts = [self.text(prompt, hypothesis.tokens) for hypothesis in several]
        texts = [text.strip() for text in texts] if "messages" in values else texts
        ends = [self.finish_reason(hypothesis, len(prompt)) for hypothesis in several]
        prediction: Prediction = {"text": texts[0], "tokens": len(several[0].tokens), "ended": ends[0]}
        if len(several) > 1:
            prediction["nbest"] = [
                {"text": text, "score": round(hypothesis.score, 6), "ended": end}
                for text, hypothesis, end in zip(texts, several, ends, strict=True)
            ]
        return prediction

    def finish_reason(self, written: Hypothesis, prompt: int) -> str:
        """Return what ended a text: a stop token, the requested length, constraints (no token allowed), or, for n-best,
        the model's window. prompt: the prompt's length in tokens."""
        if written.tokens and written.tokens[-1] in self.options["stop"]:
            return "stop"
        if len(written.tokens) >= self.max_new_tokens(prompt):
            return "length"
        return "rules" if self.generation_config().nbest == 1 else "window"

    def text(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """Decode the new tokens to the text that they add to the prompt."""
        ended = tokens[:-1] if tokens and tokens[-1] in self.options["stop"] else tokens
        return self.tokenizer.decode([*prompt, *ended]).removeprefix(self.tokenizer.decode(prompt))

    def stream(self, model: TaskModel, values: Values, turn: int = 0) -> Iterator[str]:
        """Yield the generated text in parts, as soon as each is complete. turn: vary the samples for the same
        prompt."""
        seed = int(self.settings.get("seed", 0)) + turn
        prompt = self.encode(values)[0]["tokens"].tolist()
        limit, stop = self.max_new_tokens(len(prompt)), frozenset(self.options["stop"])
        generated: list[int] = []
        text = shown = ""
        before = -1  # tokens generated before this window; a text that may not continue ends
        while len(generated) > before and self._continues(generated, limit):
            before = len(generated)
            window = [*prompt, *generated] if not generated else [*prompt, *generated][-max(1, self.size // 2) :]
            room = min(limit - len(generated), self.size - len(window))
            tokens = torch.tensor([window]).to(self.device)
            how = self._config_after(model, len(generated))
            for token in stream(model, tokens, how, limit=room, stop=stop, seed=seed, row=len(generated)):
                generated.append(token)
                text = self.text(prompt, generated)
                if len(text) > len(shown) and not text.endswith("\ufffd"):  # an incomplete UTF-8 character
                    yield text[len(shown) :]
                    shown = text
        if len(text) > len(shown):
            yield text[len(shown) :]

    @property
    def settings(self) -> dict[str, Any]:
        """The [decode] section of the run file, or the checkpoint's generation_config.json; small chat models sample
        cautiously."""
        warm = 0.8 if self.tokenizer.template is None else 0.2
        decode: dict[str, Any] = self.options.get("decode") or {}
        chosen = decode.keys() - {"with_prompt"}  # which only limits the length
        return decode if chosen else {"sample": True, "temperature": warm, "top_p": 0.9, **decode}

    def max_new_tokens(self, prompt: int) -> int:
        """Return the maximum number of new tokens after a prompt of `prompt` tokens. A checkpoint's own limit may
        include the prompt; that limit is ignored if the prompt leaves no room or was truncated."""
        max_length, room = self.settings.get("max_length"), self.settings.get("with_prompt", 0) - prompt
        return int(max_length or (room if room > 0 and prompt < self.size - 1 else NEW))

    def generation_config(self) -> GenerationConfig:
        known = {field.name for field in fields(GenerationConfig)}
        return GenerationConfig(**{name: value for name, value in self.settings.items() if name in known})

    def scorer(self, replicates: int = 1000) -> Scorer:
        return PerplexityScorer(replicates)


class PerplexityScorer(Scorer):
    """Perplexity of next-token prediction; the sampling unit is a window."""

    main = "loss"

    def __init__(self, replicates: int) -> None:
        self.texts = PerplexityMetric(replicates)

    def add(self, values: Values, prediction: Prediction, index: int) -> bool:
        counts = (prediction.get("characters", 0), prediction.get("octets", 0))
        self.texts.add([prediction["nats"]], [prediction["tokens"]], [counts[0]], [counts[1]], index=[index])
        return True

    def result(self) -> dict[str, Score]:
        return self.texts.result()
