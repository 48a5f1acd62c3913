"""JSON Lines, and JSON arrays decoded incrementally. NaN, duplicate keys and lone surrogates are rejected.

Python's own parser is used, not pyarrow's, which accepts duplicate keys and cannot name the line of a fault.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from multihead.data.readers.columns import missing_column_error
from multihead.data.readers.lines import BROKEN_GZIP, decode_error, iterate_lines, open_bytes
from multihead.data.readers.normalize import normalize_rows
from multihead.data.readers.record import FileFacts, ReadOptions, RejectedRow, Row

LONGEST_VALUE = 1 << 28  # characters of one element of an array
SEEN = 100  # rows that are searched for a column before it is reported missing


class InvalidJson(ValueError):
    """JSON that Python accepts and others do not; `code` groups it."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for i, key in enumerate(keys) if key in keys[:i])
        raise InvalidJson("duplicate key", f"the key {twice[:80]!r} appears twice in one object; remove one")
    return record


def _no_constant(name: str) -> Any:
    raise InvalidJson("NaN in JSON", f"{name} is not JSON; write a number or null")


STRICT = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)
LENIENT = json.JSONDecoder()


def parse(text: str) -> Any:
    """Return one JSON value, or raise InvalidJson with the fault."""
    try:
        value = STRICT.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidJson("not JSON", f"not JSON at column {error.colno}: {error.msg}") from None
    except InvalidJson:
        raise
    except RecursionError:
        raise InvalidJson("not JSON", "JSON nested too deep") from None
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidJson("not JSON", f"not JSON: {error}") from None
    check_surrogates(value, text)
    return value


def check_surrogates(value: Any, text: str) -> None:
    """Raise InvalidJson for a lone surrogate, which JSON can express but no encoding can store."""
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ord(error.object[error.start])
            raise InvalidJson("lone surrogate", f"\\u{half:04x} is half a character; write both halves") from None


def read_jsonl(path: Path, options: ReadOptions, facts: FileFacts) -> Iterator[Row]:
    """Yield records of a file with one object per line."""
    yield from to_records(_lines(path, options.encoding), path, options, facts)


def _lines(path: Path, encoding: str) -> Iterator[tuple[int, Any] | RejectedRow]:
    for line, text in iterate_lines(path, encoding):
        if not text.strip():
            yield RejectedRow(str(path), line, "an empty line", "empty line")
            continue
        try:
            yield line, parse(text)
        except InvalidJson as error:
            yield RejectedRow(str(path), line, str(error), error.code)


def read_json_array(path: Path, options: ReadOptions, facts: FileFacts) -> Iterator[Row]:
    """Yield records of an array of objects."""
    with JsonStream(path, options.encoding) as stream:
        if stream.peek() != "[":
            raise stream.error('expected an array "["; for an object per line pass format="jsonl"')
        yield from to_records(_elements(stream, path), path, options, facts)
        stream.end()


def _elements(stream: JsonStream, path: Path) -> Iterator[tuple[int, Any] | RejectedRow]:
    for _ in stream.items():
        try:
            line, value, _text = stream.value()
            yield line, value
        except InvalidJson as error:
            yield RejectedRow(str(path), stream.began, str(error), error.code)


def to_records(
    rows: Iterator[tuple[int, Any] | RejectedRow], path: Path, options: ReadOptions, facts: FileFacts
) -> Iterator[Row]:
    """Convert objects to records: the requested keys by their roles, or all of them."""
    columns = dict(options.columns) if options.columns is not None else None
    head = list(islice(rows, SEEN))
    known = [row for row in head if not isinstance(row, RejectedRow) and isinstance(row[1], dict)]
    names = list(dict.fromkeys(key for row in known for key in row[1]))
    if columns is not None and known:
        for role, column in columns.items():
            if column not in names:
                raise ValueError(missing_column_error(role, column, names, f"{path}:{known[0][0]}", numbered=False))
    facts.update(names=names, columns=columns if columns is not None else {name: name for name in names})
    for row in chain(head, rows):
        if isinstance(row, RejectedRow):
            yield row
            continue
        line, value = row
        yield from _rows(value, columns, options, (str(path), line))


def _rows(value: Any, columns: dict[str, str] | None, options: ReadOptions, place: tuple[str, int]) -> Iterator[Row]:
    file, line = place
    if not isinstance(value, dict):
        yield RejectedRow(file, line, f"a JSON {type(value).__name__}; use an object {{…}}", "not an object")
    elif columns is None:
        yield from normalize_rows(value, options, file, line)
    elif lost := next((column for column in columns.values() if column not in value), None):
        yield RejectedRow(file, line, f"no key {lost!r}; the row has: {', '.join(value) or 'none'}", "missing key")
    else:
        yield from normalize_rows({role: value[column] for role, column in columns.items()}, options, file, line)


class JsonStream:
    """A JSON text read incrementally: memory holds one element, whatever the file's size."""

    def __init__(self, path: Path, encoding: str = "utf-8") -> None:
        self.path, self.text, self.at, self.line, self.began = path, "", 0, 1, 1
        self.opening = open_bytes(path)
        self.decoder = codecs.getincrementaldecoder(encoding)()
        self.ended, self.started, self.read = False, False, 0  # read: bytes of the file

    def __enter__(self) -> JsonStream:
        self.bytes = self.opening.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.opening.__exit__(*error)

    def error(self, message: str) -> ValueError:
        return ValueError(f"{self.path}:{self.line}: {message}")

    def more(self) -> bool:
        """Read twice as much as is buffered, so that a long element costs linear time; return False at the end."""
        if self.ended:
            return False
        if len(self.text) - self.at > LONGEST_VALUE:
            raise self.error("one value of more than 256 million characters, or a quote that is never closed")
        try:
            block = self.bytes.read(max(1 << 16, 2 * (len(self.text) - self.at)))
            self.read += len(block)
            text = self.decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            raise self.decode_error(error) from None
        except UnicodeError as error:  # UTF-16 without its byte order mark
            raise self.error(f"{error}; check the encoding") from None
        except BROKEN_GZIP as error:
            raise self.error(f"broken gzip data ({error}); fetch it again") from None
        if not self.started:
            text, self.started = text.removeprefix("\ufeff"), True
        self.ended = not block
        self.text, self.at = self.text[self.at :] + text, 0
        return True

    def decode_error(self, error: UnicodeDecodeError) -> ValueError:
        """Convert the decoding error of a block to that of its line, as far as it is buffered."""
        buffered = self.text[self.at :].encode(error.encoding, "replace")
        content, at = buffered + error.object, len(buffered) + error.start
        number = self.line + content[:at].decode(error.encoding, "replace").count("\n")
        start = content.rfind(b"\n", 0, at) + 1
        raw = content[start:].split(b"\n", 1)[0]
        line = UnicodeDecodeError(error.encoding, raw, at - start, at - start + 1, error.reason)
        return decode_error(self.path, number, self.read - len(content) + start, line)

    def skip(self, to: int) -> None:
        self.line += self.text.count("\n", self.at, to)
        self.at = to

    def peek(self) -> str:
        """Return the next character that is not white space; '' at the end."""
        while True:
            at = self.at
            while at < len(self.text) and self.text[at] in " \t\r\n":
                at += 1
            self.skip(at)
            if at < len(self.text):
                return self.text[at]
            if not self.more():
                return ""

    def take(self, expected: str) -> None:
        if (next_char := self.peek()) != expected:
            what = f"{next_char!r}" if next_char else "the end of the file: cut off? Fetch it again"
            raise self.error(f"not JSON: expected {expected!r}, found {what}")
        self.skip(self.at + 1)

    def items(self) -> Iterator[None]:
        """Yield at the position of each element of an array; the caller reads the value."""
        self.take("[")
        if self.peek() == "]":
            self.take("]")
            return
        while True:
            yield None
            if self.peek() == "]":
                self.take("]")
                return
            self.take(",")

    def value(self) -> tuple[int, Any, str]:
        """Return (line, value, its text) of the value here. InvalidJson leaves the stream after the value."""
        self.peek()
        self.began, invalid = self.line, None
        while True:
            try:
                value, end = (LENIENT if invalid else STRICT).raw_decode(self.text, self.at)
            except InvalidJson as error:
                invalid = error
                continue
            except RecursionError:
                raise self.error("not JSON: nested too deep") from None
            except json.JSONDecodeError as error:
                cut_off = error.pos >= len(self.text) - 16 or error.msg.startswith("Unterminated string")
                if cut_off and self.more():
                    continue
                self.skip(min(error.pos, len(self.text)))
                hint = "; the file seems cut off, fetch it again" if cut_off else "; fix it"
                raise self.error(f"not JSON: {error.msg}{hint}") from None
            if end == len(self.text) and self.more():
                continue  # 12 could continue as 123
            text = self.text[self.at : end]
            self.skip(end)
            if invalid is not None:
                raise invalid
            check_surrogates(value, text)
            return self.began, value, text

    def end(self) -> None:
        if next_char := self.peek():
            raise self.error(f"{next_char!r} after the end of the JSON; use one array")
