"""Data of a task before a model exists: its rows, options and labels. Unusable data raises ValueError."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any

from multihead.config import RunConfig
from multihead.data.overlap import sample_ngrams
from multihead.data.readers.notation import BIO
from multihead.data.readers.read import DataReader, has_column, read_records
from multihead.data.readers.record import FileFacts, Record, Row
from multihead.data.split_statistics import input_text
from multihead.data.validation import raise_rejected
from multihead.tasks import TASKS, Task, Values
from multihead.tasks.word_spans import readable_words
from multihead.training.dataset import Split


@dataclass(frozen=True, eq=False)
class TaskData:
    """Data of one task: rows, options and labels."""

    run: RunConfig  # of this task alone
    sides: dict[str, Split]  # train and, if present, valid and test
    readings: dict[str, DataReader]
    options: dict[str, Any]
    kind: type[Task]
    labels: list[str]
    beside: Split | None = None  # unlabeled inputs for a teacher
    name: str = ""  # in multi-task runs; "" for a single task
    weight: float = 1.0
    auxiliary: bool = False

    def overlap_warnings(self) -> list[str]:
        """Warn about splits whose texts overlap with train, by a quick check: their scores would be too good."""
        inputs = self.run.spec.text_columns
        texts = {
            name: sample_ngrams(input_text(values, inputs) for values in takewhile(_is_whole_text, side()))
            for name, side in self.sides.items()
        }
        train = texts.pop("train")
        return [warning for name, side in texts.items() if (warning := side.warning(name, train))]


def _is_whole_text(values: Values) -> bool:
    """Whether a row is a complete text. One long document, which may exceed memory, has its end held out."""
    return "of" not in values


def read_all(run: RunConfig) -> list[TaskData]:
    """Read the data of every task of a run; raise ValueError for unusable data."""
    if run.task:
        return [read_one(run)]
    return [read_one(run.for_task(block), block.name, block.weight, block.auxiliary) for block in run.tasks]


def read_one(run: RunConfig, name: str = "", weight: float = 1.0, auxiliary: bool = False) -> TaskData:
    check_option_conflicts(run)
    if not auxiliary:
        check_evaluation_data(run)
    readings, sides = make_splits(run, held_out=not auxiliary)
    renamed = {role: name for role, name in run.data.columns.items() if name != role and not name.isdecimal()}
    options = task_options(run, sides["train"]) | ({"columns": renamed} if renamed else {})
    options |= TASKS[run.task].options_of_files(run.section, formats_of(readings))
    if options.get("multi_label"):
        check_label_cells(readings["train"])
    kind = TASKS[run.task].variant(options)
    labels = kind.collect_labels(Split(readings["train"])(), **options)  # of all rows, including held-out ones
    if not labels and next(iter(sides["train"]()), None) is None:
        raise ValueError(f"{run.data.train}: no usable row for training\n{readings['train']}")
    if labels:  # without labels, rows are counted when the token cache is filled
        raise_rejected("train", readings["train"])
    if run.spec.tags_words and (notation := readings["train"].notation) not in ("", BIO):
        options["notation"] = notation  # predictions are written in it
    if labels and len(labels) < 2 and not options.get("score"):
        raise ValueError(f"{run.data.train}: every row has the label {labels[0]!r}; a classifier needs at least two")
    if options.get("positive") and len(labels) > 2:
        raise ValueError(f"match.positive needs two classes, but the data has {len(labels)}; remove it")
    weights = options.get("class_weights")
    if weights and (odd := next((label for label in weights if label not in labels), None)):
        raise ValueError(f"classify.class_weights: unknown label {odd!r}; labels are: {format_labels(labels)}")
    for side in ("valid", "test"):
        if side in sides:
            check_split_labels(sides[side], kind, labels, options)
        if side in readings:
            if not labels:  # otherwise all rows were just read
                count_rows(readings[side])
            raise_rejected(side, readings[side])
    return TaskData(run, sides, readings, options, kind, labels, unlabeled_split(run), name, weight, auxiliary)


def count_rows(reading: DataReader) -> None:
    """Read all rows, so that the reader's counts cover its files."""
    for _ in reading:
        pass


def check_label_cells(train: DataReader) -> None:
    """Raise for multi-label data in tables: several labels are a list, but a CSV cell sport,politics is one label."""
    cells = next((file for file, format, _ in train.sources if format in ("csv", "tsv")), None)
    if cells is not None:
        fix = 'use JSONL or Parquet, "label": ["sport", "politics"]'
        raise ValueError(f"{cells}: classify.multi_label needs lists of labels, which table cells cannot hold; {fix}")


def check_split_labels(side: Split, kind: type[Task], labels: Sequence[str], options: dict[str, Any]) -> None:
    """Raise before training for evaluation data without rows, or with labels that are not in the training data."""
    known, rows = set(labels), 0
    for values in side():
        rows += 1
        odd = next((label for label in kind.labels_of_row(values, **options) if label not in known), None)
        if odd is not None:
            place = f"{values['file']}:{values['line']}"
            raise ValueError(f"{place}: label {odd!r} was not seen in training; labels are: {format_labels(labels)}")
        if not labels or side.side == "valid":  # part of train, whose labels are known
            break  # one row is enough
    if not rows:
        files = ", ".join(file for file, _, _ in side.reading.sources)
        if not side.reading.used:
            raise ValueError(f"{files}: no usable row\n{side.reading}")
        raise ValueError(f"{files}: the tenth held out for validation is empty; set data.valid, or add rows")


def format_labels(labels: Sequence[str]) -> str:
    return ", ".join(labels[:20]) + (f" … ({len(labels):,} in all)" if len(labels) > 20 else "")


def formats_of(readings: Mapping[str, DataReader]) -> Iterator[tuple[str, str]]:
    """Yield the files of a run with their formats."""
    for reading in readings.values():
        yield from ((file, facts["format"]) for file, facts in reading.found.items())


def check_option_conflicts(run: RunConfig) -> None:
    """Raise for keys that have no effect, or a bad one, in combination with others."""
    if run.train.lora and run.from_ is None:
        raise ValueError(
            "train.lora adapts a pretrained model, but this run trains from scratch; remove it, or set from"
        )
    run.section.check()
    conflicts = run.spec.conflicts(run.section)
    if run.data.teacher and (why := conflicts.get("data.teacher")):
        supported = "ner without a crf, classify and match of pairs"
        raise ValueError(f"data.teacher supports {supported}, not {why}; remove it")
    if run.data.unlabelled and not run.data.teacher:
        raise ValueError("data.unlabelled needs a teacher to label it; set data.teacher, or remove it")
    if run.train.smoothing and (why := conflicts.get("train.smoothing")):
        raise ValueError(f"train.smoothing needs class labels and does not support {why}; remove one of them")
    if run.train.rdrop and (why := conflicts.get("train.rdrop")):
        raise ValueError(f"train.rdrop supports tagging, classification and translation, not {why}; remove one of them")


def check_evaluation_data(run: RunConfig) -> None:
    """Raise unless scores are available: with nothing held out, there must be a test file and no early stopping."""
    if run.data.hold_out:
        return
    if run.data.valid:
        raise ValueError("data.hold_out is for runs without a validation file; remove it, or data.valid")
    if not run.data.test:
        raise ValueError("data.hold_out = false leaves no data for evaluation; set data.test")
    if run.train.patience:
        raise ValueError("train.patience needs a validation score, but data.hold_out = false; remove one of them")


def make_splits(run: RunConfig, held_out: bool = True) -> tuple[dict[str, DataReader], dict[str, Split]]:
    """Return the readers of a run and its splits; without a validation file, a tenth of train is held out by hash."""
    settings = reader_settings(run)
    columns = run.data.columns
    names = {"train": run.data.train, "valid": run.data.valid, "test": run.data.test}
    of_side = {side: columns for side, files in names.items() if files}
    label = run.spec.label if run.section.label_optional else None
    if label and columns[label] == label and not has_column(run.data.train, label, **settings):
        # Evaluation data may have labels nevertheless.
        alone = {role: name for role, name in columns.items() if role != label}
        of_side = {s: columns if has_column(names[s], label, **settings) else alone for s in of_side}
    readings = {
        side: read_records(names[side], columns=_columns(run, mapping), task=run.task, **settings)
        for side, mapping in of_side.items()
    }
    sides = {side: Split(reading, "all") for side, reading in readings.items()}
    documents = run.section.whole_documents
    if "valid" not in sides and held_out and run.data.hold_out:
        sides |= {side: Split(readings["train"], side, documents=documents) for side in ("train", "valid")}
    if run.data.limit is not None:
        sides["train"] = Split(readings["train"], sides["train"].side, run.data.limit, documents=documents)
    return readings, sides


def unlabeled_split(run: RunConfig) -> Split | None:
    """Return the split of unlabeled inputs; only input columns are read."""
    if not run.data.unlabelled:
        return None
    asked = run.spec.text_columns
    settings = reader_settings(run) | {"format": None, "gold": False}  # its format may differ from train's
    columns = {
        role: role if name != role and has_column(run.data.unlabelled, role, **settings) else name
        for role, name in run.data.columns.items()
        if role in asked
    }
    reading = read_records(run.data.unlabelled, columns=_columns(run, columns), task=run.task, **settings)
    reading.wanted = tuple(asked)
    if run.spec.tags_words:
        reading.sources = [(file, format, partial(_split_words, rows)) for file, format, rows in reading.sources]
    if next(iter(reading), None) is None:
        files = ", ".join(file for file, _, _ in reading.sources)
        raise ValueError(f"{files}: no usable row\n{reading}")
    return Split(reading)


def _split_words(rows: Callable[[FileFacts], Iterator[Row]], facts: FileFacts) -> Iterator[Row]:
    """Split raw text into words for a tagger, without spacing information from an annotator."""
    for row in rows(facts):
        if isinstance(row, Record) and "tokens" not in row.values and isinstance(row.values.get("text"), str):
            row = replace(row, values={"tokens": readable_words(row.values), "document": None})
        yield row


def reader_settings(run: RunConfig) -> dict[str, Any]:
    """Return the reader settings of a run."""
    return {"format": run.data.format, "encoding": run.data.encoding, **run.section.reader_options()}


def _columns(run: RunConfig, columns: dict[str, str]) -> dict[str, str] | None:
    """Return the column mapping; SQuAD and CoNLL files define their columns."""
    return None if run.spec.self_describing and all(role == column for role, column in columns.items()) else columns


def task_options(run: RunConfig, train: Split) -> dict[str, Any]:
    """Return the task's options, including those that depend on the data, and its generation settings."""
    options = TASKS[run.task].resolve_options(run.section, train)
    return options | ({"decode": run.decode.model_dump(exclude_none=True)} if run.spec.generates_text else {})
