"""The split depends on the text alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multihead.data.split_statistics import split_key
from multihead.data.splits import hash_fraction, is_valid, kth_smallest, sample_key, split


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
        assert hash_fraction(change(text)) == hash_fraction(text)
    assert 0 <= hash_fraction(text) < 1


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


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 20))
def test_the_last_of_the_smallest(places: list[int], count: int) -> None:
    unique = [place << 10 | number for number, place in enumerate(places)]
    last = kth_smallest(iter(unique), count)
    taken = [place for place in unique if last is None or place <= last]
    assert sorted(taken) == sorted(unique)[:count]


def test_a_draw_is_of_all_rows_and_pinned() -> None:
    places = [sample_key(f"row {i}", i) for i in range(10_000)]
    taken = [i for i, place in enumerate(places) if place <= (kth_smallest(places, 1000) or 0)]
    assert len(taken) == 1000
    assert 4700 < np.mean(taken) < 5300
    # Written down: another version or machine must draw the same rows.
    assert [i for i, place in enumerate(places) if place <= (kth_smallest(places, 5) or 0)] == [
        224,
        2072,
        3311,
        4931,
        8404,
    ]
    assert sample_key("Row  1", 7) >> 40 == sample_key("row 1", 8) >> 40
    held = sum(is_valid(f"row {i}") for i in taken)
    assert 70 < held < 130  # drawing has nothing to do with holding out


def test_what_stays_together() -> None:
    assert split_key({"tokens": ["a", "b"], "tags": ["O", "O"]}) == "a b"
    assert split_key({"question": "q", "context": "c", "answers": []}) == "c"
    assert is_valid(split_key({"text_a": "x", "text_b": "y"})) == is_valid("x\ny")
    assert split_key({"source": ["a", "b"], "target": "c"}) == "a b"
    assert split_key({"text": "t", "label": 3}) == "t"
    said = [{"conversation": [{"role": role, "content": "a"}]} for role in ("user", "system")]
    assert split_key(said[0]) != split_key(said[1])
