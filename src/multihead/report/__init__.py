"""The report: what a run found out, as one HTML page, in the terminal, and while it trains as one line."""

from multihead.report.console import show, summary
from multihead.report.data import Confusion, Curve, Digest, Facts, Heads, Lengths, Mistake, Mistakes, Sample, Span
from multihead.report.html import page
from multihead.report.progress import Progress

__all__ = [
    "Confusion",
    "Curve",
    "Digest",
    "Facts",
    "Heads",
    "Lengths",
    "Mistake",
    "Mistakes",
    "Progress",
    "Sample",
    "Span",
    "page",
    "show",
    "summary",
]
