"""What the data says of a task, before there is a model: its rows, options and labels. What is of no use is refused."""

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
    """What the data says of a task, before there is a model."""

    run: RunConfig  # of this task alone
    sides: dict[str, Split]  # train, and, if there are such rows, valid and test
    readings: dict[str, DataReader]
    options: dict[str, Any]
    kind: type[Task]
    labels: list[str]
    beside: Split | None = None  # inputs without labels, which a teacher gives
    name: str = ""  # of several tasks; "" for the only one
    weight: float = 1.0
    auxiliary: bool = False

    def overlap_warnings(self) -> list[str]:
        """Sides whose texts are pieces of train's, as far as a glance tells: their scores will flatter."""
        inputs = self.run.spec.text_columns
        seen = {
            name: sample_ngrams(input_text(values, inputs) for values in takewhile(_is_whole_text, side()))
            for name, side in self.sides.items()
        }
        train = seen.pop("train")
        return [warning for name, side in seen.items() if (warning := side.warning(name, train))]


def _is_whole_text(values: Values) -> bool:
    """Is a row a text of its own? Of one long document, which may be larger than memory, the end is held out."""
    return "of" not in values


def read_all(run: RunConfig) -> list[TaskData]:
    """Every task of a run with its data; what could not be trained on is refused."""
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
    labels = kind.collect_labels(Split(readings["train"])(), **options)  # of all rows: those held out have labels too
    if not labels and next(iter(sides["train"]()), None) is None:
        raise ValueError(f"{run.data.train}: no row is left to train on\n{readings['train']}")
    if labels:  # without them, the rows are read when the token cache is filled, and counted there
        raise_rejected("train", readings["train"])
    if run.spec.tags_words and (notation := readings["train"].notation) not in ("", BIO):
        options["notation"] = notation  # answers are given in it
    if labels and len(labels) < 2 and not options.get("score"):
        raise ValueError(f"{run.data.train}: every row has the label {labels[0]!r}; a classifier needs at least two")
    if options.get("positive") and len(labels) > 2:
        raise ValueError(f"match.positive is for two classes, and there are {len(labels)}; leave it out")
    weights = options.get("class_weights")
    if weights and (odd := next((label for label in weights if label not in labels), None)):
        raise ValueError(f"classify.class_weights: {odd!r} is no label here; there are: {format_labels(labels)}")
    for side in ("valid", "test"):
        if side in sides:
            check_split_labels(sides[side], kind, labels, options)
        if side in readings:
            if not labels:  # else all rows have been read just now
                count_rows(readings[side])
            raise_rejected(side, readings[side])
    return TaskData(run, sides, readings, options, kind, labels, unlabeled_split(run), name, weight, auxiliary)


def count_rows(reading: DataReader) -> None:
    """Read all rows, so that the counts of the reading are those of its files."""
    for _ in reading:
        pass


def check_label_cells(train: DataReader) -> None:
    """Several labels are a list, and a cell of a CSV file holds none: sport,politics would be a label of its own."""
    cells = next((file for file, format, _ in train.sources if format in ("csv", "tsv")), None)
    if cells is not None:
        wanted = 'give JSONL or Parquet, "label": ["sport", "politics"]'
        raise ValueError(f"{cells}: classify.multi_label reads lists of labels, cells of tables are none; {wanted}")


def check_split_labels(side: Split, kind: type[Task], labels: Sequence[str], options: dict[str, Any]) -> None:
    """Before training, not after: data to score on that has no row, or a label that nothing could say."""
    known, rows = set(labels), 0
    for values in side():
        rows += 1
        odd = next((label for label in kind.labels_of_row(values, **options) if label not in known), None)
        if odd is not None:
            place = f"{values['file']}:{values['line']}"
            raise ValueError(
                f"{place}: the label {odd!r} is not in the training data, which has: {format_labels(labels)}"
            )
        if not labels or side.side == "valid":  # held out of train, whose labels are known
            break  # one row is enough to see that there are some
    if not rows:
        files = ", ".join(file for file, _, _ in side.reading.sources)
        if not side.reading.used:
            raise ValueError(f"{files}: not one row can be used\n{side.reading}")
        raise ValueError(
            f"{files}: the tenth that is held out for validation has no row; name data.valid, or give more rows"
        )


def format_labels(labels: Sequence[str]) -> str:
    return ", ".join(labels[:20]) + (f" … ({len(labels):,} in all)" if len(labels) > 20 else "")


def formats_of(readings: Mapping[str, DataReader]) -> Iterator[tuple[str, str]]:
    """The files of a run with their formats."""
    for reading in readings.values():
        yield from ((file, found["format"]) for file, found in reading.found.items())


def check_option_conflicts(run: RunConfig) -> None:
    """Keys that would change nothing, or nothing good, beside others."""
    if run.train.lora and run.from_ is None:
        raise ValueError("train.lora changes a trained model a little; from scratch, everything has to learn: leave it")
    run.section.check()
    conflicts = run.spec.conflicts(run.section)
    if run.data.teacher and (why := conflicts.get("data.teacher")):
        wanted = "ner without a crf, classify and match of pairs"
        raise ValueError(f"data.teacher is for {wanted}, and this is {why}; leave it out")
    if run.data.unlabelled and not run.data.teacher:
        raise ValueError(
            "data.unlabelled: a teacher says what its labels are; name one in data.teacher, or leave it out"
        )
    if run.train.smoothing and (why := conflicts.get("train.smoothing")):
        raise ValueError(f"train.smoothing is of classes, and {why} learns something else; leave one out")
    if run.train.rdrop and (why := conflicts.get("train.rdrop")):
        raise ValueError(f"train.rdrop is for tagging, classes and translation, and this is {why}; leave one out")


def check_evaluation_data(run: RunConfig) -> None:
    """With nothing held out, there must be a test file, and nothing may wait for a validation score."""
    if run.data.hold_out:
        return
    if run.data.valid:
        raise ValueError("data.hold_out is for runs without a validation file; leave it out, or data.valid")
    if not run.data.test:
        raise ValueError("data.hold_out = false leaves nothing to score the model on; name data.test")
    if run.train.patience:
        raise ValueError("train.patience waits for a validation score, and data.hold_out = false; leave one out")


def make_splits(run: RunConfig, held_out: bool = True) -> tuple[dict[str, DataReader], dict[str, Split]]:
    """The files of a run and their sides; without a validation file, a tenth of train is held out by hash."""
    settings = reader_settings(run)
    columns = run.data.columns
    names = {"train": run.data.train, "valid": run.data.valid, "test": run.data.test}
    of_side = {side: columns for side, files in names.items() if files}
    label = run.spec.label if run.section.label_optional else None
    if label and columns[label] == label and not has_column(run.data.train, label, **settings):
        # Data to score on may have labels all the same.
        alone = {role: name for role, name in columns.items() if role != label}
        of_side = {s: columns if has_column(names[s], label, **settings) else alone for s in of_side}
    readings = {
        side: read_records(names[side], columns=_columns(run, mine), task=run.task, **settings)
        for side, mine in of_side.items()
    }
    sides = {side: Split(reading, "all") for side, reading in readings.items()}
    whole = run.section.whole_documents
    if "valid" not in sides and held_out and run.data.hold_out:
        sides |= {side: Split(readings["train"], side, documents=whole) for side in ("train", "valid")}
    if run.data.limit is not None:
        sides["train"] = Split(readings["train"], sides["train"].side, run.data.limit, documents=whole)
    return readings, sides


def unlabeled_split(run: RunConfig) -> Split | None:
    """Further inputs, of which only the columns that are asked about are read."""
    if not run.data.unlabelled:
        return None
    asked = run.spec.text_columns
    settings = reader_settings(run) | {"format": None, "gold": False}  # the format may be another than train's
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
        raise ValueError(f"{files}: not one row can be used\n{reading}")
    return Split(reading)


def _split_words(rows: Callable[[FileFacts], Iterator[Row]], found: FileFacts) -> Iterator[Row]:
    """Raw text as a tagger reads it; who wrote it did not say what stands together."""
    for row in rows(found):
        if isinstance(row, Record) and "tokens" not in row.values and isinstance(row.values.get("text"), str):
            row = replace(row, values={"tokens": readable_words(row.values), "document": None})
        yield row


def reader_settings(run: RunConfig) -> dict[str, Any]:
    """How the files of a run are read."""
    return {"format": run.data.format, "encoding": run.data.encoding, **run.section.reader_options()}


def _columns(run: RunConfig, columns: dict[str, str]) -> dict[str, str] | None:
    """SQuAD files and CoNLL files know their columns."""
    return None if run.spec.self_describing and all(role == column for role, column in columns.items()) else columns


def task_options(run: RunConfig, train: Split) -> dict[str, Any]:
    """The task's own options, with what the data decides; and how it writes."""
    options = TASKS[run.task].resolve_options(run.section, train)
    return options | ({"decode": run.decode.model_dump(exclude_none=True)} if run.spec.generates_text else {})
