"""Watching: see what every head does, and what changes without it."""

from multihead.inspection.address import Address, attentions, locate, numbers
from multihead.inspection.hooks import ablate, is_watched, watch
from multihead.inspection.recording import Input, Seen
from multihead.inspection.statistics import Statistics, rowwise

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
