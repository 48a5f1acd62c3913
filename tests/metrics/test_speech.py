"""Error rates equal jiwer's."""

import jiwer
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multihead.metrics.speech import SpeechErrors, normalize_speech

WORDS = st.lists(st.sampled_from(["a", "bb", "ccc", "the", "cat"]), min_size=1, max_size=8).map(" ".join)


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_error_rates_equal_jiwer(pairs: list[tuple[str, str]]) -> None:
    gold, said = [a for a, _ in pairs], [b for _, b in pairs]
    metric = SpeechErrors("none", replicates=0)
    metric.add(gold, said)
    result = metric.result()
    assert result["wer"].value == pytest.approx(100 * jiwer.wer(gold, said))
    assert result["cer"].value == pytest.approx(100 * jiwer.cer(gold, said))


def test_normalization_and_interval() -> None:
    assert normalize_speech("Don’t, 'STOP'!  Ｎow", "english") == "don't stop now"
    assert normalize_speech("Don't — stop.", "basic") == "don t stop"
    assert normalize_speech("今天，天气很好。", "basic") == "今天 天气很好"
    metric = SpeechErrors()
    metric.add(["one two", "three"] * 20, ["one too", "three"] * 20)
    score = metric.result()["wer"]
    assert score.value == pytest.approx(100 / 3)
    assert score.better == "lower"
    assert score.interval is not None
    assert score.interval.low < score.value < score.interval.high
