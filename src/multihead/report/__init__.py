"""Reports of a run: an HTML page, terminal tables, and a progress line during training."""

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
