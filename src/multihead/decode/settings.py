"""How text is written: the settings, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple


class Hypothesis(NamedTuple):
    """tokens: the new ones (forced prefix included, prompt not); if a stop token ended them, it is the last.

    score: log p(tokens) / length ** length_penalty, natural logarithm, length counting all of `tokens`; p is the
    model's own after the repetition penalty, before temperature and filters; a forced end costs nothing.
    """

    tokens: list[int]
    score: float


@dataclass(frozen=True)
class Decoding:
    """beam=1 takes the likeliest token at every step; more keeps so many beginnings; sample=True draws instead.

    The order of the rules: repetition penalty, forced prefix, forbidden tokens, no-repeat and min_length (what they
    leave keeps its scores); when drawing then temperature, top_k, top_p, min_p, each on what the one before left.
    """

    beam: int = 1
    nbest: int = 1  # hypotheses per input: the best of the beam, or so many independent draws
    length_penalty: float = 1.0  # score = log p / length ** this, as in Marian, fairseq, CTranslate2; 0: log p alone
    early: Literal["exact", "full"] = "exact"  # when a beam search ends, see `beam.py`
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

    def among(self, known: int, vocab: int) -> Decoding:
        """The same for a model whose table has more rows than there are tokens (T5, Qwen): those are never written."""
        beyond = range(known, vocab)
        return replace(self, forbidden=(*self.forbidden, *beyond)) if beyond else self

    def __post_init__(self) -> None:
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
        if self.early not in ("exact", "full"):
            raise ValueError(f"early={self.early!r}: exact or full")
        if self.sample and self.beam > 1:
            raise ValueError(f"beam={self.beam} and sample=True exclude each other; give one of them")
        if not self.sample and self.nbest > self.beam:
            raise ValueError(f"nbest={self.nbest} wants a beam at least as wide, not {self.beam}; or sample=True")
