"""Parquet files, batch by batch; only the requested columns are decoded. The line of a record is its row, from 1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from multihead.data.readers.columns import FILLED, pick_columns
from multihead.data.readers.normalize import normalize_rows
from multihead.data.readers.record import FileFacts, ReadOptions, RejectedRow, Row
from multihead.io.pipes import to_regular_file

ROWS = 1024


def read_parquet(path: Path, options: ReadOptions, facts: FileFacts) -> Iterator[Row]:
    """Yield rows as they are stored: strings, numbers, lists, structs."""
    try:
        file = pq.ParquetFile(to_regular_file(path))
        names = list(file.schema_arrow.names)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}:1: not a whole Parquet file ({_shorten(error)}); fetch it again") from None
    with file:
        roles = pick_columns(options.columns, names, f"{path}:1")
        facts.update(names=names, columns=roles, rows=file.metadata.num_rows)
        selected = sorted(set(roles.values()), key=names.index)
        row = 0
        batches = file.iter_batches(batch_size=ROWS, columns=selected)
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                raise ValueError(f"{path}:{row + 1}: broken Parquet data ({_shorten(error)}); fetch it again") from None
            if batch is None:
                return
            for cells in _cells(batch):
                row += 1
                yield from _rows(cells, roles, options, (str(path), row))


def _cells(batch: Any) -> Iterator[dict[str, Any] | UnicodeDecodeError]:
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:  # before the first row: to_pylist is a list; so find the rows that are not UTF-8
        for i in range(batch.num_rows):
            try:
                yield {name: batch.column(name)[i].as_py() for name in batch.schema.names}
            except UnicodeDecodeError as error:
                yield error


def _rows(
    cells: dict[str, Any] | UnicodeDecodeError, roles: dict[str, str], options: ReadOptions, place: tuple[str, int]
) -> Iterator[Row]:
    file, row = place
    if isinstance(cells, UnicodeDecodeError):
        byte = cells.object[cells.start]
        yield RejectedRow(file, row, f"byte {byte:#04x} at {cells.start} is not UTF-8; write it as UTF-8", "not UTF-8")
        return
    values = {role: cells[name] for role, name in roles.items()}
    if not FILLED.intersection(values) and all(value is None for value in values.values()):
        yield RejectedRow(file, row, "every field is empty", "empty line")
    else:
        yield from normalize_rows(values, options, file, row)


def _shorten(error: BaseException) -> str:
    return str(error).split("\n")[0][:200]
