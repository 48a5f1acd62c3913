"""Tasks: one file each, one shared interface, one entry in `spec.SPECS`.

Whatever needs torch is imported on first use; configuration and dataset readers depend on the specs alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from multihead.tasks.spec import SPECS, import_object

if TYPE_CHECKING:
    from multihead.tasks.task import IGNORE, Batch, Prediction, ReadoutKind, Scorer, Task, Values, Window


class TaskClasses(Mapping[str, "type[Task]"]):
    """Mapping from a task's name to its implementing class, imported on first access."""

    def __getitem__(self, name: str) -> type[Task]:
        task: type[Task] = import_object(SPECS[name].implementation)
        return task

    def __iter__(self) -> Iterator[str]:
        return iter(SPECS)

    def __len__(self) -> int:
        return len(SPECS)


TASKS = TaskClasses()


def list_tasks() -> dict[str, str]:
    """Return every task with its input and label columns: {"classify": "text -> label", …}."""
    return {name: " -> ".join(filter(None, map(" + ".join, (spec.inputs, spec.gold)))) for name, spec in SPECS.items()}


__all__ = [
    "IGNORE",
    "SPECS",
    "TASKS",
    "Batch",
    "Prediction",
    "ReadoutKind",
    "Scorer",
    "Task",
    "Values",
    "Window",
    "list_tasks",
]


def __getattr__(name: str) -> object:
    """Resolve names of the task interface and the task classes (`multihead.tasks.Ner`) on first access."""
    modules = dict(spec.implementation.split(":")[::-1] for spec in SPECS.values())
    module = "multihead.tasks.task" if name in __all__ else modules.get(name)
    if module is None:
        raise AttributeError(f"module 'multihead.tasks' has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value  # the next access is a plain lookup
    return value
