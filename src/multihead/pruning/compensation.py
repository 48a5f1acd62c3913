"""Compensation by least squares: the remaining parts take over what they can of the removed ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from multihead.attention import MultiHeadAttention

Numbers = tuple[int, ...]
RIDGE = 1e-2  # relative to the mean variance: regularization for small samples


@dataclass(frozen=True)
class Moments:
    """Moments of columns: mean [F], and covariance [F, F] if known; over `count` lines."""

    mean: Tensor
    spread: Tensor | None = None
    count: int = 1

    def __add__(self, other: Moments) -> Moments:
        """Merge the moments of two sets of lines."""
        count = self.count + other.count
        weight, other_weight = self.count / count, other.count / count
        mean = weight * self.mean + other_weight * other.mean
        if self.spread is None or other.spread is None:
            return Moments(mean, None, count)
        apart = self.mean - other.mean
        spread = weight * self.spread + other_weight * other.spread + weight * other_weight * torch.outer(apart, apart)
        return Moments(mean, spread, count)


# By attention (its heads' outputs, concatenated; with suffix KEYS, its keys), by block (its units).
MomentsByName = Mapping[str, Moments]
KEYS = ".k"


def compensate(projection: nn.Linear, gone: Tensor, remaining: Tensor, moment: Moments) -> None:
    """Make the inputs at `remaining` compensate for removed columns: the predictable part, and the mean. A projection
    without a bias cannot hold a mean; there, second moments about zero are used."""
    rest = other_columns(len(moment.mean), remaining)
    mean, spread = moment.mean.double(), moment.spread
    added = torch.zeros(len(rest), len(remaining), dtype=torch.double)  # [gone, left]
    if spread is not None:
        added = _least_squares(
            spread.double() + (0 if projection.bias is not None else torch.outer(mean, mean)), remaining, rest
        )
    columns = gone.double()
    _add(projection, "weight", columns @ added)
    if projection.bias is not None:
        _add(projection, "bias", columns @ (mean[rest] - added @ mean[remaining]))


def compensate_keys(
    old: MultiHeadAttention, new: MultiHeadAttention, stay: list[int], keys: tuple[Numbers, ...], moment: Moments
) -> None:
    """Make queries compensate for removed key columns by the remaining ones. A component that all keys share has no
    effect: it raises all scores of a row equally."""
    if moment.spread is None:
        return
    K, size = old.key_dims[0], old.heads // old.kv_heads
    groups = sorted({place // size for place in stay})
    for at, place in enumerate(stay):
        group = place // size
        remaining = torch.tensor(keys[groups.index(group)])
        rest, block = other_columns(K, remaining), slice(group * K, (group + 1) * K)
        added = _least_squares(moment.spread[block, block].double(), remaining, rest)
        rows = slice(at * len(remaining), (at + 1) * len(remaining))
        for name, parameter in new.q.named_parameters():
            gone = old.q.get_parameter(name).data[place * K + rest]
            parameter.data[rows] += (added.T @ gone.double()).to(parameter.dtype)


def _least_squares(spread: Tensor, remaining: Tensor, rest: Tensor) -> Tensor:
    """Predict the columns at `rest` from those at `remaining` by least squares: [removed, remaining]."""
    inner = spread[remaining][:, remaining]
    inner.diagonal().add_(RIDGE * inner.diagonal().mean() + 1e-12)
    return torch.linalg.solve(inner, spread[remaining][:, rest]).T


def _add(module: nn.Module, name: str, change: Tensor) -> None:
    data = module.get_parameter(name).data
    set_parameter(module, name, (data.double() + change).to(data.dtype))


def other_columns(size: int, remaining: Tensor) -> Tensor:
    others = torch.ones(size, dtype=torch.bool)
    others[remaining] = False
    return others.nonzero()[:, 0]


def set_parameter(module: nn.Module, name: str, data: Tensor) -> None:
    path, _, leaf = name.rpartition(".")
    module.get_submodule(path)._parameters[leaf] = nn.Parameter(data.contiguous())
