"""Detect the format of a file from its suffix and its first 64 KiB."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from multihead.data.readers.lines import read_head
from multihead.data.readers.record import ReadOptions
from multihead.data.readers.tag_schemes import is_span_tag
from multihead.data.readers.text import looks_labeled

ENDINGS = {
    "jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet", "csv": "csv", "conll": "conll", "conllu": "conll",
    "conll2003": "conll", "iob": "conll", "iob1": "conll", "iob2": "conll", "bio": "conll", "bilou": "conll",
    "bioes": "conll", "bmes": "conll",
}  # fmt: skip

FEWEST = 20  # lines required to detect a format without a marker


def detect(path: Path, options: ReadOptions) -> str:
    """Return the name of the format in `read.FORMATS`."""
    head = read_head(path, options.encoding)
    if head.startswith(b"PAR1"):
        return "parquet"
    text = head.decode(options.encoding, "replace").removeprefix("\ufeff")
    ending = Path(path.name.removesuffix(".gz")).suffix.removeprefix(".").lower()
    if ending == "json":
        return _json(path, text)
    if ending == "csv" and _conll(text):
        return "conll"
    if ending in ENDINGS:
        return ENDINGS[ending]
    start = text.lstrip()[:200]
    if re.match(r'\{\s*("|\})', start) or re.match(r"\[\s*\{", start):
        return _json(path, text)
    if _conll(text):
        return "conll"
    label_wanted = options.columns is not None and "label" in options.columns
    if ending not in ("tsv", "tab") and _label_first(text, label_wanted):
        return "label-first"
    if "\t" in _first(text) or ending in ("tsv", "tab"):
        return "tsv"
    if _names_columns(_first(text), options.columns):
        return "csv"
    return "labelled" if (label_wanted or options.columns is None) and looks_labeled(path, options.encoding) else "text"


def _first(text: str) -> str:
    return next((line for line in text.split("\n") if line.strip()), "")


def _names_columns(first: str, columns: Mapping[str, str] | None) -> bool:
    """Return whether the first line names all requested columns, two or more; a pipe has no suffix."""
    names = {column for column in (columns or {}).values() if not column.isdecimal()}
    cells = ({cell.strip(' "\r') for cell in first.split(delimiter)} for delimiter in ",;|")
    return len(names) > 1 and any(names <= cells_here for cells_here in cells)


def _json(path: Path, text: str) -> str:
    start = text.lstrip()
    if start.startswith("["):
        return "json"
    if '"paragraphs"' in text and '"data"' in text:
        return "squad"
    rows = [line for line in text.split("\n") if line.strip()]
    if not rows:
        raise ValueError(f"{path}:1: white space only, no JSON; write an object per line, or an array of objects")
    if rows[0].rstrip().endswith("}") or len(rows) == 1:
        return "jsonl"
    raise ValueError(
        f"{path}:1: one JSON object over several lines, neither SQuAD's nor rows; "
        "write an object per line, or an array of objects"
    )


def _label_first(text: str, label_expected: bool) -> bool:
    """Return whether every line begins with a label.

    Either with fastText's prefix; or, where a label is expected and so plain text would not do, with a label of TREC's
    form (COARSE:fine) that repeats often, as speakers of a dialogue (BOB:hello) do not.
    """
    rows = [row for row in (text.split("\n")[:-1] or [text]) if row.strip()]
    if all(re.match(r"__label__\S+\s+\S", row) for row in rows):
        return bool(rows)
    matches = [re.match(r"[A-Z]{2,}:[a-z]+ \S", row) for row in rows] if label_expected and len(rows) >= FEWEST else []
    labels = {match[0][:-2] for match in matches if match}
    return bool(matches) and all(matches) and len(labels) <= len(rows) / 5


def _conll(text: str) -> bool:
    """Return whether lines have columns, one nearly all tags, with empty lines between sentences (or -DOCSTART-, or
    numbers).
    """
    rows = text.split("\n")[:-1] if text.count("\n") > 1 else text.split("\n")
    if any(row.startswith("-DOCSTART-") for row in rows[:10]):
        return True
    rows = [row.strip(" \t\r") for row in rows]  # no other white space: U+3000 can be a token
    tokens = [re.split("\t| +", row) for row in rows if row and not row.startswith("# ")]
    blanks = rows.count("")
    if not blanks or blanks > len(tokens):
        return False
    width = Counter(map(len, tokens)).most_common(1)[0][0]
    spans = (sum(len(row) > i and is_span_tag(row[i]) for row in tokens) for i in range(1, width))
    return any(count > 0.9 * len(tokens) for count in spans)
