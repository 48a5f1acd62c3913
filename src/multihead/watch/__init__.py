"""Watching: see what every head does, and what changes without it."""

from multihead.watch.address import Address, attentions, locate, numbers
from multihead.watch.seen import Input, Seen
from multihead.watch.statistics import Statistics, rowwise
from multihead.watch.watching import ablate, is_watched, watch

__all__ = [
    "Address",
    "Input",
    "Seen",
    "Statistics",
    "ablate",
    "attentions",
    "is_watched",
    "locate",
    "numbers",
    "rowwise",
    "watch",
]
