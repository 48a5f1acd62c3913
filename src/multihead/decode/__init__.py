"""From logits to tokens."""

from multihead.decode.greedy import Steps, greedy, write

__all__ = ["Steps", "greedy", "write"]
