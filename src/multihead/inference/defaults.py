"""Defaults for models that were not trained for a task here: their natural task, and generation settings from their
files."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from multihead.generation.config import RANGES, check_settings
from multihead.io.type_checks import Range, check_value
from multihead.models import Decoder, Encoder, EncoderDecoder, LMReadout, TaskModel, TokenEmbedding
from multihead.tasks.spec import SPECS
from multihead.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

Json = dict[str, Any]
Body = Encoder | Decoder | EncoderDecoder
BODIES: dict[str, type] = {"encoder": Encoder, "decoder": Decoder, "encoder_decoder": EncoderDecoder}
OWN_SETTINGS = ("early", "forbidden", "end", "with_prompt")  # internal settings, not available in run files
DECODING = {  # from generation_config.json
    "do_sample": "sample", "num_beams": "beam", "temperature": "temperature", "top_k": "top_k", "top_p": "top_p",
    "min_p": "min_p", "repetition_penalty": "repetition_penalty", "no_repeat_ngram_size": "no_repeat_ngram",
    "length_penalty": "length_penalty", "max_new_tokens": "max_length", "min_new_tokens": "min_length",
}  # fmt: skip
UNKNOWN = (  # fields that would change the output and are not supported
    "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "num_beam_groups", "diversity_penalty",
    "penalty_alpha", "typical_p", "epsilon_cutoff", "eta_cutoff", "sequence_bias", "begin_suppress_tokens",
    "force_words_ids", "exponential_decay_length_penalty", "guidance_scale", "num_return_sequences",
)  # fmt: skip
NOTHING: tuple[Any, ...] = (None, False, 0, 1, [], {})  # values without effect
COUNT = 2**31 - 1
ENDLESS = 4096  # upper bound of a file's max_length, whatever the model's positions
# Types of the other fields that are read from generation_config.json or config.json.
TYPES: dict[str, tuple[Any, Range | None]] = {
    "bos_token_id": (int | list[int] | None, None),
    "eos_token_id": (int | list[int] | None, None),
    "decoder_start_token_id": (int | list[int] | None, None),
    "forced_bos_token_id": (int | None, None),
    "forced_eos_token_id": (int | list[int] | None, None),
    "suppress_tokens": (list[int] | None, None),
    "bad_words_ids": (list[list[int]] | None, None),
    "num_beams": (int | None, RANGES["beam"]),
    "max_length": (int | None, (1, COUNT)),
    "min_length": (int | None, (0, COUNT)),
    "max_new_tokens": (int | None, (1, COUNT)),
    "min_new_tokens": (int | None, (0, COUNT)),
}
UNCHOSEN = 20  # transformers' old default max_length, not a choice


def default_task(model: TaskModel) -> str | None:
    """Return the default task of a model that scores tokens."""
    if not isinstance(model.readout, LMReadout):
        return None
    return next(name for name, spec in SPECS.items() if spec.default_for_body and type(model.body) is BODIES[spec.body])


def max_input_length(body: Body) -> int:
    """Return the maximum input length in tokens; for an encoder-decoder, of the shorter side."""
    if isinstance(body, EncoderDecoder):
        return min(max_input_length(body.encoder), max_input_length(body.decoder))
    return body.config.max_length


def default_options(body: Body, writes: Tokenizer, generation: Json, file: str = "") -> Json:
    """Return options of the default task; generation: generation_config.json, or the same fields of config.json, at
    `file`."""
    if isinstance(body, Encoder):
        return {}
    return {**text_borders(body, writes, generation, file), "decode": generation_options(body, generation, file)}


def check_generation(generation: Json, where: str) -> None:
    """Check the types of the generation fields; `where` is the prefix of error messages."""
    for name, (kind, limits) in TYPES.items():
        check_value(f"{where}{name}", generation.get(name), kind, limits)


def check_borders(body: Body, options: Mapping[str, Any], where: str, names: Mapping[str, str] | None = None) -> None:
    """Check that the start and stop tokens are in this model's vocabulary.

    names: the file's names of these options, where they differ.
    """
    vocab = vocabulary_size(body)
    for name, kind in (("start", int), ("stop", list[int]), ("first", list[int])):
        if name in options:
            check_value(f"{where}{(names or {}).get(name, name)}", options[name], kind, (0, vocab - 1))


def vocabulary_size(body: Body, source: bool = False) -> int:
    """Return the vocabulary size of the output, or of the source."""
    side = (body.encoder if source else body.decoder) if isinstance(body, EncoderDecoder) else body
    return side.stem.embedding.num_embeddings if isinstance(side.stem, TokenEmbedding) else side.config.vocab


def text_borders(body: Body, writes: Tokenizer, generation: Json, file: str = "") -> Json:
    """Return the start token, stop tokens and forced first tokens of generated text."""
    where = f"{file}: " if file else ""
    check_generation(generation, where)
    special = writes.special
    stop = generation.get("eos_token_id", special.get("eos", special.get("sep")))
    names = ["decoder_start_token_id"] * isinstance(body, EncoderDecoder) + ["bos_token_id"]
    first = {name: generation.get(name) for name in names}
    first |= {
        "its tokenizer's bos": special.get("bos"),
        "its tokenizer's cls": special.get("cls"),
        "eos_token_id": stop,
    }
    called, start = next(((name, number) for name, number in first.items() if number not in (None, [])), ("", None))
    if stop in (None, []) or start is None:
        raise ValueError(f"{where}this model has no end token; set eos_token_id in its config.json")
    forced = generation.get("forced_bos_token_id")
    borders = {
        "start": start[0] if isinstance(start, list) else start,
        "stop": list(stop) if isinstance(stop, list) else [stop],
        "first": [] if forced is None else [forced],
    }
    stop_name = "eos_token_id" if "eos_token_id" in generation else "its tokenizer's eos"
    check_borders(body, borders, where, {"start": called, "stop": stop_name, "first": "forced_bos_token_id"})
    return borders


def generation_options(body: Body, generation: Json, file: str = "") -> Json:
    """Translate generation_config.json to our settings; unset fields are left to the task."""
    where = f"{file}: " if file else ""
    check_generation(generation, where)
    settings = {ours: generation[theirs] for theirs, ours in DECODING.items() if generation.get(theirs) is not None}
    if settings.get("temperature") == 0:  # a common spelling of greedy decoding
        del settings["temperature"]
        settings["sample"] = False
    vocab = vocabulary_size(body)
    left = [name for name in UNKNOWN if generation.get(name) not in NOTHING]
    most, least = (generation.get(name) for name in ("max_length", "min_length"))
    end = generation.get("forced_eos_token_id")
    if isinstance(body, EncoderDecoder):
        for name, length, unchosen in (("max_length", most, UNCHOSEN), ("min_length", least, 0)):
            if length not in (None, unchosen):
                settings.setdefault(name, max(length - 1, 1))  # without the start token
        if end is not None:
            settings["end"] = tuple(token for token in (end if isinstance(end, list) else [end]) if 0 <= token < vocab)
    else:  # causal models: lengths include the prompt
        if most not in (None, UNCHOSEN) and "max_length" not in settings:
            settings["with_prompt"] = most
        left += ["min_length, which includes the prompt"] if least and "min_length" not in settings else []
        left += ["forced_eos_token_id"] if end is not None else []
    if generation.get("early_stopping") is True:
        settings["early"] = "full"
    words = generation.get("bad_words_ids") or []
    if forbidden := {*(generation.get("suppress_tokens") or []), *(word[0] for word in words if len(word) == 1)}:
        settings["forbidden"] = tuple(sorted(token for token in forbidden if 0 <= token < vocab))
    left += ["bad_words_ids with several tokens"] if any(len(word) > 1 for word in words) else []
    bound = max(max_input_length(body), ENDLESS)
    for name in ("max_length", "with_prompt", "min_length"):
        if settings.get(name, 0) > bound:
            left.append(f"{settings[name]:,} tokens, limited to {bound:,}")
            settings[name] = bound
    if settings.get("sample") is True:
        settings["beam"] = 1
    theirs = {ours: name for name, ours in DECODING.items()}
    check_settings({name: value for name, value in settings.items() if name not in OWN_SETTINGS}, where, theirs)
    if left:
        log.warning("unsupported generation settings of the model: %s", ", ".join(left))
    return settings
