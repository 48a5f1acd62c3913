"""Files to records, streaming. rows in = `used` + `rejected.total`; every reject names its file and line.

| what is wrong | what happens |
|---|---|
| no such file, a directory, an empty file, a Git LFS pointer, binary or broken gzip or Parquet data | stops |
| not UTF-8 (or not the encoding given), with line, byte and the encoding to pass | stops |
| unknown format, missing column ("the file has: …"), two columns of one name | stops |
| parallel files of different length; JSON arrays and SQuAD files that are not JSON or cut off | stops |
| tag schemes mixed beyond slips (IOB1 and BIO, BILOU and BMES) | stops |
| an empty line where every line is a row; an empty text, label, source, target, token or tag | row rejected |
| wrong number of fields; an unclosed or misplaced quote (its line only); a stray \\r; a NUL character | row rejected |
| a line that is no JSON object, a missing key, NaN, duplicate keys, lone surrogates, wrong types | row rejected |
| unknown tag prefix, a tag without type, an entity of BILOU/BMES not opened or not closed | sentence rejected |
| a conversation without an answer, a message that is empty or of an unknown role | conversation rejected |
| SQuAD: no answer and not impossible, impossible with answers, no answer in its place | question rejected |
| an object, bytes or a list in a list as a label, or an empty one in a list | row rejected |
| I- after O in a BIO file (read as B-, as conlleval does); white space around a label | used, listed in `repaired` |
| a quoted row over several lines; one of several SQuAD answers out of place (dropped) | used, listed in `repaired` |
| byte order mark, CRLF, U+2028, U+0085, form feed, no \\n at the end | used |

A row is a line, a chunk of a document, a quoted CSV row, a JSON element, a Parquet row, a CoNLL sentence, a SQuAD
question or a conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from multihead.data.readers.chat import has_conversations, read_conversations
from multihead.data.readers.columns import is_string_list
from multihead.data.readers.conll import read_conll
from multihead.data.readers.csv import read_csv
from multihead.data.readers.detect import detect
from multihead.data.readers.documents import read_document
from multihead.data.readers.json import read_json_array, read_jsonl
from multihead.data.readers.lines import read_head
from multihead.data.readers.notation import choose_notation
from multihead.data.readers.parquet import read_parquet
from multihead.data.readers.record import FileFacts, ReadOptions, Record, RejectedRow, Row, RowIssues
from multihead.data.readers.squad import read_squad
from multihead.data.readers.tag_schemes import TagCounts, detect_scheme, is_span_tag, named_scheme
from multihead.data.readers.text import read_label_first, read_labeled, read_pairs, read_parallel, read_plain_text
from multihead.tasks.spec import SPECS

FormatReader = Callable[[Path, ReadOptions, FileFacts], Iterator[Row]]
FORMATS: dict[str, FormatReader] = {
    "conll": read_conll,
    "csv": read_csv,
    "tsv": read_csv,
    "jsonl": read_jsonl,
    "json": read_json_array,
    "chat": read_conversations,
    "parquet": read_parquet,
    "squad": read_squad,
    "text": read_plain_text,
    "document": read_document,
    "pairs": read_pairs,
    "labelled": read_labeled,
    "label-first": read_label_first,
}  # and "parallel", which reads two files
LISTS = ("jsonl", "json", "parquet")  # formats in which a value can be a list: of words, of tags
Paths = str | Path | Sequence[str | Path]


class DataReader:
    """Records of one or more files, read again by every loop; the counts are those of the latest loop."""

    def __init__(
        self,
        sources: Sequence[tuple[str, str, Callable[[FileFacts], Iterator[Row]]]],
        options: ReadOptions | None = None,
    ) -> None:
        self.sources, self.options = sources, options or ReadOptions()
        self.wanted: tuple[str, ...] = ()  # roles that a row must have, in self-describing formats
        self.used = 0
        self.rejected = RowIssues()
        self.repaired = RowIssues()
        self.found: dict[str, FileFacts] = {file: {"format": format} for file, format, _ in sources}

    @property
    def rows(self) -> int:
        return self.used + self.rejected.total

    @property
    def how(self) -> dict[str, Any]:
        """Everything except their bytes that determines the records of the files."""
        return {"formats": [format for _, format, _ in self.sources], **asdict(self.options)}

    @property
    def scheme(self) -> str | None:
        """The tag scheme of the files (their records hold BIO), known once the loop has begun."""
        return " and ".join(sorted({f["scheme"] for f in self.found.values() if "scheme" in f})) or None

    @property
    def notation(self) -> str:
        """The letters of the tags of all files (`data.notation`); "": none, or several."""
        notations = {facts["notation"] for facts in self.found.values() if facts.get("notation")}
        return notations.pop() if len(notations) == 1 else ""

    def __iter__(self) -> Iterator[Record]:
        """Yield the records; a loop left early leaves the counts of the rows it read."""
        self.used, self.rejected, self.repaired = 0, RowIssues(), RowIssues()
        for file, _, rows in self.sources:
            begun = False
            for row in rows(self.found[file]):
                if isinstance(row, Record):
                    if not begun:
                        check_format(row, self.wanted)
                        begun = True
                    # Later rows of JSON may lack what the first one has; no task looks again.
                    elif lacking := next((role for role in self.wanted if role not in row.values), None):
                        reason = f"no key {lacking!r}; the row has: {', '.join(row.values) or 'none'}"
                        self.rejected.add(RejectedRow(row.file, row.line, reason, "missing key"))
                        continue
                    self.used += 1
                    yield row
                elif isinstance(row, RejectedRow):
                    self.rejected.add(row)
                else:
                    self.repaired.add(row)

    def __str__(self) -> str:
        parts = [f"{self.rows:,} rows: {self.used:,} used, {self.rejected.total:,} rejected"]
        parts += [f"  {count:,} × {code}" for code, count in self.rejected.reasons.most_common()]
        parts += [f"  first: {self.rejected[0]}"] if self.rejected else []
        parts += [f"  {count:,} × tolerated: {code}" for code, count in self.repaired.reasons.most_common()]
        return "\n".join(parts)


def check_format(row: Record, roles: Sequence[str]) -> None:
    """Raise ValueError where a self-describing file lacks the requested roles."""
    if any(role not in row.values for role in roles):
        has = ", ".join(name for name in row.values if name != "document")
        place, fix = f"{row.file}:{row.line}", "name another file, or another task"
        if "tags" in roles:
            likely = " and ".join(f'data.{role} = "{name}"' for role, name in _find_tag_columns(row.values).items())
            fix = f"set {likely}" if likely else f'{fix}; for one word and tag per line, data.format = "conll"'
        raise ValueError(f"{place}: the task needs {' and '.join(roles)}, the file has {has}; {fix}")


def _find_tag_columns(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns that seem to hold tags, and tokens if those have another name: lists of one length."""
    lists = {name: value for name, value in values.items() if isinstance(value, list) and value}
    spans = [name for name, value in lists.items() if all(isinstance(tag, str) and is_span_tag(tag) for tag in value)]
    named = [name for name in lists if "tag" in name.casefold() or "label" in name.casefold()]
    best = [*(name for name in named if "ner" in name.casefold()), *spans, *named]
    if not best:
        return {}
    tags = best[0]
    alike = [name for name in lists if name not in (*spans, *named) and len(lists[name]) == len(lists[tags])]
    words = "tokens" if "tokens" in lists else next((name for name in alike if is_string_list(lists[name])), "tokens")
    return {role: name for role, name in (("tokens", words), ("tags", tags)) if role != name}


def read_records(
    path: Paths,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    task: str = "",
    **options: Any,
) -> DataReader:
    """Return a reader of one or several files. `columns`: role -> the file's column by name, or by number from 1.

    task: how plain text is read without a format: one document for a task of documents (where JSON without such a
    column may hold conversations); for tasks with a source and a target, several plain files are parallel; else one row
    per line.

    Options: `encoding`, `delimiter`, `header`, `quoting`, `scheme`; missing ones are detected and reported in
    `reading.found`. Faults of a whole file are raised here or with the first row.
    """
    if unknown := next((name for name in options if name not in ReadOptions.__slots__), None):
        near = get_close_matches(unknown, ReadOptions.__slots__, n=1)
        raise ValueError(f"unknown option {unknown!r}{f'; did you mean {near[0]!r}?' if near else ''}")
    settings = ReadOptions(columns, **options)
    if settings.scheme is not None:
        settings = replace(settings, scheme=named_scheme(settings.scheme))
    files = [Path(path)] if isinstance(path, str | Path) else [Path(p) for p in path]
    if not files:
        raise ValueError("no file was given")
    if format is None and columns is not None and "target" in columns and len(files) % 2 == 0:
        format = "parallel" if all(detect(file, settings) == "text" for file in files) else None
    if format == "parallel":
        return _parallel(files, settings)
    if format is not None and format not in FORMATS:
        near = get_close_matches(format, [*FORMATS, "parallel"], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown format {format!r}{hint}; there are: {', '.join(FORMATS)}, parallel")
    spec = SPECS.get(task)
    sources = []
    for file in files:
        detected = format or detect(file, settings)
        if spec is not None and spec.documents and format is None:
            talk = detected in ("jsonl", "json") and has_conversations(file, settings)
            detected = "chat" if talk else "document" if detected == "text" else detected
        if (read_head(file, settings.encoding)[:4] == b"PAR1") != (detected == "parquet"):
            what = "Parquet data" if detected != "parquet" else "no Parquet data"
            raise ValueError(f"{file}:1: this is {what}, but format is {detected!r}; leave the format out")
        tagged = spec is not None and spec.tags_words and detected in LISTS
        reader = partial(with_tag_scheme, FORMATS[detected]) if tagged else FORMATS[detected]
        sources.append((str(file), detected, partial(reader, file, settings)))
    reading = DataReader(sources, settings)
    if all(format != "chat" for _, format, _ in sources):  # conversations have no columns
        named = spec.columns if spec is not None and spec.self_describing else ()
        reading.wanted = tuple(columns) if columns else named
    return reading


def has_column(path: Paths, name: str, **options: Any) -> bool:
    """Return whether the first row of a file has a column."""
    first = next(iter(read_records(path, **options)), None)
    return first is not None and name in first.values


def with_tag_scheme(reader: FormatReader, path: Path, options: ReadOptions, facts: FileFacts) -> Iterator[Row]:
    """Yield rows with tokens and tags, after a first pass that detects the tag scheme."""
    if options.scheme is None:
        survey = TagCounts()
        for row in reader(path, options, {}):
            if isinstance(row, Record) and "tags" in row.values:
                survey.add((row.line, tag) for tag in row.values["tags"])
        scheme = detect_scheme(survey, str(path))
        options = replace(options, scheme=scheme)
        facts.update(scheme=scheme, letters=dict(survey.letters), notation=choose_notation(survey, ""))
    yield from reader(path, options, facts)


def _parallel(files: list[Path], settings: ReadOptions) -> DataReader:
    if len(files) % 2:
        raise ValueError(
            f'format "parallel" reads pairs of files, a source and its target; {len(files)} given: name both of each'
        )
    for file in files:
        read_head(file, settings.encoding)
    pairs = list(zip(files[::2], files[1::2], strict=True))
    return DataReader([(str(pair[0]), "parallel", partial(read_parallel, pair, settings)) for pair in pairs], settings)
