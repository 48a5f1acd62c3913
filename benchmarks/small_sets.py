"""Small, noisy datasets for the comparison of our defaults with a plain loop: subsets, typos, lower case.

The held-out rows come from validation data or, where a set has none, from training rows that are never trained on: the
test splits stay unseen.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
Splits = tuple[list[Row], list[Row]]  # training rows, held-out rows
HELD_OUT = 1000  # rows to score on, at most
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class SmallSet:
    """How many rows of which dataset to train on, and how to spoil them (in training as in scoring)."""

    task: str
    read: Callable[[Path], Splits]
    rows: int
    typos: float = 0.0  # share of the words of four letters or more that get one
    lower: bool = False
    junk: float = 0.0  # share of the words of taggers behind which a handle or an address is put in, tagged O

    def draw(self, folder: Path, seed: int) -> Splits:
        """Return the training rows of a seed, and the held-out rows, which are the same for all seeds."""
        train, held_out = self.read(folder)
        held_out = [held_out[i] for i in np.random.default_rng(0).permutation(len(held_out))[:HELD_OUT]]
        draw = np.random.default_rng([1, seed])
        train = [train[i] for i in draw.permutation(len(train))[: self.rows]]
        return self._spoil(train, draw), self._spoil(held_out, np.random.default_rng(2))

    def _spoil(self, rows: Sequence[Row], draw: np.random.Generator) -> list[Row]:
        spoiled = [{name: self._spoil_value(name, value, draw) for name, value in row.items()} for row in rows]
        return [put_junk(row, self.junk, draw) for row in spoiled] if self.junk else spoiled

    def _spoil_value(self, name: str, value: Any, draw: np.random.Generator) -> Any:
        if name not in ("tokens", "text", "text_a", "text_b"):
            return value
        words = value.split(" ") if isinstance(value, str) else value
        words = [misspell(word, draw) if draw.random() < self.typos else word for word in words]
        words = [word.lower() if self.lower else word for word in words]
        return " ".join(words) if isinstance(value, str) else words


def misspell(word: str, draw: np.random.Generator) -> str:
    """Swap, drop, double or replace one letter behind the first; shorter words than four letters stay."""
    if len(word) < 4 or not word.isalpha():
        return word
    at = int(draw.integers(1, len(word) - 1))
    other = LETTERS[int(draw.integers(len(LETTERS)))]
    middle = (word[at + 1] + word[at], word[at + 1], 2 * word[at] + word[at + 1], other + word[at + 1])
    return word[:at] + middle[int(draw.integers(len(middle)))] + word[at + 2 :]


def put_junk(row: Row, share: float, draw: np.random.Generator) -> Row:
    """Put handles and addresses, which fall into many subwords, behind some words, as social media have them."""
    pairs = []
    for word, tag in zip(row["tokens"], row["tags"], strict=True):
        pairs.append((word, tag))
        if draw.random() < share:
            name = "".join(draw.choice([*LETTERS, *"0123456789_"], size=10))
            pairs.append((f"@{name}" if draw.random() < 0.5 else f"https://t.co/{name}", "O"))
    return {"tokens": [word for word, _ in pairs], "tags": mend_tags([tag for _, tag in pairs])}


def mend_tags(tags: Sequence[str]) -> list[str]:
    """Let an I-X that continues nothing any more open an entity."""
    before = ["O", *tags[:-1]]
    broken = [tag.startswith("I-") and last[2:] != tag[2:] for last, tag in zip(before, tags, strict=True)]
    return [f"B-{tag[2:]}" if wrong else tag for tag, wrong in zip(tags, broken, strict=True)]


def read_tags(train: str, held_out: str) -> Callable[[Path], Splits]:
    """Reader of two files with a word, a tab and its BIO tag a line."""

    def sentences(path: Path) -> list[Row]:
        blocks = path.read_text(encoding="utf-8").strip().split("\n\n")
        pairs = [[line.split("\t") for line in block.split("\n")] for block in blocks]
        return [{"tokens": [p[0] for p in block], "tags": [p[-1] for p in block]} for block in pairs]

    return lambda folder: (sentences(folder / train), sentences(folder / held_out))


def read_sst2(folder: Path) -> Splits:
    def rows(name: str) -> list[Row]:
        lines = (folder / "glue_sst2" / name).read_text(encoding="utf-8").strip().split("\n")[1:]
        return [dict(zip(("text", "label"), line.strip().rsplit("\t", 1), strict=True)) for line in lines]

    return rows("train.tsv"), rows("dev.tsv")


def read_trec(folder: Path) -> Splits:
    lines = (folder / "trec" / "TREC.train").read_text(encoding="latin-1").strip().split("\n")
    return part([{"text": line.split(" ", 1)[1], "label": line.split(":", 1)[0]} for line in lines])


def read_banking(folder: Path) -> Splits:
    with (folder / "banking77" / "train.csv").open(encoding="utf-8", newline="") as lines:
        return part([{"text": row["text"].strip(), "label": row["category"]} for row in csv.DictReader(lines)])


def read_stsb(folder: Path) -> Splits:
    def rows(name: str) -> list[Row]:
        lines = (folder / "stsb" / name).read_text(encoding="utf-8").strip().split("\n")
        cells = [line.split("\t") for line in lines]
        return [{"text_a": c[5].strip(), "text_b": c[6].strip(), "label": float(c[4])} for c in cells]

    return rows("sts-train.csv"), rows("sts-dev.csv")


def part(rows: Sequence[Row]) -> Splits:
    """Take held-out rows from the training rows of a set that has no others."""
    order = np.random.default_rng(0).permutation(len(rows))
    shuffled = [rows[i] for i in order]
    return shuffled[HELD_OUT:], shuffled[:HELD_OUT]


def write_rows(task: str, rows: Sequence[Row], path: Path) -> Path:
    """Write rows as a user has them: tagged words as CoNLL, others as JSON lines."""
    if task == "ner":
        path = path.with_suffix(".tsv")
        blocks = ("".join(f"{w}\t{t}\n" for w, t in zip(r["tokens"], r["tags"], strict=True)) for r in rows)
        path.write_text("\n".join(blocks), encoding="utf-8")
    else:
        path = path.with_suffix(".jsonl")
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


CONLL = read_tags("conll2003/train.bio.tsv", "conll2003/valid.bio.tsv")
EWT = read_tags("uner_ewt/train.bio.tsv", "uner_ewt/dev.bio.tsv")
SETS = {
    "uner_ewt": SmallSet("ner", EWT, 1000),
    "uner_ewt typos": SmallSet("ner", EWT, 1000, typos=0.3),
    "uner_ewt junk": SmallSet("ner", EWT, 1000, typos=0.15, lower=True, junk=0.1),
    "conll2003": SmallSet("ner", CONLL, 700),
    "conll2003 lower typos": SmallSet("ner", CONLL, 700, typos=0.3, lower=True),
    "sst2": SmallSet("classify", read_sst2, 700),
    "sst2 typos": SmallSet("classify", read_sst2, 700, typos=0.3),
    "trec": SmallSet("classify", read_trec, 545),
    "trec typos": SmallSet("classify", read_trec, 545, typos=0.3),
    "banking77": SmallSet("classify", read_banking, 1000),
    "stsb": SmallSet("match", read_stsb, 575),
    "stsb typos": SmallSet("match", read_stsb, 575, typos=0.3),
}
