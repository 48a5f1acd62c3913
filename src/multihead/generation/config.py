"""Generation settings, and the hypotheses that decoding returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple, get_type_hints

from multihead.io.type_checks import ABOVE_0, Range, check_value

# The same limits as in the run file's [decode] (config/decode_sections.py): a test compares the two.
RANGES: dict[str, Range] = {
    "beam": (1, 100),
    "nbest": (1, 1000),
    "length_penalty": (-50, 50),
    "max_length": (1, 10**6),
    "min_length": (0, 10**6),
    "no_repeat_ngram": (0, 10**6),
    "repetition_penalty": (ABOVE_0, 1000),
    "temperature": (ABOVE_0, 1000),
    "top_k": (0, 10**9),
    "top_p": (ABOVE_0, 1),
    "min_p": (0, 1),
    "seed": (0, 2**63 - 1),
}
# Settings of a task instead of a search; run files have none of the second line, only generation_config.json of public
# models does.
OF_A_TASK: dict[str, Any] = {"max_length": int | None, "seed": int, "alignment": bool}
OF_A_MODEL = ("early", "forbidden", "end")


class Hypothesis(NamedTuple):
    """One generated text. tokens: the new ones (forced prefix included, prompt not); a stop token that ended it is the
    last.

    score: log p(tokens) / length ** length_penalty, natural logarithm, length counting all of `tokens`; p is the
    model's probability after the repetition penalty, before temperature and filters; a forced end costs nothing.
    """

    tokens: list[int]
    score: float


@dataclass(frozen=True)
class GenerationConfig:
    """Generation settings. beam=1 is greedy decoding; beam > 1 is beam search; sample=True draws tokens.

    Order of processing: repetition penalty, forced prefix, forbidden tokens, no-repeat and min_length (the remaining
    tokens keep their scores); when sampling then temperature, top_k, top_p, min_p, each on the output of the previous
    one.
    """

    beam: int = 1
    nbest: int = 1  # hypotheses per input: the best of the beam, or independent samples
    length_penalty: float = 1.0  # score = log p / length ** this, as in Marian, fairseq, CTranslate2; 0: plain log p
    early: Literal["exact", "full"] = "exact"  # when a beam search ends, see `beam_search.py`
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0  # sample from the k most likely tokens; 0: all
    top_p: float = 1.0  # sample from the smallest set with this probability mass
    min_p: float = 0.0  # minimum probability, relative to the most likely token
    repetition_penalty: float = 1.0  # for tokens of prompt and text: logits / this if positive, * this if negative; in
    # beam search log p * this, as in transformers
    no_repeat_ngram: int = 0  # no n-gram of this size occurs twice in prompt and text; 0: off
    min_length: int = 0  # minimum number of tokens before a stop token
    forbidden: tuple[int, ...] = ()  # tokens that are never generated
    end: tuple[int, ...] = ()  # at its limit, a text ends with one of these, overriding other constraints

    def restrict_to_vocabulary(self, known: int, vocab: int) -> GenerationConfig:
        """Return the config for a model with more embedding rows than tokens (T5, Qwen): the extra rows are
        forbidden."""
        beyond = range(known, vocab)
        return replace(self, forbidden=(*self.forbidden, *beyond)) if beyond else self

    def __post_init__(self) -> None:
        for name, kind in _field_types().items():
            check_value(name, getattr(self, name), kind)
        for name in ("beam", "nbest"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("top_k", "no_repeat_ngram", "min_length"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 0; 0 switches it off")
        for name in ("temperature", "repetition_penalty"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0; 1 changes nothing")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p} is a share: above 0, at most 1 (1 = off)")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p={self.min_p} is a share: 0 (off) to 1")
        if self.sample and self.beam > 1:
            raise ValueError(f"beam={self.beam} and sample=True exclude each other; give one of them")
        if not self.sample and self.nbest > self.beam:
            raise ValueError(f"nbest={self.nbest} needs beam >= nbest, not {self.beam}, or sample=True")
        for name in _field_types():
            check_value(name, getattr(self, name), _field_types()[name], RANGES.get(name))


@cache
def _field_types() -> dict[str, Any]:
    return get_type_hints(GenerationConfig)


def check_settings(settings: Any, where: str, names: Mapping[str, str] | None = None) -> None:
    """Check the [decode] settings in a file that came with a model.

    where: prefix of error messages.  names: the file's names of our settings, where they differ.
    """
    check_value(f"{where}decode", settings, dict[str, Any])
    known = {name: kind for name, kind in _field_types().items() if name not in OF_A_MODEL} | OF_A_TASK
    for name, value in settings.items():
        theirs = f"decode.{name}" if names is None else names.get(name, name)
        if name not in known:
            raise ValueError(f"{where}{theirs} is an unknown setting of [decode]; known: {', '.join(known)}")
        check_value(f"{where}{theirs}", value, known[name], RANGES.get(name))
    try:
        GenerationConfig(**{name: value for name, value in settings.items() if name in _field_types()})
    except ValueError as error:  # mutually exclusive settings
        raise ValueError(f"{where}{error}") from None
    if (settings.get("max_length") or settings.get("min_length", 0)) < settings.get("min_length", 0):
        least, most = settings["min_length"], settings["max_length"]
        raise ValueError(f"{where}min_length is {least}; expected at most max_length = {most}")
