"""Which heads each of several tasks uses."""

from __future__ import annotations

import numpy as np

from multihead.inspection.head_usage import HeadUsage


def test_whose_a_head_is() -> None:
    found = HeadUsage(["a", "b", "c"], {"mood": np.array([0.6, 0.3, 0.1]), "type": np.array([0.3, 0.2, 0.5])})
    assert [found.owner(place) for place in range(3)] == ["mood", None, "type"]
    assert found.shared_usage() == {("mood", "type"): np.float64(0.6)}


def test_a_head_that_nobody_uses_is_nobodys() -> None:
    found = HeadUsage(["a", "b"], {"mood": np.array([1.0, 0.0]), "type": np.array([1.0, 0.0])})
    assert found.owner(1) is None
