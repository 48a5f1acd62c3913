"""Every layout of an image dataset gives the same examples; a damaged one names its file and line."""

import base64
import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from multihead.image import ImageError, decode_image
from multihead.image.sources import find_splits, read_examples


def draw(path: Path, value: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 3), (value, value, value)).save(path)
    return path


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def test_class_folders_and_splits(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for label in ("cat", "dog"):
            draw(tmp_path / split / label / "a.png", 9)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("x")
    assert find_splits(tmp_path) == {"train": tmp_path / "train", "test": tmp_path / "test"}
    assert [example.labels for example in read_examples(tmp_path / "train")] == [("cat",), ("dog",)]
    with pytest.raises(ImageError, match="give one of these"):
        list(read_examples(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImageError, match="no folders"):
        list(read_examples(tmp_path / "empty"))


@pytest.mark.parametrize("zipped", [False, True])
def test_idx(zipped: bool, tmp_path: Path) -> None:
    pixels, numbers = np.arange(24, dtype=np.uint8).reshape(2, 3, 4), np.array([7, 0], dtype=np.uint8)
    end = ".gz" if zipped else ""
    images = tmp_path / f"train-images-idx3-ubyte{end}"
    for path, array in ((images, pixels), (tmp_path / f"train-labels-idx1-ubyte{end}", numbers)):
        path.write_bytes(gzip.compress(idx(array)) if zipped else idx(array))
    examples = list(read_examples(images))
    assert [example.labels for example in examples] == [("7",), ("0",)]
    np.testing.assert_array_equal(decode_image(examples[1].image, "L"), pixels[1])
    assert examples[1].place == f"{images}:2"
    for raw in (images.read_bytes()[:-5], b"", b"\0\0\x08\x09", b"\0\0\x08\x03" + b"\xff" * 12, b"junk"):
        images.write_bytes(raw)
        with pytest.raises(ImageError, match="idx3"):
            list(read_examples(images))


def test_tables(tmp_path: Path) -> None:
    raw = draw(tmp_path / "a.png", 5).read_bytes()
    (tmp_path / "t.csv").write_text("\ufeffpath,label\na.png,cat\n\na.png,dog\n", encoding="utf-8")
    (tmp_path / "t.jsonl").write_text(
        json.dumps({"base64": base64.b64encode(raw).decode(), "labels": ["cat", "pet"]}) + "\n"
    )
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"image": [{"bytes": raw, "path": None}], "label": [3]}), tmp_path / "t.parquet")
    want = {"t.csv": [("cat",), ("dog",)], "t.jsonl": [("cat", "pet")], "t.parquet": [("3",)]}
    for name, labels in want.items():
        examples = list(read_examples(tmp_path / name))
        assert [example.labels for example in examples] == labels
        assert (decode_image(examples[0].image) == 5).all()
        assert examples[0].place.startswith(str(tmp_path / name))
    assert list(read_examples(tmp_path / "t.csv"))[1].place == f"{tmp_path / 't.csv'}:4"


def test_captions(tmp_path: Path) -> None:
    draw(tmp_path / "Images" / "a.png", 5)
    (tmp_path / "f.token.txt").write_text("a.png#0\tA dog .\na.png#1\tA cat .\n")
    (tmp_path / "c.csv").write_text("image,caption\na.png,A dog .\na.png,A cat .\n")
    coco = {"images": [{"id": 4, "file_name": "a.png"}],
            "annotations": [{"image_id": 4, "caption": c} for c in ("A dog .", "A cat .")]}  # fmt: skip
    (tmp_path / "c.json").write_text(json.dumps(coco))
    for name in ("f.token.txt", "c.csv", "c.json"):
        (example,) = read_examples(tmp_path / name)
        assert example.captions == ("A dog .", "A cat .")
        assert decode_image(example.image).shape == (3, 4, 3)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("a.csv", "path,label\nx.png\n", r"a\.csv:2: .*cells"),
        ("a.csv", 'path,label\n"x.png,cat\nb,c\n', r"a\.csv:\d: .*quotes"),
        ("a.csv", "path,label\n", "no rows"),
        ("a.csv", "words,label\na,b\n", "no column of images"),
        ("a.csv", "path,label\n,b\n", r"a\.csv:2: path"),
        ("a.jsonl", '{"path": "a"}\n{oops\n', r"a\.jsonl:2: not JSON"),
        ("a.jsonl", '{"base64": "%%%"}\n', r"a\.jsonl:1: not base64"),
        ("a.json", "{}", "no COCO captions"),
        ("a.json", '{"images": [{"id": 1, "file_name": "x"}], "annotations": []}', "image 1: has no caption"),
        ("a.txt", "a.png no tab\n", r"a\.txt:1: no tab"),
        ("a.parquet", "PAR1", r"a\.parquet: cannot be read"),
        ("a.xlsx", "x", "give one of these"),
    ],
)
def test_faults_are_named(name: str, text: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=fault):
        list(read_examples(tmp_path / name))
    with pytest.raises(ImageError, match="no such"):
        read_examples(tmp_path / "missing.csv")
