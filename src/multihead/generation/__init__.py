"""Decoding: greedy search, sampling, beam search, and alignment with the source."""

from multihead.generation.alignment import align_tokens
from multihead.generation.config import GenerationConfig, Hypothesis
from multihead.generation.generate import decode, greedy, stream

__all__ = ["GenerationConfig", "Hypothesis", "align_tokens", "decode", "greedy", "stream"]
