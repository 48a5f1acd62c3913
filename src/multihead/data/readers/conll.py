"""CoNLL files: one token per line, an empty line after each sentence, tags in a column.

The file is read twice before the first row: the first pass detects delimiter, token and tag column, the second the tag
scheme.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from multihead.data.readers.lines import iterate_lines
from multihead.data.readers.notation import choose_notation
from multihead.data.readers.record import FileFacts, ReadOptions, Record, RejectedRow, RepairedRow, Row
from multihead.data.readers.tag_schemes import TagCounts, detect_scheme, is_span_tag, to_bio

COMMON = 0.01  # share of lines that makes a number of columns a shape of the file (UNER's train file has 3 and 5)
SURVEYED = 1_000  # lines that choose the delimiter
COMMENT = re.compile(r"#\s*(\S+ ?=|newdoc|newpar|global\.)")
UNSPACED = "SpaceAfter=No"  # CoNLL-U, MISC: no space follows the token
TEXT = re.compile(r"#\s*text\s*=\s*(.*\S)")  # CoNLL-U: the sentence as it was written
WORD_RANGE = re.compile(r"\d+[-.]\d+")  # CoNLL-U: 3-4 is a contraction, 3.1 an unspoken word


@dataclass(frozen=True, slots=True)
class ConllLayout:
    delimiter: str
    widths: frozenset[int]
    token: int
    tag: int
    numbered: bool  # the first column counts the tokens (CoNLL-U, iob2)
    spans: bool  # the tag column holds O, B-LOC and the like
    spaces: bool = False  # tokens without a following space are marked


@dataclass(frozen=True, slots=True)
class Sentence:
    cells: list[tuple[int, list[str]]]  # (line, columns) of every token
    document: int
    text: str = ""  # the original text, where the file has it


def read_conll(path: Path, options: ReadOptions, facts: FileFacts) -> Iterator[Row]:
    """Yield sentences as {tokens, tags (BIO), document}; without gold, tags may be anything, and are omitted."""
    shape = detect_layout(path, options)
    survey = TagCounts()
    for sentence in sentences(path, options.encoding, shape):
        survey.add((line, cells[shape.tag]) for line, cells in sentence.cells if len(cells) > shape.tag)
        if not shape.spaces and any(UNSPACED in cell for _, cells in sentence.cells for cell in cells):
            shape = replace(shape, spaces=True)
    scheme = (options.scheme or detect_scheme(survey, str(path))) if options.gold else None
    facts.update(
        delimiter=shape.delimiter, token_column=shape.token + 1, tag_column=shape.tag + 1,
        letters=dict(survey.letters), notation=choose_notation(survey, ""), **({"scheme": scheme} if scheme else {}),
    )  # fmt: skip
    for sentence in sentences(path, options.encoding, shape):
        yield from _rows(sentence, shape, scheme, str(path))


def _rows(sentence: Sentence, shape: ConllLayout, scheme: str | None, file: str) -> Iterator[Row]:
    first = sentence.cells[0][0]
    for line, cells in sentence.cells:
        if len(cells) not in shape.widths:
            expected = " or ".join(str(n) for n in sorted(shape.widths))
            reason = f"{len(cells)} columns instead of {expected} (delimiter {shape.delimiter!r})"
            yield RejectedRow(
                file, line, f"{reason}; the sentence from line {first} is rejected", "wrong number of fields"
            )
            return
        token, tag = cells[shape.token], cells[shape.tag]
        if not token.strip() or not tag.strip():
            what = "token" if not token.strip() else "tag"
            yield RejectedRow(
                file, line, f"an empty {what}; the sentence from line {first} is rejected", f"empty {what}"
            )
            return
        if "\0" in token or "\0" in tag:
            yield RejectedRow(
                file, line, f"a NUL character; the sentence from line {first} is rejected", "NUL character"
            )
            return
    tokens = [cells[shape.token] for _, cells in sentence.cells]
    values: dict[str, Any] = {"tokens": tokens, "document": sentence.document}
    if scheme is not None:
        tags, slips, fault = to_bio([cells[shape.tag] for _, cells in sentence.cells], scheme)
        if fault is not None:
            at, code, reason = fault
            line = sentence.cells[at][0]
            yield RejectedRow(file, line, f"{reason}; the sentence from line {first} is rejected", code)
            return
        for at, code, reason in slips:
            yield RepairedRow(file, sentence.cells[at][0], reason, code)
        values["tags"] = tags
    spaces = spaces_in(tokens, sentence.text)
    if spaces is None and sentence.text:
        values["raw_text"] = sentence.text  # for `check`: raw text that the tokens cannot be joined to
    if spaces is None and shape.spaces:
        spaces = [not any(UNSPACED in cell for cell in cells[shape.token + 1 :]) for _, cells in sentence.cells]
    if spaces is not None:
        values["spaces"] = spaces
    yield Record(values, file, first)


def spaces_in(tokens: Sequence[str], text: str) -> list[bool] | None:
    """Return whether white space follows each token in the original text; None if the tokens do not make up the
    text.
    """
    spaces, at = [], 0
    for token in tokens:
        if not text.startswith(token, at):
            return None
        end = at + len(token)
        at = len(text) - len(text[end:].lstrip())
        spaces.append(at > end)
    return spaces if at == len(text) else None


def sentences(path: Path, encoding: str, shape: ConllLayout) -> Iterator[Sentence]:
    """Yield token lines between empty lines; -DOCSTART- and `# newdoc` begin a new document."""
    cells: list[tuple[int, list[str]]] = []
    document, begun = 0, False  # begun: the current document has a marker or a sentence
    raw_text = ""
    for line, text in iterate_lines(path, encoding):
        border = text.startswith("-DOCSTART-")
        comment = not border and not cells and is_comment(text, shape)
        if cells and (border or not text.strip(" \t\r")):
            yield Sentence(cells, document, raw_text)
            cells, begun, raw_text = [], True, ""
        if border or (comment and "newdoc" in text.split("=")[0]):
            document, begun = document + begun, True
        elif comment and (match := TEXT.match(text)):
            raw_text = match[1]
        elif text.strip(" \t\r") and not comment:
            columns = columns_of(text, shape.delimiter)
            if not (shape.numbered and WORD_RANGE.fullmatch(columns[0])):
                cells.append((line, columns))
    if cells:
        yield Sentence(cells, document, raw_text)


def columns_of(text: str, delimiter: str) -> list[str]:
    """Split at tabs or at runs of spaces; never at other white space, which can be a token."""
    if delimiter == "\t":
        return text.split("\t")
    return re.split(" +", text.rstrip(" ")) if "  " in text or text.endswith(" ") else text.split(" ")


def is_comment(text: str, shape: ConllLayout) -> bool:
    """Return whether a line before a sentence starts with # and is not a token `#` with its columns and its tag."""
    if not text.startswith("#"):
        return False
    columns = columns_of(text, shape.delimiter)
    if len(columns) not in shape.widths or (shape.delimiter == " " and bool(COMMENT.match(text))):
        return True
    return shape.spans and not is_span_tag(columns[shape.tag])  # `# id 7 domain=en` has as many columns as a token


def _tokens(path: Path, encoding: str) -> Iterator[str]:
    """Yield the lines that are certainly tokens: before a sentence, a line that starts with # may be a comment."""
    within = False
    for _, text in iterate_lines(path, encoding):
        if not text.strip(" \t\r") or text.startswith("-DOCSTART-"):
            within = False
        elif within or not text.startswith("#"):
            within = True
            yield text


def _delimiter(path: Path, encoding: str) -> str:
    """Return tab or space, whichever splits more lines."""
    rows = list(islice(_tokens(path, encoding), SURVEYED))
    tabs, spaces = sum("\t" in row for row in rows), sum("\t" not in row and " " in row for row in rows)
    return "\t" if tabs > spaces else " "


def detect_layout(path: Path, options: ReadOptions) -> ConllLayout:
    """Detect delimiter, numbers of columns, and the token and tag columns, from the full file."""
    delimiter, counts = _delimiter(path, options.encoding), Counter[int]()
    spans: Counter[int] = Counter()  # column -> lines where it looks like a tag
    numbers = 0
    for text in _tokens(path, options.encoding):
        columns = columns_of(text, delimiter)
        counts[len(columns)] += 1
        numbers += columns[0].isdecimal() or bool(WORD_RANGE.fullmatch(columns[0]))
        for i in range(1, len(columns)):
            spans[i] += is_span_tag(columns[i])
    total = counts.total()
    if not total:
        raise ValueError(f"{path}:1: no token in this file, only empty lines, borders or comments; write it again")
    widths = frozenset(n for n, count in counts.items() if count >= COMMON * total and n > 1)
    if not widths:
        raise ValueError(
            f"{path}:1: one column only; a CoNLL line is token and tag with a tab or space between: "
            'write both, or pass format="text"'
        )
    numbered = min(widths) > 2 and numbers > 0.95 * total
    token = _column(options, "tokens", min(widths), str(path))
    tag = _column(options, "tags", min(widths), str(path))
    if tag is None:
        likely = [i for i in range(1, min(widths)) if spans[i] > 0.9 * total]
        tag = likely[-1] if likely else min(widths) - 1
    token = int(numbered) if token is None else token
    return ConllLayout(delimiter, widths, token, tag, numbered, spans[tag] > 0.9 * total)


def _column(options: ReadOptions, role: str, width: int, file: str) -> int | None:
    column = (options.columns or {}).get(role)
    if column is None or column == role:
        return None
    if not column.isdecimal() or not 1 <= int(column) <= width:
        raise ValueError(f"{file}:1: no column {column!r} for {role}; the file has columns 1 to {width}")
    return int(column) - 1
