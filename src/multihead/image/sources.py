"""Datasets of images: folders, IDX files, tables and caption files as one stream of `ImageExample`.

Nothing is decoded here. An example refers to its image by path, bytes or array, and knows the file and line it came
from, for errors.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
from numpy.typing import NDArray

from multihead.image.decode import ImageError, ImageSource, decode_base64
from multihead.io.files import parse_json, read_text

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".tif", ".tiff", ".bmp", ".ppm", ".pgm"}
SPLITS = {"train": "train", "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid", "test": "test"}
IMAGE_COLUMNS = ("image", "path", "file", "filename", "file_name", "image_path", "bytes", "base64")
LABEL_COLUMNS = ("label", "labels", "class", "category")
CAPTION_COLUMNS = ("caption", "captions", "text", "sentence", "comment", "raw")
IDX_LIMIT = 4 << 30  # bytes of one IDX file, unpacked
TEXT_LIMIT = 1 << 30


@dataclass(frozen=True)
class ImageExample:
    """One image with its labels or captions; place: the file, and the line or row in it."""

    image: ImageSource
    place: str
    labels: tuple[str, ...] = ()
    captions: tuple[str, ...] = field(default=())


def read_examples(source: str | Path) -> Iterator[ImageExample]:
    """Examples of one split: a folder per class, an images IDX file, .csv, .tsv, .jsonl, .parquet, COCO .json, or a
    Flickr8k token file (.txt)."""
    path = Path(source)
    if path.is_dir():
        return read_class_folders(path)
    if not path.exists():
        raise ImageError(f"{path}: no such file or folder; check the path")
    suffix = path.name.lower().removesuffix(".gz")
    if "idx3" in suffix or "images-idx" in suffix:
        return read_idx(path)
    readers = {
        ".csv": lambda: read_csv(path),
        ".tsv": lambda: read_csv(path, "\t"),
        ".jsonl": lambda: read_jsonl(path),
        ".parquet": lambda: read_parquet(path),
        ".json": lambda: read_coco(path),
        ".txt": lambda: read_flickr(path),
    }
    if path.suffix.lower() not in readers:
        raise ImageError(f"{path}: images are read from folders, IDX, {', '.join(readers)}; give one of these")
    return readers[path.suffix.lower()]()


def find_splits(folder: str | Path) -> dict[str, Path]:
    """The folders train/, valid/ (or val/, dev/) and test/ inside a folder, by split; {} where there is none."""
    found: dict[str, Path] = {}
    for path in sorted(Path(folder).iterdir()):
        split = SPLITS.get(path.name.lower()) if path.is_dir() else None
        if split in found:
            raise ImageError(f"{path}: a second folder of the split {split} beside {found[split].name}; keep one")
        if split is not None:
            found[split] = path
    return found


def read_class_folders(folder: Path) -> Iterator[ImageExample]:
    """A folder per class, its name the label; files in order of their names."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not classes:
        raise ImageError(f"{folder}: has no folders; put the images of each class into a folder with its name")
    if splits := find_splits(folder):
        raise ImageError(f"{folder}: holds {', '.join(sorted(splits))}; give one of these folders")
    count = 0
    for label in classes:
        for path in sorted(label.rglob("*")):
            if path.suffix.lower() in SUFFIXES and path.is_file():
                count += 1
                yield ImageExample(path, str(path), (label.name,))
    if not count:
        raise ImageError(f"{folder}: none of its {len(classes)} folders holds an image; check the path")


def read_idx_array(path: Path) -> NDArray[np.uint8]:
    """The uint8 array of an IDX file, plain or gzip."""
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if zipped else path.open("rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] != 8 or not 1 <= head[3] <= 3:
                raise ImageError(f"{path}: not an IDX file of bytes (its first bytes are {head.hex()}); get it again")
            sizes = np.frombuffer(file.read(4 * head[3]), dtype=">u4").tolist()
            total = int(np.prod([*sizes, 1], dtype=object))
            if len(sizes) != head[3] or total > IDX_LIMIT:
                raise ImageError(f"{path}: announces {sizes} bytes; get the file again")
            content = file.read(total + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ImageError(f"{path}: cut short or damaged ({error}); get the file again") from None
    if len(content) != total:
        raise ImageError(f"{path}: {sizes} makes {total:,} bytes, the file has another number; get it again")
    return np.frombuffer(content, dtype=np.uint8).reshape(sizes)


def read_idx(images: Path, labels: Path | None = None) -> Iterator[ImageExample]:
    """MNIST's pair of files; the labels' file is found by its name: images-idx3 -> labels-idx1."""
    labels = labels or images.with_name(images.name.replace("images", "labels").replace("idx3", "idx1"))
    if labels == images or not labels.exists():
        raise ImageError(f"{images}: its labels are missing; put {labels.name} beside it")
    pixels, numbers = read_idx_array(images), read_idx_array(labels)
    if pixels.ndim != 3 or numbers.ndim != 1 or len(pixels) != len(numbers):
        raise ImageError(f"{images}: images {pixels.shape} and labels {numbers.shape} do not fit; get both again")
    for row, (image, label) in enumerate(zip(pixels, numbers, strict=True)):
        yield ImageExample(image, f"{images}:{row + 1}", (str(label),))


def read_csv(path: Path, delimiter: str = ",") -> Iterator[ImageExample]:
    """A table with a header; several rows of one image are joined where the column is a caption."""
    # Not splitlines(): it also cuts at U+2028 and U+0085, which stand inside cells
    reader = csv.reader(io.StringIO(read_text(path, TEXT_LIMIT), newline=""), delimiter=delimiter, strict=True)
    rows: list[tuple[str, dict[str, Any]]] = []
    try:
        header = next(reader, [])
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise ImageError(f"{path}:{reader.line_num}: {len(cells)} cells, the header has {len(header)}; mend it")
            rows.append((f"{path}:{reader.line_num}", dict(zip(header, cells, strict=True))))
    except csv.Error as error:
        raise ImageError(f"{path}:{reader.line_num}: {error}; mend the quotes") from None
    return _from_rows(rows, path)


def read_jsonl(path: Path) -> Iterator[ImageExample]:
    lines = read_text(path, TEXT_LIMIT).split("\n")
    places = [(f"{path}:{number}", line) for number, line in enumerate(lines, 1) if line.strip()]
    return _from_rows([(place, parse_json(line, place)) for place, line in places], path)


def read_parquet(path: Path) -> Iterator[ImageExample]:
    """Parquet; an image column may hold paths, bytes, or the hub's {bytes, path}."""
    try:
        table = pyarrow.parquet.read_table(path)
    except Exception as error:  # pyarrow raises classes of its own
        raise ImageError(f"{path}: cannot be read ({str(error).splitlines()[0][:120]}); get it again") from None
    return _from_rows([(f"{path}:{row}", value) for row, value in enumerate(table.to_pylist(), 1)], path)


def read_flickr(path: Path) -> Iterator[ImageExample]:
    """Flickr8k's token file: `name.jpg#0<TAB>caption` in every line; images lie beside it or in Images/."""
    captions: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    for number, line in enumerate(read_text(path, TEXT_LIMIT).split("\n"), 1):
        if not line.strip():
            continue
        name, tab, text = line.rstrip("\r").partition("\t")
        if not tab or not text.strip():
            raise ImageError(f"{path}:{number}: no tab between image and caption; write name#0<TAB>caption")
        captions.setdefault(name.partition("#")[0], []).append(text.strip())
        places.setdefault(name.partition("#")[0], f"{path}:{number}")
    for name, texts in captions.items():
        yield ImageExample(_locate(path, name, places[name]), places[name], captions=tuple(texts))


def read_coco(path: Path) -> Iterator[ImageExample]:
    """COCO's caption file: images with id and file_name, annotations with image_id and caption."""
    content = parse_json(read_text(path, TEXT_LIMIT), str(path))
    try:
        captions: dict[Any, list[str]] = {}
        for note in content["annotations"]:
            captions.setdefault(note["image_id"], []).append(str(note["caption"]).strip())
        images = [(image["id"], str(image["file_name"])) for image in content["images"]]
    except (KeyError, TypeError) as error:
        raise ImageError(f"{path}: no COCO captions ({error} is missing); give images and annotations") from None
    for number, name in images:
        place = f"{path}: image {number}"
        if number not in captions:
            raise ImageError(f"{place}: has no caption; remove it, or add one")
        yield ImageExample(_locate(path, name, place), place, captions=tuple(captions[number]))


def _from_rows(rows: list[tuple[str, dict[str, Any]]], path: Path) -> Iterator[ImageExample]:
    if not rows:
        raise ImageError(f"{path}: has no rows; check the file")
    names = list(rows[0][1])
    image, label, caption = (
        next((name for name in known if name in names), None)
        for known in (IMAGE_COLUMNS, LABEL_COLUMNS, CAPTION_COLUMNS)
    )
    if image is None:
        raise ImageError(f"{path}: no column of images; name it one of {', '.join(IMAGE_COLUMNS)}")
    joined: dict[Any, ImageExample] = {}
    for place, row in rows:
        source = _source(row.get(image), image, path, place)
        texts = _texts(row.get(caption)) if caption else ()
        key = str(source) if caption and isinstance(source, Path) else place
        known = joined.get(key)
        if known is not None:  # another reference for the same image
            joined[key] = ImageExample(known.image, known.place, known.labels, known.captions + texts)
        else:
            joined[key] = ImageExample(source, place, _texts(row.get(label)) if label else (), texts)
    yield from joined.values()


def _source(value: Any, column: str, path: Path, place: str) -> ImageSource:
    if isinstance(value, dict):  # the hub's image feature
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str) or not value:
        raise ImageError(f"{place}: {column} is {str(value)[:40]!r}; give a path, bytes or base64")
    if column == "base64" or value.startswith("data:"):
        return decode_base64(value, place)
    return _locate(path, value, place)


def _locate(table: Path, name: str, place: str) -> Path:
    """The path of an image that a table names: relative to the table, or in a folder beside it."""
    if "\0" in name:
        raise ImageError(f"{place}: a path with a zero byte; mend it")
    folders = (table.parent, table.parent / "Images", table.parent / "images")
    return next((folder / name for folder in folders if (folder / name).exists()), table.parent / name)


def _texts(value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if isinstance(value, str) and value.startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return (str(value),)
    return tuple(map(str, value)) if isinstance(value, list | tuple) else (str(value),)
