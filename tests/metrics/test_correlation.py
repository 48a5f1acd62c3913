"""Against scipy, at large offsets and with ties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as oracle

from multihead.metrics import Pearson, Spearman

whole = st.integers(-3, 3)  # many ties
pairs = st.lists(st.tuples(whole, whole), min_size=2, max_size=30)


@settings(max_examples=60, deadline=None)
@given(pairs, st.integers(1, 7))
def test_scipy(samples: list[tuple[int, int]], batch: int) -> None:
    x, y = np.array(samples, dtype=np.float64).T / 10
    pearson, spearman = Pearson(replicates=30), Spearman(replicates=30)
    for metric in (pearson, spearman):
        for start in range(0, len(x), batch):
            metric.add(x[start : start + batch], y[start : start + batch])
    got = pearson.result()["pearson"].value, spearman.result()["spearman"].value
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert np.isnan(got).all()
    else:
        want = oracle.pearsonr(x, y).statistic, oracle.spearmanr(x, y).statistic
        np.testing.assert_allclose(got, want, atol=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e6, -1e9])
def test_large_offsets(offset: float) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(-1000, 1000, 2000) / 1024  # so small a grain that the offset does not round it
    y = x + rng.integers(-1000, 1000, 2000) / 1024
    metric = Pearson(replicates=200)
    near = Pearson(replicates=200)
    for rows in np.array_split(np.arange(2000), 13):
        metric.add(x[rows] + offset, y[rows] - 2 * offset, rows)
        near.add(x[rows], y[rows], rows)
    want = oracle.pearsonr(x, y).statistic
    assert metric.result()["pearson"].value == pytest.approx(want, abs=1e-13)
    np.testing.assert_allclose(metric.replicates()["pearson"], near.replicates()["pearson"], atol=1e-12)


def test_merged_at_large_offsets() -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(-1000, 1000, 600) / 1024 + 1e7
    y = x + rng.integers(-1000, 1000, 600) / 1024
    whole_set, parts = Pearson(replicates=100), [Pearson(replicates=100) for _ in range(3)]
    whole_set.add(x, y, np.arange(600))
    for part, rows in zip(parts, np.array_split(rng.permutation(600), 3), strict=True):
        part.add(x[rows], y[rows], rows)
    parts[0].merge(parts[1])
    parts[0].merge(parts[2])
    assert parts[0].result()["pearson"].value == pytest.approx(whole_set.result()["pearson"].value, abs=1e-13)
    np.testing.assert_allclose(parts[0].replicates()["pearson"], whole_set.replicates()["pearson"], atol=1e-12)
    assert parts[0].bootstrap_sample == whole_set.bootstrap_sample


def test_replicates_of_ranks_are_ranks_of_replicates() -> None:
    """The counted form against scipy on the resampled values themselves."""
    rng = np.random.default_rng(4)
    x, y = rng.integers(0, 6, 40).astype(float), rng.integers(0, 6, 40).astype(float)
    metric = Spearman(replicates=5, seed=9)
    metric.add(x, y)
    generator = np.random.Generator(np.random.Philox(key=9))
    for value in metric.replicates()["spearman"]:
        draw = generator.integers(0, 40, 40)
        assert value == pytest.approx(oracle.spearmanr(x[draw], y[draw]).statistic, abs=1e-12)


def test_perfect_and_reversed() -> None:
    x = np.arange(20.0)
    for y, want in ((x**3, 1.0), (-np.exp(x), -1.0)):
        metric = Spearman()
        metric.add(x, y)
        score = metric.result()["spearman"]
        assert score.value == pytest.approx(want)
        assert score.interval is not None
        assert score.interval.low == pytest.approx(want)


@pytest.mark.parametrize("kind", [Pearson, Spearman])
def test_edges(kind: type[Pearson] | type[Spearman]) -> None:
    metric = kind(replicates=20)
    (score,) = metric.result().values()
    assert np.isnan(score.value)
    metric.add([], [])
    metric.add([0.1] * 7, [1.0, 2, 3, 4, 5, 6, 7])  # 0.1 has no exact mean: rounding must not pass for variation
    (score,) = metric.result().values()
    assert np.isnan(score.value)
    assert score.interval is not None
    assert np.isnan(score.interval.low)
    with pytest.raises(ValueError, match="nan or infinite"):
        metric.add([1.0], [np.nan])
    with pytest.raises(ValueError, match="expected twice"):
        metric.add([1.0], [1.0, 2.0])
    assert metric.bootstrap_sample.samples == 7
