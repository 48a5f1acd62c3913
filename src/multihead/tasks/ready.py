"""How a model is used that was not trained for a task here: what its body can do, and how its files say it writes."""

from __future__ import annotations

from typing import Any

from multihead.data.tokenizer import Tokenizer
from multihead.models import Decoder, Encoder, EncoderDecoder, Model, Vocabulary

Json = dict[str, Any]
Body = Encoder | Decoder | EncoderDecoder
NATURAL: dict[type, str] = {Decoder: "generate", EncoderDecoder: "translate", Encoder: "mask"}
DECODING = {  # of generation_config.json
    "do_sample": "sample", "num_beams": "beam", "temperature": "temperature", "top_k": "top_k", "top_p": "top_p",
    "min_p": "min_p", "repetition_penalty": "repetition_penalty", "no_repeat_ngram_size": "no_repeat_ngram",
    "max_new_tokens": "max_length",
}  # fmt: skip


def natural(model: Model) -> str | None:
    """The task of a model that scores tokens."""
    return NATURAL[type(model.body)] if isinstance(model.readout, Vocabulary) else None


def longest(body: Body) -> int:
    """How many tokens it takes; of two sides, the shorter one counts."""
    if isinstance(body, EncoderDecoder):
        return min(longest(body.encoder), longest(body.decoder))
    return body.config.max_length


def usage(body: Body, writes: Tokenizer, generation: Json) -> Json:
    """Options of the natural task; generation: generation_config.json, or the same fields of config.json."""
    if isinstance(body, Encoder):
        return {}
    return {**borders(body, writes, generation), "decode": decoding(generation)}


def borders(body: Body, writes: Tokenizer, generation: Json) -> Json:
    """How what is written begins and ends: start, stop, and the tokens it must begin with."""
    special = writes.special
    stop = generation.get("eos_token_id", special.get("eos", special.get("sep")))
    first = [generation.get("bos_token_id"), special.get("bos"), special.get("cls"), stop]
    if isinstance(body, EncoderDecoder):
        first = [generation.get("decoder_start_token_id"), *first]
    start = next((number for number in first if number is not None), None)
    if stop is None or start is None:
        raise ValueError("this model does not say how a text ends; name eos_token_id in its config.json")
    forced = generation.get("forced_bos_token_id")
    return {
        "start": start[0] if isinstance(start, list) else start,
        "stop": list(stop) if isinstance(stop, list) else [stop],
        "first": [] if forced is None else [forced],
    }


def decoding(generation: Json) -> Json:
    """How text is to be written, in our words; what the file leaves open is left to the task."""
    found = {ours: generation[theirs] for theirs, ours in DECODING.items() if generation.get(theirs) is not None}
    return {**found, "beam": 1} if found.get("sample") else found
