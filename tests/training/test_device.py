"""A run on a device that is not the processor: it stops, goes on, and its model opens anywhere."""

from __future__ import annotations

from importlib import import_module

import pytest

import multihead as mh
from multihead.training.events import Saved
from tests.fake_device import FAR


@pytest.mark.parametrize(
    "way", [{"average": "ema"}, {"average": "checkpoints", "keep_checkpoints": 3}, {"accumulate": 2}]
)
def test_a_run_far_away_stops_and_goes_on(runs, way, monkeypatch):
    monkeypatch.setattr(import_module("multihead.training.setup"), "select_device", lambda wanted: FAR)
    want = runs.whole("whole", **way)
    run = runs.make("stopped", **way)
    assert run.model.device == FAR
    for event in run:
        if isinstance(event, Saved) and event.step == 10:
            break
    assert runs.whole("stopped", **way) == want
    assert runs.log("stopped") == runs.log("whole")
    near, far = mh.load(run.out / "model"), mh.load(run.out / "model")
    monkeypatch.setattr("multihead.inference.pipeline.select_device", lambda wanted: FAR)
    assert far.to("auto").make_task().device == FAR
    texts = ["a lovely film", "poor plot"]
    labels = [[answer["label"] for answer in one.predict(texts)] for one in (near, far)]
    assert labels[0] == labels[1]
