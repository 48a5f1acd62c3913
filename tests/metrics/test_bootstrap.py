"""The weights are Poisson(1) and depend on nothing but (seed, sample); intervals cover the truth as often
as they say."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multihead.metrics import Bootstrap, ClassificationMetric, EntityMetric, Pearson, Spearman, SquadMetric, percentile
from multihead.metrics.bootstrap import SHARES, poisson, round_exact, weights_of


def test_shares_are_poisson() -> None:
    k, share = np.arange(len(SHARES)), np.array(SHARES) / 65536
    assert sum(SHARES) == 65536
    assert (share @ k, share @ (k - 1) ** 2) == (1.0, 1.0)
    factorials = np.array([1, 1, 2, 6, 24, 120, 720, 5040, 40320])
    np.testing.assert_allclose(share, np.exp(-1) / factorials, atol=1e-4)


def test_weights_are_read_from_the_generator_s_bits() -> None:
    """Frozen: a published interval must come out again."""
    table = np.repeat(np.arange(9), SHARES)
    bits = np.random.Philox(key=5, counter=7 * 63).random_raw(4 * 63 * 200).astype("<u8").view("<u2")
    weights = poisson(7, 207, 1000, seed=5)
    np.testing.assert_array_equal(weights, table[bits].reshape(200, 1008)[:, :1000])
    assert any(np.isin(np.cumsum(SHARES)[:-1], bits))  # a limit itself was drawn
    assert poisson(0, 1, 16, seed=0)[0].tolist() == [2, 0, 1, 0, 2, 1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 1]


def test_weights_follow_the_shares() -> None:
    weights = poisson(0, 3000, 1000, seed=5)
    found = np.bincount(weights.ravel(), minlength=9) / weights.size
    np.testing.assert_allclose(found, np.array(SHARES) / 65536, atol=1e-3)
    centred = weights - 1.0
    between = np.corrcoef(centred[:, ::50].T) - np.eye(20)  # replicates do not know of each other
    assert np.abs(between).max() < 5 / np.sqrt(3000)
    neighbours = (centred[1:] * centred[:-1]).mean()  # nor do samples
    assert abs(neighbours) < 5 / np.sqrt(weights.size)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=30), st.integers(1, 40), st.integers(0, 2**64))
def test_a_weight_depends_on_seed_and_sample_only(samples: list[int], replicates: int, seed: int) -> None:
    index = np.sort(np.array(samples))
    alone = [poisson(i, i + 1, replicates, seed)[0] for i in index]
    np.testing.assert_array_equal(weights_of(index, replicates, seed), alone)


def test_seeds_and_samples_differ() -> None:
    rows = [poisson(i, i + 1, 64, seed)[0].tobytes() for i in (0, 1, 2**40) for seed in (0, 1)]
    assert len(set(rows)) == 6


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(40)), st.integers(1, 5), st.integers(1, 12))
def test_order_shards_and_batches_do_not_matter(order: list[int], shards: int, batch: int) -> None:
    stats = round_exact(np.random.default_rng(0).random((40, 3)) * 5)
    whole = Bootstrap(3, 50, seed=3)
    whole.add(stats)
    parts = [Bootstrap(3, 50, seed=3) for _ in range(shards)]
    for start in range(0, 40, batch):
        rows = order[start : start + batch]
        parts[start // batch % shards].add(stats[rows], rows)
    merged = Bootstrap(3, 50, seed=3)
    for part in parts:
        merged.merge(part)
    np.testing.assert_array_equal(merged.sums, whole.sums)
    np.testing.assert_array_equal(merged.total, whole.total)
    assert merged.bootstrap_sample == whole.bootstrap_sample


def test_wide_statistics_are_summed_as_narrow_ones() -> None:
    rng = np.random.default_rng(0)
    stats = np.eye(40)[rng.integers(0, 40, 700)]
    wide = Bootstrap(40, 100)
    wide.add(stats)
    np.testing.assert_array_equal(wide.sums, weights_of(np.arange(700), 100, 0).T @ stats)
    np.testing.assert_array_equal(wide.sums.sum(1), wide.drawings)


def test_interval_is_that_of_the_normal_law() -> None:
    """Of a mean, for many samples: mean ± 1.96 standard errors."""
    values = np.random.default_rng(1).normal(3, 2, 5000)
    bootstrap = Bootstrap(2, 2000)
    bootstrap.add(np.stack((np.ones(5000), values), axis=1))
    found = percentile(bootstrap.replicates(lambda sums: {"x": sums[:, 1] / sums[:, 0]})["x"])
    error = values.std() / np.sqrt(5000)
    assert found.low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert found.high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)
    wider = percentile(bootstrap.replicates(lambda sums: {"x": sums[:, 1] / sums[:, 0]})["x"], level=0.99)
    assert wider.low < found.low < found.high < wider.high


def accuracy(rng: np.random.Generator) -> tuple[ClassificationMetric, str, float]:
    metric = ClassificationMetric(["wrong", "right"], replicates=250)
    metric.add(np.ones(150, dtype=int), (rng.random(150) < 0.8).astype(int))
    return metric, "accuracy", 0.8


def entity_f1(rng: np.random.Generator) -> tuple[EntityMetric, str, float]:
    """Sentences of 1 to 4 places: an entity is there with 1/2, found with 0.8, invented with 0.1; all
    places of a hard sentence (1 in 4) go wrong together."""
    gold, predicted = [], []
    for _ in range(150):
        n, hard = rng.integers(1, 5), rng.random() < 0.25
        there = rng.random(n) < 0.5
        said = np.zeros(n, dtype=bool) if hard else np.where(there, rng.random(n) < 0.8, rng.random(n) < 0.1)
        gold.append(["B-X" if x else "O" for x in there])
        predicted.append(["B-X" if x else "O" for x in said])
    metric = EntityMetric(replicates=250)
    metric.add(gold, predicted)
    correct, found, real = 0.75 * 0.5 * 0.8, 0.75 * (0.5 * 0.8 + 0.5 * 0.1), 0.5  # per place
    return metric, "strict.f1", 2 * correct / (found + real)


def answer_f1(rng: np.random.Generator) -> tuple[SquadMetric, str, float]:
    metric = SquadMetric(replicates=250)
    said = rng.choice(["x y", "x", "z"], 150, p=[0.5, 0.3, 0.2])
    metric.add([["x y"]] * 150, list(said))
    return metric, "f1", 100 * (0.5 + 0.3 * 2 / 3)


def normal_pairs(rng: np.random.Generator) -> np.ndarray:
    x, noise = rng.normal(size=(2, 150))
    return np.stack((x, 0.6 * x + 0.8 * noise))


def pearson(rng: np.random.Generator) -> tuple[Pearson, str, float]:
    metric = Pearson(replicates=250)
    metric.add(*normal_pairs(rng))
    return metric, "pearson", 0.6


def spearman(rng: np.random.Generator) -> tuple[Spearman, str, float]:
    metric = Spearman(replicates=250)
    metric.add(*normal_pairs(rng))
    return metric, "spearman", 6 / np.pi * np.arcsin(0.6 / 2)


def area(rng: np.random.Generator) -> tuple[ClassificationMetric, str, float]:
    gold = rng.integers(0, 2, 150)
    yes = 1 / (1 + np.exp(-(rng.normal(size=150) + gold * np.sqrt(2))))
    metric = ClassificationMetric(["no", "yes"], replicates=0)
    metric.add(gold, gold, np.stack((1 - yes, yes), axis=1))
    return metric, "auc", 0.8413447  # Φ(1)


@pytest.mark.parametrize("simulate", [accuracy, entity_f1, answer_f1, pearson, spearman, area])
def test_coverage(
    simulate: Callable[[np.random.Generator], tuple[ClassificationMetric | EntityMetric, str, float]],
) -> None:
    rng = np.random.default_rng(11)
    covered, widths = 0, []
    for _ in range(200):
        metric, name, truth = simulate(rng)
        interval = metric.result()[name].interval
        assert interval is not None
        covered += interval.low <= truth <= interval.high
        widths.append(interval.high - interval.low)
    assert 0.90 <= covered / 200 <= 0.99, covered
    assert max(widths) < 3 * min(widths)


def test_a_tiny_set_has_no_empty_replicates() -> None:
    bootstrap = Bootstrap(2, 1000)
    bootstrap.add([[1, 1], [1, 1]])
    assert (bootstrap.drawings == 0).sum() > 90  # e^-2
    values = bootstrap.replicates(lambda sums: {"share": sums[:, 0] / np.maximum(sums[:, 1], 1)})["share"]
    assert np.nanmin(values) == 1
    assert percentile(values).low == 1


def test_refusals() -> None:
    bootstrap = Bootstrap(2, 10)
    with pytest.raises(ValueError, match=r"expected \[N, 2\]"):
        bootstrap.add(np.ones((3, 1)))
    with pytest.raises(ValueError, match="nan or infinite"):
        bootstrap.add([[np.nan, 1]])
    with pytest.raises(ValueError, match="index of shape"):
        bootstrap.add([[1, 1]], [0, 1])
    with pytest.raises(ValueError, match="negative"):
        bootstrap.add([[1, 1]], [-1])
    with pytest.raises(ValueError, match="negative"):
        Bootstrap(2, seed=-1)
    assert (bootstrap.samples, bootstrap.total.sum()) == (0, 0)
    bootstrap.add([[1, 1]])
    counted = Bootstrap(2, 10)
    counted.add([[1, 1]])
    with pytest.raises(ValueError, match="give `index`"):  # both would have weighted their first sample alike
        bootstrap.merge(counted)
    with pytest.raises(ValueError, match="same seed"):
        bootstrap.merge(Bootstrap(2, 10, seed=1))
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile(np.ones(3), 95)
    assert np.isnan(percentile(np.full(3, np.nan)).low)
