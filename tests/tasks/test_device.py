"""Every task trains, scores and answers on a device that is not the processor, as it does on the processor."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch

from multihead.inference.engine import evaluate, predict_rows
from multihead.machine import device
from tests.fake_device import FAR
from tests.tasks.test_contract import ROWS, asked, make, train

SEARCH = {"max_length": 12, "beam": 3, "nbest": 2, "no_repeat_ngram": 2, "alignment": True}
DRAWN = {"max_length": 12, "sample": True, "top_p": 0.9, "repetition_penalty": 1.2}
KINDS = {
    **{name: (name, {}) for name in ROWS},
    "ner with a crf": ("ner", {"crf": True, "case": True}),
    "translate by beam search": ("translate", {"decode": SEARCH}),
    "generate by draws": ("generate", {"decode": DRAWN}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_far_away_all_is_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, options = KINDS[kind]
    model, task, rows = make(name, **options)
    monkeypatch.setattr(
        torch.__future__, "_swap_module_params_on_conversion", True
    )  # a weight tied to another stays so
    there, far_task = deepcopy(model).to(FAR), deepcopy(task)
    far_task.device = FAR
    assert there.device == FAR
    want = [step.loss for step in train(model, task, rows, steps=6)]
    assert [step.loss for step in train(there, far_task, rows, steps=6)] == pytest.approx(want, rel=1e-4)
    scores = [evaluate(*pair, rows[:8], 0).result() for pair in ((model, task), (there, far_task))]
    near, far = ({key: score.value for key, score in found.items()} for found in scores)
    assert far == pytest.approx(near, rel=1e-3)
    near, far = (
        [prediction for _, prediction in predict_rows(*pair, asked(task, rows[:4]))]
        for pair in ((model, task), (there, far_task))
    )
    assert flat(far) == pytest.approx(flat(near), abs=1e-3)


def flat(thing: Any, place: str = "") -> dict[str, Any]:
    """Numbers and texts of nested answers by their places."""
    if isinstance(thing, dict | list):
        parts = thing.items() if isinstance(thing, dict) else enumerate(thing)
        return {key: value for name, part in parts for key, value in flat(part, f"{place}/{name}").items()}
    return {place: thing}


def test_a_device_that_is_not_there() -> None:
    assert device.select_device("auto").type in device.available_devices()
    assert device.select_device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match="sees cpu here; use one of these or auto"):
        device.select_device("cuda:3")
