"""Decide whether the first row of a table is a header or data.

A header used as a training example spoils a model silently, so data has to prove that it is data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import islice

COMPARED = 10_000  # rows that are compared with the first one
LONGEST_NAME = 60  # characters; a longer cell is not a column name
HEADER_WORDS = frozenset(
    """
    text label labels sentence sentence1 sentence2 sentence_a sentence_b text_a text_b source target question context
    answer answers category class index id idx qid query title tag tags token tokens word words score quality intent
    topic string premise hypothesis review rating sentiment summary document article 文本 标签 类别 问题 答案
    """.split()  # noqa: SIM905, a table of words reads better as words
)
# A question proves nothing: forms use questions as column names.
SENTENCE = re.compile(r".*\w.*[.!。！…][\"'”’)]*", re.DOTALL)


def find_header(
    first: list[str], later: Iterable[list[str]], columns: Mapping[str, str] | None, where: str
) -> tuple[bool, bool]:
    """Return whether `first` is a header, and whether that is only a guess, which has to be reported.

    first: the cells of the first row.
    later: those of all rows, with or without the first.

    Raises ValueError where columns are requested by name and nothing distinguishes a header from data.
    """
    folded = [cell.casefold() for cell in first]
    names = [column for column in (columns or {}).values() if not column.isdecimal()]
    if any(get_close_matches(name.casefold(), folded, n=1, cutoff=0.75) for name in names):
        return True, False  # or nearly: a typo to report, not data
    if names and (len(names) != len(first) or HEADER_WORDS.intersection(folded)):
        return True, False  # the caller reports which column is missing
    stripped = ([cell.strip() for cell in cells] for cells in islice(later, COMPARED))
    # An equal row is the header again, of files put together.
    rows = (cells for cells in stripped if len(cells) == len(first) and cells != first)
    if _is_data(first, rows, columns or {}):
        return False, False
    if names:
        shown = ", ".join(map(repr, first))
        known = ", ".join(columns or {})
        raise ValueError(
            f"{where}: are these names of columns, or data: {shown}? If names, say which is which: "
            f'{next(iter(columns or {}))} = "{first[0]}" …; if data, write a line of names above it: {known}'
        )
    return True, not HEADER_WORDS.intersection(folded)


def _is_data(first: list[str], rows: Iterable[list[str]], columns: Mapping[str, str]) -> bool:
    """Return whether the first row is proven to be data.

    Its label occurs in a later row too, or is a number among numbers; without labels, a cell is a number, a sentence or
    too long for a name.
    """
    place = _place_of_label(columns)
    if place is not None and place < len(first):
        label = first[place]
        if _is_number(label):
            kinds = {_is_number(cells[place]) for cells in rows}
            return not kinds or True in kinds
        return bool(label) and any(cells[place] == label for cells in rows)
    if any(_is_number(cell) or len(cell) > LONGEST_NAME or SENTENCE.fullmatch(cell) for cell in first):
        return True
    # Without column names, a repeated value may be a label.
    asked = columns and not any(column.isdecimal() for column in columns.values())
    return not asked and any(first[i] and cells[i] == first[i] for cells in rows for i in range(len(first)))


def _place_of_label(columns: Mapping[str, str]) -> int | None:
    """Return the index of the label column, by its number or by its place among the requested columns."""
    if "label" not in columns:
        return None
    number = columns["label"]
    return int(number) - 1 if number.isdecimal() else list(columns).index("label")


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[-+]?\d+([.,]\d+)?", text))
