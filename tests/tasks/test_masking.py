"""Noise: how much is hidden, that it can be undone, and that it hangs on nothing but a seed and the tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.tasks.masking import apply_masks, choose_masked, encode_with_masks, infill_spans, make_generator
from multihead.text.tokenizer import Tokenizer

TOKENS = st.lists(st.integers(10, 99), min_size=1, max_size=60).map(np.array)


@given(TOKENS, st.floats(0.05, 0.9), st.integers(0, 2**40))
def test_whole_words_are_hidden_and_not_many_more_than_asked(tokens, share, seed):
    word = np.repeat(np.arange(len(tokens)), 3)[: len(tokens)]
    word[0] = -1
    chosen = choose_masked(word, share, make_generator(seed, tokens))
    if len(tokens) == 1:
        assert not chosen.any()
        return
    assert not chosen[0]
    assert chosen.any()
    for one in np.unique(word[word >= 0]):
        assert len(set(chosen[word == one].tolist())) == 1, "a word is hidden whole or not at all"
    assert chosen.sum() < share * (len(tokens) - 1) + 1 + 3


def test_four_fifths_become_the_mask():
    tokens = np.arange(100, 20_100)
    chosen = np.arange(20_000) % 2 == 0
    shown = apply_masks(tokens, chosen, 4, np.array([7, 8]), make_generator(1, tokens))
    assert (shown[~chosen] == tokens[~chosen]).all()
    assert (shown[chosen] == 4).mean() == pytest.approx(0.8, abs=0.02)
    assert np.isin(shown[chosen], (7, 8)).mean() == pytest.approx(0.1, abs=0.02)


@given(TOKENS, st.floats(0.05, 0.9), st.floats(1, 6), st.integers(0, 2**40))
def test_masks_stand_for_what_is_missing(tokens, share, span, seed):
    shown = infill_spans(tokens, share, span, 4, make_generator(seed, tokens))
    kept = shown[shown != 4]
    assert len(tokens) - len(kept) <= max(1, round(share * len(tokens)))
    rest = iter(tokens.tolist())
    assert all(token in rest for token in kept.tolist()), "what is left stands in its order"
    assert (shown == 4).any()


def test_a_third_is_hidden_in_stretches_of_three():
    tokens = np.arange(10, 5010)
    shown = infill_spans(tokens, 0.3, 3.0, 4, make_generator(0, tokens))
    assert len(tokens) - (shown != 4).sum() == 1500
    assert 400 < (shown == 4).sum() < 600


def test_it_hangs_on_seed_and_tokens_alone():
    tokens = np.arange(50)
    once, again = (infill_spans(tokens, 0.3, 3.0, 99, make_generator(5, tokens)) for _ in range(2))
    assert (once == again).all()
    assert (
        len(once) != len(infill_spans(tokens, 0.3, 3.0, 99, make_generator(6, tokens)))
        or (once != infill_spans(tokens, 0.3, 3.0, 99, make_generator(6, tokens))).any()
    )
    wide = make_generator(5, tokens.astype(np.int64)).random(4)
    assert (wide == make_generator(5, tokens.astype(np.int32)).random(4)).all()


def test_only_the_mask_is_control():
    tokenizer = Tokenizer.train(["the cat sat </s> on the mat"] * 3, "bpe", 300)
    ids = encode_with_masks(tokenizer, "the <mask> sat </s>", 40)
    assert ids.count(tokenizer.special["mask"]) == 1
    assert ids.count(tokenizer.special["eos"]) == 1, "the one at the end; the user's is text"
    assert tokenizer.decode([i for i in ids if i != tokenizer.special["mask"]]) == "the  sat </s>"
    with pytest.raises(ValueError, match="write <mask> where words are missing"):
        encode_with_masks(tokenizer, "the cat", 40)
    with pytest.raises(ValueError, match="the model's limit is 5"):
        encode_with_masks(tokenizer, "the <mask> sat on the mat and on", 5)
