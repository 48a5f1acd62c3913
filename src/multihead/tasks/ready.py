"""How a model is used that was not trained for a task here: what its body can do, and how its files say it writes."""

from __future__ import annotations

import logging
from typing import Any

from multihead.data.tokenizer import Tokenizer
from multihead.models import Decoder, Encoder, EncoderDecoder, Model, Vocabulary

log = logging.getLogger(__name__)

Json = dict[str, Any]
Body = Encoder | Decoder | EncoderDecoder
NATURAL: dict[type, str] = {Decoder: "generate", EncoderDecoder: "translate", Encoder: "mask"}
DECODING = {  # of generation_config.json
    "do_sample": "sample", "num_beams": "beam", "temperature": "temperature", "top_k": "top_k", "top_p": "top_p",
    "min_p": "min_p", "repetition_penalty": "repetition_penalty", "no_repeat_ngram_size": "no_repeat_ngram",
    "length_penalty": "length_penalty", "max_new_tokens": "max_length", "min_new_tokens": "min_length",
}  # fmt: skip
UNKNOWN = (  # of it too: what would change a text, and is not done here
    "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "num_beam_groups", "diversity_penalty",
    "penalty_alpha", "typical_p", "epsilon_cutoff", "eta_cutoff", "sequence_bias", "begin_suppress_tokens",
    "force_words_ids", "exponential_decay_length_penalty", "guidance_scale", "num_return_sequences",
)  # fmt: skip
NOTHING: tuple[Any, ...] = (None, False, 0, 1, [], {})  # values that change no text
UNCHOSEN = 20  # the max_length that transformers once wrote where nobody had chosen one


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
    return {**borders(body, writes, generation), "decode": decoding(body, generation)}


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


def decoding(body: Body, generation: Json) -> Json:
    """How text is to be written, in our words; what the file leaves open is left to the task."""
    found = {ours: generation[theirs] for theirs, ours in DECODING.items() if generation.get(theirs) is not None}
    if found.get("temperature") == 0:  # many write so for the likeliest token
        del found["temperature"]
        found["sample"] = False
    vocab = (body.decoder if isinstance(body, EncoderDecoder) else body).config.vocab
    left = [name for name in UNKNOWN if generation.get(name) not in NOTHING]
    most, least = (generation.get(name) for name in ("max_length", "min_length"))
    end = generation.get("forced_eos_token_id")
    if isinstance(body, EncoderDecoder):
        for name, length, unchosen in (("max_length", most, UNCHOSEN), ("min_length", least, 0)):
            if length not in (None, unchosen):
                found.setdefault(name, max(length - 1, 0))  # without the start token
        if end is not None:
            found["end"] = tuple(one for one in (end if isinstance(end, list) else [end]) if 0 <= one < vocab)
    else:  # of one that only writes, lengths count the prompt too
        if most not in (None, UNCHOSEN) and "max_length" not in found:
            found["with_prompt"] = most
        left += ["min_length, which counts the prompt"] if least and "min_length" not in found else []
        left += ["forced_eos_token_id"] if end is not None else []
    if generation.get("early_stopping") is True:
        found["early"] = "full"
    words = generation.get("bad_words_ids") or []
    if forbidden := {*(generation.get("suppress_tokens") or []), *(word[0] for word in words if len(word) == 1)}:
        found["forbidden"] = tuple(sorted(one for one in forbidden if 0 <= one < vocab))
    left += ["bad_words_ids of several tokens"] if any(len(word) > 1 for word in words) else []
    if left:
        log.warning("the model's generation settings are not all followed here: %s", ", ".join(left))
    return {**found, "beam": 1} if found.get("sample") else found
