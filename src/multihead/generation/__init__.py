"""From logits to tokens: greedy, sampling, beam search, and what the text was aligned with."""

from multihead.generation.alignment import align_tokens
from multihead.generation.config import GenerationConfig, Hypothesis
from multihead.generation.generate import decode, greedy, stream

__all__ = ["GenerationConfig", "Hypothesis", "align_tokens", "decode", "greedy", "stream"]
