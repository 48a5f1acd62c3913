"""Any number for any key: it is refused by name, or the run is set up."""

from __future__ import annotations

import math
import types
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from multihead.config import read
from multihead.config.run_config import SECTIONS
from multihead.config.toml import format_toml
from multihead.training.run import TrainingRun

EXTREMES = [0, 1, 2, -1, 10**4, 10**6, 10**9, 10**18, 2**63, 10**40, 1e-300, 1e-45, 1e30, 1e308, -1e308, 0.5, math.inf]
NUMBERS = st.sampled_from([*EXTREMES, -math.inf, math.nan]) | st.integers() | st.floats()
FILES = {
    "classify": "text,label\n" + "fine film,good\ndull plot,bad\n" * 12,
    "translate": "source,target\n" + "a film,ein Film\nthe end,das Ende\n" * 12,
}


def is_number(kind: Any) -> bool:
    if get_origin(kind) is Annotated:
        return is_number(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return any(map(is_number, get_args(kind)))
    return kind in (int, float)


def keys(*sections: str) -> list[str]:
    return [
        f"{section}.{name}"
        for section in sections
        for name, field in SECTIONS[section].model_fields.items()
        if is_number(field.annotation)
    ]


KEYS = {
    "classify": keys("data", "tokenizer", "model", "window", "train"),
    "translate": keys("decode"),
}


@pytest.fixture(scope="module", params=KEYS)
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranges")
    (folder / "train.csv").write_text(FILES[request.param], encoding="utf-8")
    text = (
        f'task = "{request.param}"\nout = "{folder / "run"}"\n[data]\ntrain = "{folder / "train.csv"}"\n'
        f'valid = "{folder / "train.csv"}"\n[tokenizer]\n'
        "vocab = 300\n[model]\ndim = 4\nlayers = 1\nheads = 1\nmax_length = 32\n[train]\nthreads = 1\n"
        'precision = "fp32"\n'
    )
    return request.param, text


def test_there_are_keys() -> None:
    assert {"train.lr", "train.clip", "train.threads", "model.inner", "data.limit"} <= set(KEYS["classify"])
    assert {"decode.beam", "decode.temperature"} <= set(KEYS["translate"])


def check(text: str, key: str, number: float) -> None:
    refused = ""
    try:
        TrainingRun(read(text, [f"{key}={format_toml(number)}"]), fresh=True)
    except ValueError as error:
        refused = str(error)
    assert not refused or key in refused


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 1e308, -1e308, 10**40])
def test_absurd_numbers_are_refused_by_name(run, number: float) -> None:
    for key in KEYS[run[0]]:
        with pytest.raises(ValueError, match=key.replace(".", r"\.")):
            read(run[1], [f"{key}={format_toml(number)}"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_number_is_refused_by_name_or_can_be_set_up(run, data: st.DataObject) -> None:
    check(run[1], data.draw(st.sampled_from(KEYS[run[0]])), data.draw(NUMBERS))


@pytest.mark.slow
def test_every_extreme_of_every_key(run) -> None:
    for key in KEYS[run[0]]:
        for number in EXTREMES:
            check(run[1], key, number)
