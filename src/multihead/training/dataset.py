"""Training datasets of a task: rows of files, split, encoded once into the token cache, and read from there."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multihead.data import token_cache
from multihead.data.readers.read import DataReader
from multihead.data.row_lengths import RowLengths
from multihead.data.sampler import EpochSampler
from multihead.data.split_statistics import split_key
from multihead.data.splits import VALID, is_valid, kth_smallest, sample_key
from multihead.data.token_blocks import TokenBlocks
from multihead.data.validation import raise_rejected
from multihead.io.files import read_own_json, write_json
from multihead.io.seal import seal, unseal
from multihead.tasks import Task, Values, Window
from multihead.tasks.task import WINDOW_FIELDS
from multihead.training.block_sampler import BlockOrder
from multihead.training.distillation import TeacherEnsemble
from multihead.training.loop import BatchOrder, TrainSettings

log = logging.getLogger(__name__)

STRETCH = 50  # sentences of a document that stay in one split
DTYPES = {
    "tokens": np.int32,
    "types": np.int8,
    "word": np.int32,
    "labels": np.int16,
    "offsets": np.int32,
    "span": np.int32,
    "target": np.int32,
}


class EncodeCounts(NamedTuple):
    """Counts of encoded rows: all, those with several windows, and truncated ones."""

    rows: int
    windowed: int
    cut: int


@dataclass(frozen=True)
class CachedDataset:
    """Encoded windows, memory-mapped. Arrays that `TokenCache` stores flat get their shape back here."""

    kept: token_cache.TokenCache
    shapes: dict[str, tuple[int, ...]]  # -1: as long as the window
    notes: tuple[str, ...] = ()  # dropped rows, and why
    read: str = ""  # report of the readers that filled the cache
    inputs: EncodeCounts | None = None  # None: the cache is older than this count

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, row: int) -> Window:
        return {name: values.reshape(self.shapes[name]) for name, values in self.kept[row].items()}

    @property
    def fields(self) -> list[str]:
        return [name for name in ("tokens", "target") if name in self.shapes]

    @property
    def sizes(self) -> RowLengths:
        """The tokens of each window; for pairs, of both sides together."""
        return RowLengths([self.kept], self.fields, joined=True)

    @property
    def lengths(self) -> RowLengths:
        """Lengths [N]; for pairs, of each side [N, 2]."""
        return RowLengths([self.kept], self.fields)

    @property
    def keys(self) -> list[str]:
        """Keys of the token cache: they change with the rows, the labels, the tokenizer and the windows."""
        return [self.kept.directory.name]

    @property
    def tokens(self) -> list[NDArray[np.integer]]:
        """The tokens of all windows, concatenated."""
        return [self.kept.values[name] for name in self.fields]

    def order(self, plan: TrainSettings) -> BatchOrder:
        return BatchOrder(self.lengths, plan)


class MixtureDataset:
    """Mixture of several datasets, each repeated per epoch by its weight."""

    def __init__(self, parts: Sequence[CachedDataset], weights: Sequence[float]) -> None:
        self.parts, self.weights = parts, weights
        self.starts = np.cumsum([0, *map(len, parts)])
        stores, fields = [part.kept for part in parts], parts[0].fields
        self.lengths, self.sizes = RowLengths(stores, fields), RowLengths(stores, fields, joined=True)
        self.notes = tuple(note for part in parts for note in part.notes)
        self.read = "\n".join(part.read for part in parts)
        known = [part.inputs for part in parts if part.inputs is not None]
        self.inputs = EncodeCounts(*map(sum, zip(*known, strict=True))) if len(known) == len(parts) else None

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, row: int) -> Window:
        part = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.parts[part][row - int(self.starts[part])]

    @property
    def keys(self) -> list[str]:
        return [key for part in self.parts for key in part.keys]

    @property
    def tokens(self) -> list[NDArray[np.integer]]:
        return [array for part in self.parts for array in part.tokens]

    def order(self, plan: TrainSettings) -> BatchOrder:
        return BatchOrder(self.lengths, plan, EpochSampler([len(part) for part in self.parts], self.weights, plan.seed))


class BlockDataset(TokenBlocks):
    """Blocks of running text from the token cache."""

    notes: tuple[str, ...] = ()
    read = ""

    @property
    def keys(self) -> list[str]:
        return [Path(str(file.filename)).parent.name for file in self.files if isinstance(file, np.memmap)]

    @property
    def tokens(self) -> list[NDArray[np.integer]]:
        return self.files

    def order(self, plan: TrainSettings) -> BlockOrder:
        return BlockOrder(self, plan)


TrainingData = CachedDataset | MixtureDataset | BlockDataset


def build_dataset(
    task: Task,
    train: Split,
    cache: Path,
    files: Sequence[Path],
    weights: Sequence[float] | None = None,
    teachers: TeacherEnsemble | None = None,
    beside: Split | None = None,
) -> TrainingData:
    """Build the training dataset, from the cache if possible. weights: one for each training file. beside: unlabeled
    inputs that the teachers label."""
    parts = [train] if weights is None else train.parts()
    if weights is not None and len(weights) != len(parts):
        what = "pairs of files" if train.reading.sources[0][1] == "parallel" else "training files"
        raise ValueError(f"data.weights has {len(weights)} numbers for {len(parts)} {what}; give one for each")
    sides = [f"{train.side} {train.limit} {number}/{len(parts)}" for number in range(len(parts))]
    keys = [cache_key(files, task, side, train.reading.how, teachers) for side in sides]
    if task.running:
        stores = [build_token_blocks(task, part, cache, key) for part, key in zip(parts, keys, strict=True)]
        return BlockDataset([store.values["tokens"] for store in stores], task.size, weights)
    counted = "" if task.labels else "train"  # with labels, all rows have been read and counted already
    datasets = [
        encode_dataset(task, part, cache, key, teachers, counted) for part, key in zip(parts, keys, strict=True)
    ]
    if beside is not None:
        assert teachers is not None
        named = [Path(file) for file, _, _ in beside.reading.sources]
        key = cache_key(named, task, "unlabelled", beside.reading.how, teachers)
        further = encode_dataset(task, beside, cache, key, teachers.pseudo_label, "unlabelled")
        datasets.append(replace(further, read=f"unlabelled: {further.read}"))
        weights = [*(weights or [1.0]), 1.0]
    return datasets[0] if weights is None else MixtureDataset(datasets, weights)


def build_token_blocks(task: Task, rows: Split, cache: Path, key: str) -> token_cache.TokenCache:
    """Tokenize documents to one stream; small vocabularies take two bytes per token."""
    dtype = np.uint16 if len(task.tokenizer) <= 1 << 16 else np.int32

    def build() -> Iterator[dict[str, Any]]:
        for values in task.training_rows(rows()):
            yield {"tokens": task.encode(values)[0]["tokens"]}
        raise_rejected("train", rows.reading)  # as in `encode_dataset`

    return token_cache.open_or_build(cache, key, {"tokens": dtype}, build)


def encode_dataset(
    task: Task,
    rows: Split,
    cache: Path,
    key: str,
    teachers: Callable[[Callable[[], Iterable[Values]], Path], Iterator[Values]] | None = None,
    counted: str = "",
) -> CachedDataset:
    """Return the windows of all rows, from the cache if possible. Rows that are unusable for training are dropped and
    reported.

    counted: the split whose rejected rows are counted here; too many raise an error, as in `check`.
    """

    def iterate_training_rows() -> Iterable[Values]:
        return task.training_rows(rows() if teachers is None else teachers(rows, cache))

    sidecar = cache / f"{key}.json"  # metadata of the cache
    cached = _read_sidecar(sidecar)
    if cached is None:
        token_cache.discard(cache, key)  # dropped rows are reported while it is filled
        if teachers is not None:
            log.info("computing the teacher's soft labels; they are cached, so an interrupted run resumes here")
    metadata = _window_fields(task, iterate_training_rows(), rows.reading) if cached is None else cached

    def build() -> Iterator[dict[str, Any]]:
        left: dict[str, list[Any]] = {}  # reason -> count, and place of the first one
        cut = {"rows": 0, "tokens": 0}
        used = windowed = 0
        for values in iterate_training_rows():
            windows, reason = encode_windows(task, values)
            if reason:
                left.setdefault(reason, [0, f"{values.get('file', 'row')}:{values.get('line', '?')}"])[0] += 1
                continue
            lost = sum(int(window.get("cut", 0)) for window in windows)
            cut = {"rows": cut["rows"] + (lost > 0), "tokens": cut["tokens"] + lost}
            used, windowed = used + 1, windowed + (len(windows) > task.readings)
            for window in windows:
                yield {name: array.reshape(-1) for name, array in window.items()}
        if counted:  # before the cache is complete, since the next start would skip this
            raise_rejected(counted, rows.reading)
        metadata.update(left=left, cut=cut, read=str(rows.reading), inputs=EncodeCounts(used, windowed, cut["rows"]))
        write_json(sidecar, seal(metadata))

    dtypes = {name: np.dtype(dtype) for name, dtype in metadata["fields"].items()}
    tokens_cached = token_cache.open_or_build(cache, key, dtypes, build, quiet=teachers is not None)
    notes = [f"{count:,} rows are not used: {why}; first: {place}" for why, (count, place) in metadata["left"].items()]
    if metadata.get("cut", {}).get("rows"):
        rows_, tokens = metadata["cut"]["rows"], metadata["cut"]["tokens"]
        notes.append(
            f"{rows_:,} rows are longer than {task.size} tokens: {tokens:,} tokens at their ends are truncated"
        )
    shapes = {name: tuple(shape) for name, shape in metadata["shapes"].items()}
    return CachedDataset(
        tokens_cached,
        shapes,
        tuple(notes),
        metadata["read"],
        EncodeCounts(*metadata["inputs"]) if "inputs" in metadata else None,
    )


def _read_sidecar(file: Path) -> dict[str, Any] | None:
    """Return the metadata next to a cache; None if it is missing, or damaged, which is logged."""
    if not file.exists():
        return None
    try:
        return unseal(read_own_json(file), str(file), ("shapes", "fields", "left", "read"), ("cut", "inputs"))
    except (ValueError, OSError) as error:
        log.warning("%s; the token cache is built again", error)
        return None


def encode_windows(task: Task, values: Values) -> tuple[list[Window], str]:
    """Encode a row, and return why it is unusable for training ("" if it is usable)."""
    try:
        windows = task.encode(values)
        return windows, task.skip_reason(windows)
    except ValueError as error:
        raise ValueError(f"{values['file']}:{values['line']}: {error}") from None


def _window_fields(task: Task, rows: Iterable[Values], reading: DataReader) -> dict[str, Any]:
    """Return the fields of a window, from the first usable row."""
    encoded = (encode_windows(task, values) for values in rows)
    first = next((windows[0] for windows, reason in encoded if windows and not reason), None)
    if first is None:
        raise ValueError(f"the training data has no usable row\n{reading}")
    return {
        # One axis has the window's length (-1), unless the field is per window.
        "shapes": {
            name: array.shape if name in WINDOW_FIELDS else (-1, *array.shape[1:]) for name, array in first.items()
        },
        "fields": {name: _stored_dtype(name, array) for name, array in first.items()},
        "left": {},
        "read": "",
    }


def _stored_dtype(name: str, array: NDArray[Any]) -> str:
    return np.dtype(array.dtype if array.dtype.kind == "f" else DTYPES.get(name, array.dtype)).str


def cache_key(
    files: Iterable[Path], task: Task, side: str, how: Mapping[str, Any], teachers: TeacherEnsemble | None = None
) -> str:
    """Return a hash of everything that the windows depend on: the files' bytes and reader settings, the tokenizer, the
    task and its options, and the teachers."""
    options = {
        "task": task.name,
        "labels": task.labels,
        "size": task.size,
        "overlap": task.overlap,
        "options": json.loads(json.dumps({k: v for k, v in task.options.items() if k != "decode"}, default=str)),
        "side": side,
        "how": json.loads(json.dumps(how, default=str)),
        **({} if teachers is None else {"taught": [*teachers.digests, task.distill_weight]}),
    }
    both = dict.fromkeys((task.tokenizer, task.tokenizer.target))
    return token_cache.cache_key(
        files,
        "\n".join(tokenizer_.inner.to_str() + (tokenizer_.template or "") for tokenizer_ in both).encode(),
        options,
    )


class Split:
    """Rows of a dataset in one split; each iteration reads the files again.

    limit: at most this many rows, sampled by a hash of their text, so that a smaller limit is a subset of a larger one.
    documents: split and sample runs of sentences of a document, since sentences are shown with their neighbors.
    """

    def __init__(
        self, reading: DataReader, side: str = "all", limit: int | None = None, documents: bool = False
    ) -> None:
        self.reading, self.side, self.limit, self.documents = reading, side, limit, documents
        self.last: int | None = None
        self.looked = False

    def __call__(self) -> Iterator[Values]:
        if self.limit is None:
            return self._rows()
        if not self.looked:  # once: the data of a run does not change
            places = (self._place(number, values) for number, values in enumerate(self._rows()))
            self.last, self.looked = kth_smallest(places, self.limit), True
        last = self.last
        numbered = enumerate(self._rows())
        return (values for number, values in numbered if last is None or self._place(number, values) <= last)

    def _place(self, number: int, values: Values) -> int:
        """Return the sampling rank of a row; the lowest are taken. For one long running text, its beginning."""
        if "of" in values:
            return number
        document = f"{values['file']}\n{values.get('document')}"
        return sample_key(document if self.documents else split_key(values), number)

    def parts(self) -> list[Split]:
        """Return one split for each file of the reader (or pair of files)."""
        readings = [DataReader([source], self.reading.options) for source in self.reading.sources]
        parts = [Split(reading, self.side, documents=self.documents) for reading in readings]
        if self.limit is not None:  # of all files together
            self()
            for part in parts:
                part.limit, part.last, part.looked = self.limit, self.last, True
        return parts

    def _located_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows; a document's chunk across the split border is cut in two."""
        for record in self.reading:
            values = record.placed
            cut = int(values["of"] * (1 - VALID)) - values["at"] if self.side != "all" and "of" in values else 0
            if 0 < cut < len(values["text"]):
                head, tail = values["text"][:cut], values["text"][cut:]
                yield {**values, "text": head}
                values |= {"text": tail, "at": values["at"] + cut, "line": values["line"] + head.count("\n")}
            yield values

    def _rows(self) -> Iterator[Values]:
        document, sentences, out = None, 0, False
        for values in self._located_rows():
            if not self.documents or self.side == "all" or values.get("document", 0) is None:
                out = self.side != "all" and is_held_out(values)
            else:
                key = (values["file"], values.get("document"))
                document, sentences = key, sentences + 1 if key == document else 0
                if sentences % STRETCH == 0:
                    out = is_held_out(values)
                # Context must not cross the split: for its sentences, a run of sentences is a document.
                values["document"] = f"{values.get('document')} from {sentences - sentences % STRETCH}"
            if self.side == "all" or out == (self.side == "valid"):
                yield values


def is_held_out(values: Values) -> bool:
    """Whether a training row is held out for validation: the end of one long document, else a tenth of the rows by
    hash."""
    if "of" in values:
        return int(values["at"]) >= int(values["of"] * (1 - VALID))
    return is_valid(split_key(values))
