"""The image cache: made once, goes on after a kill, names broken files."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from multihead.image import ImageProcessor, cache
from multihead.image.cache import build_cache
from multihead.image.sources import ImageExample

SIZE = (5, 6)


def examples(folder: Path, count: int = 9) -> list[ImageExample]:
    folder.mkdir(exist_ok=True)
    for number in range(count):
        Image.new("RGB", (8, 7), (number, 0, 0)).save(folder / f"{number}.png")
    (folder / "4.png").write_bytes(b"broken")
    return [ImageExample(folder / f"{number}.png", f"list.csv:{number + 2}") for number in range(count)]


def test_made_once_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "BLOCK", 2)
    rows, fit = examples(tmp_path / "images"), ImageProcessor(size=SIZE).fit
    calls: list[int] = []

    def counting(pixels: np.ndarray) -> np.ndarray:
        calls.append(int(pixels[0, 0, 0]))
        if len(calls) == 7:  # a kill in the middle, after three blocks
            raise KeyboardInterrupt
        return fit(pixels)

    with pytest.raises(KeyboardInterrupt):
        build_cache(rows, tmp_path / "cache", SIZE, counting)
    assert calls == [0, 1, 2, 3, 5, 6, 7]
    built = build_cache(rows, tmp_path / "cache", SIZE, counting)
    assert calls[7:] == [6, 7, 8], "blocks that were finished are not made again"
    assert built.pixels.shape == (9, *SIZE, 3)
    assert built.pixels[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 0, 5, 6, 7, 8]
    assert list(built.broken) == [4]
    assert built.broken[4].startswith("list.csv:6: ")
    again = build_cache(rows, tmp_path / "cache", SIZE, counting)
    assert len(calls) == 10
    assert again.broken == built.broken
    np.testing.assert_array_equal(again.pixels, built.pixels)


def test_a_changed_file_is_another_cache(tmp_path: Path) -> None:
    rows, fit = examples(tmp_path / "images"), ImageProcessor(size=SIZE).fit
    build_cache(rows, tmp_path / "cache", SIZE, fit)
    Image.new("RGB", (8, 7), (99, 0, 0)).save(tmp_path / "images" / "4.png")
    built = build_cache(rows, tmp_path / "cache", SIZE, fit)
    assert not built.broken
    assert built.pixels[4, 0, 0, 0] == 99
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_damaged_notes_mean_a_new_build(tmp_path: Path) -> None:
    rows, fit = examples(tmp_path / "images"), ImageProcessor(size=SIZE).fit
    build_cache(rows, tmp_path / "cache", SIZE, fit)
    (folder,) = (tmp_path / "cache").iterdir()
    (folder / "cache.json").write_text("{")
    assert build_cache(rows, tmp_path / "cache", SIZE, fit).pixels[8, 0, 0, 0] == 8
