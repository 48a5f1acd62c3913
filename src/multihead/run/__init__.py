"""The run file: one TOML that says everything about a training run."""

from multihead.run.file import RunFile
from multihead.run.paths import pin_paths
from multihead.run.template import template
from multihead.run.text import difference, of_task, read, write

__all__ = ["RunFile", "difference", "of_task", "pin_paths", "read", "template", "write"]
