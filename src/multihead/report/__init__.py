"""The report: what a run found out, as one HTML page, in the terminal, and while it trains as one line."""

from multihead.report.console import show, summary
from multihead.report.data import (
    ConfusionMatrix,
    FileDigest,
    GeneratedSample,
    HeadTable,
    LengthHistogram,
    Mistake,
    Mistakes,
    ReportData,
    Span,
    TrainingCurve,
)
from multihead.report.html import render_report
from multihead.report.progress import Progress

__all__ = [
    "ConfusionMatrix",
    "FileDigest",
    "GeneratedSample",
    "HeadTable",
    "LengthHistogram",
    "Mistake",
    "Mistakes",
    "Progress",
    "ReportData",
    "Span",
    "TrainingCurve",
    "render_report",
    "show",
    "summary",
]
