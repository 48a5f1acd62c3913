"""The split depends on the text alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multihead.data.split import fraction, is_valid, split


def test_about_a_tenth_and_pinned() -> None:
    texts = [f"第 {i} 句 sentence" for i in range(20_000)]
    train, valid = split(texts)
    assert 0.09 < len(valid) / len(texts) < 0.11
    assert np.array_equal(np.sort(np.concatenate([train, valid])), np.arange(len(texts)))
    # Written down: another version or machine must hold out the same rows.
    assert [i for i in range(60) if is_valid(f"row {i}")] == [41, 47, 53]


@settings(deadline=None)
@given(st.text(), st.sampled_from([str.upper, lambda t: f"  {t}\n", lambda t: t.replace(" ", "\u3000")]))
def test_copies_stay_together(text: str, change) -> None:  # type: ignore[no-untyped-def]
    if change(text).casefold().split() == text.casefold().split():
        assert fraction(change(text)) == fraction(text)
    assert 0 <= fraction(text) < 1


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcdefgh"), max_size=60), st.floats(0.05, 0.95))
def test_the_same_text_never_on_both_sides(texts: list[str], share: float) -> None:
    train, valid = split(texts, share)
    assert {texts[i] for i in train}.isdisjoint({texts[i] for i in valid})
    assert len(train) + len(valid) == len(texts)


def test_order_and_company_do_not_matter() -> None:
    texts = [f"row {i}" for i in range(500)]
    held = {texts[i] for i in split(texts)[1]}
    shuffled = texts[::-1] + ["more"] * 3
    assert {shuffled[i] for i in split(shuffled)[1]} - {"more"} == held


@pytest.mark.parametrize("share", [0, 1, -0.1])
def test_a_share_outside(share: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        split(["a"], share)
