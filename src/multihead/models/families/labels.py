"""Class names in config.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multihead.io.type_checks import show
from multihead.models.families.spec import Json
from multihead.models.readouts import ClassifierReadout, TaskModel


def labels_of(config: Json, model: TaskModel, answering: bool = False) -> list[str]:
    """Return one name per class of the readout; none where the classes are start and end of an answer."""
    if not isinstance(model.readout, ClassifierReadout) or answering:
        return []
    classes, named = model.readout.scores.out_features, config.get("id2label")
    labels = [f"LABEL_{i}" for i in range(classes)] if named is None else _sort_labels(named)
    if len(labels) != classes:
        raise ValueError(f"id2label names {len(labels)} classes, the readout in the file has {classes}")
    return labels


def label_fields(labels: Sequence[str], before: Json | None = None) -> Json:
    """Return the label fields for config.json; none where `before` already has them, or implies them by default."""
    if not labels:
        return {}
    named = (before or {}).get("id2label")
    if before is not None and list(labels) == (_default(labels) if named is None else _sort_labels(named)):
        return {}
    return {
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {name: i for i, name in enumerate(labels)},
    }


def _default(labels: Sequence[str]) -> list[str]:
    return [f"LABEL_{i}" for i in range(len(labels))]


def _sort_labels(id2label: Any) -> list[str]:
    try:
        numbered = sorted((int(i), str(name)) for i, name in id2label.items())
    except (ValueError, AttributeError):
        numbered = []
    if [i for i, _ in numbered] != list(range(len(numbered))) or not numbered:
        raise ValueError("id2label must number its labels 0, 1, 2 …")
    if odd := next((i for i, name in id2label.items() if not isinstance(name, str | int)), None):
        raise ValueError(f"id2label: {odd} is {show(id2label[odd])}; use a string")
    return [name for _, name in numbered]
