"""The run file: one TOML file that describes a training run completely."""

from multihead.config.parse import difference, from_task, read, write
from multihead.config.paths import pin_paths
from multihead.config.run_config import RunConfig
from multihead.config.template import template

__all__ = ["RunConfig", "difference", "from_task", "pin_paths", "read", "template", "write"]
