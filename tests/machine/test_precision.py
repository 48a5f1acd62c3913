"""The probe is replaced by small programs that behave as real machines were seen to."""

import math
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from multihead.machine import precision
from multihead.machine.precision import PrecisionProbe

ANSWER = 'import json; print(json.dumps({"precision": name, "error": 0.005, "ratio": 0.5}), flush=True)'
NEARLY = ANSWER.replace("0.005", "1e-6").replace("0.5}", "0.93}")  # what oneDNN looks like beside MKL on an EPYC
SLOWER = NEARLY.replace("0.93", "1.1")
DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    precision.measure.cache_clear()
    yield
    precision.measure.cache_clear()


def machine(monkeypatch: pytest.MonkeyPatch, **behaviour: str) -> None:
    """A machine where asking for a precision runs its piece of program, in a real child."""
    program = "import sys\nfor name in sys.argv[1:]:\n"
    for name, code in {"onednn": SLOWER, **behaviour}.items():
        program += f"    if name == {name!r}:\n        {code}\n"
    run = subprocess.run

    def instead(command: list[str], **options: object) -> object:
        return run([sys.executable, "-c", program, *command[3:]], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(precision.subprocess, "run", instead)


def test_a_fast_and_right_bf16_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, bf16=ANSWER, fp16=ANSWER)
    assert precision.choose_precision("auto") == "bf16"
    assert precision.choose_precision("fp16") == "fp16"


def test_what_libraries_print_beside_the_answer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNNL_VERBOSE=1 is set to find out what a training is busy with."""
    machine(monkeypatch, bf16=f"print('onednn_verbose,v1,info,oneDNN v3.7'); {ANSWER}", fp16=DIES)
    assert precision.choose_precision() == "bf16"


def test_sigill_costs_only_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, bf16=DIES, fp16=ANSWER)
    found = precision.measure()
    assert found["bf16"].died == "the process died with SIGILL"
    assert found["fp16"].good, "the precisions after the fatal one are still probed"
    assert precision.choose_precision("auto") == "fp32"
    with pytest.raises(ValueError, match="bf16 on this machine does not work: the process died with SIGILL; use fp32"):
        precision.choose_precision("bf16")


@pytest.mark.parametrize(
    "answer",
    [
        ANSWER.replace("0.5}", "1.2}"),  # right, but slower: what AMX masked off looks like
        ANSWER.replace("0.5}", "0.95}"),  # faster within the noise
        ANSWER.replace("0.005", "0.3"),  # fast and wrong
        ANSWER.replace("0.005", "float('nan')"),
        "raise RuntimeError('not implemented for BFloat16')",
        "sys.exit(0)",
        DIES,
    ],
)
def test_auto_is_fp32_unless_all_is_well(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    machine(monkeypatch, bf16=answer, fp16=ANSWER)
    assert precision.choose_precision("auto") == "fp32"


def test_fp32_by_another_library_where_half_precision_is_not_good(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, onednn=NEARLY, bf16=DIES, fp16=DIES)
    assert precision.choose_precision("auto") == "onednn"
    assert precision.choose_precision("onednn") == "onednn"


def test_bf16_inside_is_not_taken_for_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors with matrix units for bf16 use them behind the same switch: fast, and off by bf16's error."""
    machine(monkeypatch, onednn=ANSWER, bf16=DIES, fp16=DIES)
    assert precision.choose_precision("auto") == "fp32"
    with pytest.raises(ValueError, match=r"onednn on this machine wrong: off by 0\.5%; use fp32 or auto"):
        precision.choose_precision("onednn")


def test_products_are_given_back() -> None:
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    for name, inside in (("fp32", before), ("bf16", before), ("onednn", "bf16")):
        with precision.matmul_backend(name):
            assert matmul.fp32_precision == inside
        assert matmul.fp32_precision == before


def test_a_hang_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "PATIENCE", 1.0)
    machine(monkeypatch, bf16=ANSWER, fp16="import time; time.sleep(60)")
    found = precision.measure()
    assert found["bf16"].good, "what was answered before the hang counts"
    assert found["fp16"].died == "no answer in 1 s"


def test_fp32_needs_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision.subprocess, "run", None)
    assert precision.choose_precision("fp32") == "fp32"
    with pytest.raises(ValueError, match="unknown precision 'int3'; use one of auto, fp32, onednn, bf16, fp16"):
        precision.choose_precision("int3")


def test_verdicts() -> None:
    assert PrecisionProbe("bf16", error=0.01, ratio=0.5).verdict == "works, 0.50 of fp32's time"
    assert PrecisionProbe("bf16", error=0.01, ratio=2.0).verdict == "works, but not faster: 2.00 of fp32's time"
    assert PrecisionProbe("bf16", error=0.5, ratio=0.1).verdict == "wrong: off by 50.0%"
    assert PrecisionProbe("onednn", error=2e-5, ratio=0.1).verdict == "wrong: off by 2e-05"
    assert PrecisionProbe("bf16", error=math.nan, ratio=0.1).verdict == "wrong: off by nan"
    assert PrecisionProbe("bf16", died="a reason").verdict == "does not work: a reason"


@pytest.mark.slow
def test_this_machine() -> None:
    """The real probe answers for all, or says how it died."""
    found = precision.measure()
    assert set(found) == {"onednn", "bf16", "fp16"}
    for finding in found.values():
        assert finding.died or (finding.error < 0.02 and finding.ratio > 0)
