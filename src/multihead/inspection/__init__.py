"""Inspection: record and ablate attention heads; head statistics over datasets.

Only the hooks are exported here: modules that read data (head_profile, attention_maps, head_usage) import tasks.
"""

from multihead.inspection.address import Address, attentions, locate, numbers
from multihead.inspection.hooks import ablate, is_watched, watch
from multihead.inspection.recording import RecordedInput, Recording
from multihead.inspection.statistics import HeadStatistics, row_statistics

__all__ = [
    "Address",
    "HeadStatistics",
    "RecordedInput",
    "Recording",
    "ablate",
    "attentions",
    "is_watched",
    "locate",
    "numbers",
    "row_statistics",
    "watch",
]
