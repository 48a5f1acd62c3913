import json
from functools import partial

import pytest
import torch

from multihead.cli import doctor
from multihead.machine import precision
from multihead.machine.precision import PrecisionProbe


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real probe takes seconds and has its own test."""
    found = {
        "bf16": PrecisionProbe("bf16", died="the process died with SIGILL"),
        "fp16": PrecisionProbe("fp16", error=0.001, ratio=3),
    }
    monkeypatch.setattr(precision, "measure", lambda: found)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.doctor(json=True)
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)  # NaN and Infinity are not JSON
    assert found["precision"]["auto"] == "fp32"
    assert found["precision"]["bf16"] == {
        "good": False,
        "verdict": "does not work: the process died with SIGILL",
    }
    assert found["threads"]["use"] >= 1
    assert 0 < found["memory"]["resident"] <= found["memory"]["peak"]


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_are_seen_not_said(threads: int, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(threads)
    assert doctor.kernels() == {
        "plain": "fused",
        "causal": "fused",
        "padded": "fused",
        "packed": "fused",
        "texts of 32 tokens": "fused" if threads == 1 else "explicit",  # plain products gain from a second thread
        "grouped heads": "fused",
        "value width ≠ key width": "fused",
        "attention dropout": "explicit",
        "learned bias, training": "explicit",
    }


def test_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    found = doctor.examine() | {"missing_extras": {"bench": ["keras"]}}
    doctor.show(found)
    shown = capsys.readouterr().out
    for text in (
        "auto is fp32",
        "SIGILL",
        "keras missing: pip install 'multihead[bench]'",
        "attention dropout, learned bias, training",
    ):
        assert text in shown
    assert shown.count("leave the fused kernel") == 1, "said plainly, and once"
