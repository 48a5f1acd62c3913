"""From logits to tokens: greedy, sampling, beam search, and what the text was aligned with."""

from multihead.decode.align import alignment
from multihead.decode.decoding import decode, greedy, stream
from multihead.decode.settings import Decoding, Hypothesis

__all__ = ["Decoding", "Hypothesis", "alignment", "decode", "greedy", "stream"]
