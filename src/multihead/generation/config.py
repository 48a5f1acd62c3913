"""How text is written: the settings, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple, get_type_hints

from multihead.io.type_checks import ABOVE_0, Range, check_value

# The same limits as the run file's [decode] has (config/decode_sections.py): a test compares the two.
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
# Settings that are of a task and not of one search; those of the second line no run file has, only the files that
# come with a public model.
OF_A_TASK: dict[str, Any] = {"max_length": int | None, "seed": int, "alignment": bool}
OF_A_MODEL = ("early", "forbidden", "end")


class Hypothesis(NamedTuple):
    """tokens: the new ones (forced prefix included, prompt not); if a stop token ended them, it is the last.

    score: log p(tokens) / length ** length_penalty, natural logarithm, length counting all of `tokens`; p is the
    model's own after the repetition penalty, before temperature and filters; a forced end costs nothing.
    """

    tokens: list[int]
    score: float


@dataclass(frozen=True)
class GenerationConfig:
    """beam=1 takes the likeliest token at every step; more keeps so many beginnings; sample=True draws instead.

    The order of the rules: repetition penalty, forced prefix, forbidden tokens, no-repeat and min_length (what they
    leave keeps its scores); when drawing then temperature, top_k, top_p, min_p, each on what the one before left.
    """

    beam: int = 1
    nbest: int = 1  # hypotheses per input: the best of the beam, or so many independent draws
    length_penalty: float = 1.0  # score = log p / length ** this, as in Marian, fairseq, CTranslate2; 0: log p alone
    early: Literal["exact", "full"] = "exact"  # when a beam search ends, see `beam_search.py`
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0  # draw among so many; 0: all
    top_p: float = 1.0  # among the likeliest that hold this share together
    min_p: float = 0.0  # among those with at least this share of the likeliest one's probability
    repetition_penalty: float = 1.0  # tokens of prompt and text: logits / this if positive, * this if negative; in
    # beam search log p * this, as in transformers
    no_repeat_ngram: int = 0  # no run of so many tokens occurs twice in prompt and text; 0: off
    min_length: int = 0  # so many tokens at least come before a stop token
    forbidden: tuple[int, ...] = ()  # tokens that are never written
    end: tuple[int, ...] = ()  # at its limit, a text ends with one of these, whatever the other rules say

    def restrict_to_vocabulary(self, known: int, vocab: int) -> GenerationConfig:
        """The same for a model whose table has more rows than there are tokens (T5, Qwen): those are never written."""
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
            raise ValueError(f"nbest={self.nbest} wants a beam at least as wide, not {self.beam}; or sample=True")
        for name in _field_types():
            check_value(name, getattr(self, name), _field_types()[name], RANGES.get(name))


@cache
def _field_types() -> dict[str, Any]:
    return get_type_hints(GenerationConfig)


def check_settings(given: Any, where: str, names: Mapping[str, str] | None = None) -> None:
    """Check the settings of a [decode] section as they stand in a file that came with a model.

    where: what an error begins with.  names: what the file calls our settings, where it has other names.
    """
    check_value(f"{where}decode", given, dict[str, Any])
    known = {name: kind for name, kind in _field_types().items() if name not in OF_A_MODEL} | OF_A_TASK
    for name, value in given.items():
        theirs = f"decode.{name}" if names is None else names.get(name, name)
        if name not in known:
            raise ValueError(f"{where}{theirs} is no setting of [decode]; known: {', '.join(known)}")
        check_value(f"{where}{theirs}", value, known[name], RANGES.get(name))
    try:
        GenerationConfig(**{name: value for name, value in given.items() if name in _field_types()})
    except ValueError as error:  # settings that exclude each other
        raise ValueError(f"{where}{error}") from None
    if (given.get("max_length") or given.get("min_length", 0)) < given.get("min_length", 0):
        least, most = given["min_length"], given["max_length"]
        raise ValueError(f"{where}min_length is {least}; at most max_length = {most} is wanted")
