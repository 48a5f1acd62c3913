"""What is left of a model takes over, by least squares, what it can of what is cut out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from multihead.attention import MultiHeadAttention

Numbers = tuple[int, ...]
RIDGE = 1e-2  # of the mean variance: what few data seem to say is not believed too much


@dataclass(frozen=True)
class Moments:
    """Of the columns of something: mean [F], and covariance [F, F] where it is known; from how many lines."""

    mean: Tensor
    spread: Tensor | None = None
    count: int = 1

    def __add__(self, other: Moments) -> Moments:
        """Of the lines of both."""
        count = self.count + other.count
        mine, theirs = self.count / count, other.count / count
        mean = mine * self.mean + theirs * other.mean
        if self.spread is None or other.spread is None:
            return Moments(mean, None, count)
        apart = self.mean - other.mean
        spread = mine * self.spread + theirs * other.spread + mine * theirs * torch.outer(apart, apart)
        return Moments(mean, spread, count)


# By attention (its heads' outputs side by side; with KEYS behind, its keys), by block (its units).
MomentsByName = Mapping[str, Moments]
KEYS = ".k"


def compensate(projection: nn.Linear, gone: Tensor, mine: Tensor, moment: Moments) -> None:
    """The inputs at `mine` stand for what the columns that are gone would have added: as far as they foretell it, and
    its mean. A projection without a bias cannot hold a mean; there, products about zero are foretold."""
    rest = other_columns(len(moment.mean), mine)
    mean, spread = moment.mean.double(), moment.spread
    added = torch.zeros(len(rest), len(mine), dtype=torch.double)  # [gone, left]
    if spread is not None:
        added = _least_squares(
            spread.double() + (0 if projection.bias is not None else torch.outer(mean, mean)), mine, rest
        )
    columns = gone.double()
    _add(projection, "weight", columns @ added)
    if projection.bias is not None:
        _add(projection, "bias", columns @ (mean[rest] - added @ mean[mine]))


def compensate_keys(
    old: MultiHeadAttention, new: MultiHeadAttention, stay: list[int], keys: tuple[Numbers, ...], moment: Moments
) -> None:
    """Queries ask the columns that are left for what those that are gone would have answered. What all keys have in
    common says nothing: it raises all scores of a row alike."""
    if moment.spread is None:
        return
    K, size = old.key_dims[0], old.heads // old.kv_heads
    groups = sorted({place // size for place in stay})
    for at, place in enumerate(stay):
        group = place // size
        mine = torch.tensor(keys[groups.index(group)])
        rest, block = other_columns(K, mine), slice(group * K, (group + 1) * K)
        added = _least_squares(moment.spread[block, block].double(), mine, rest)
        rows = slice(at * len(mine), (at + 1) * len(mine))
        for name, parameter in new.q.named_parameters():
            gone = old.q.get_parameter(name).data[place * K + rest]
            parameter.data[rows] += (added.T @ gone.double()).to(parameter.dtype)


def _least_squares(spread: Tensor, mine: Tensor, rest: Tensor) -> Tensor:
    """[gone, left]: by least squares, the columns at `rest` from those at `mine`."""
    inner = spread[mine][:, mine]
    inner.diagonal().add_(RIDGE * inner.diagonal().mean() + 1e-12)
    return torch.linalg.solve(inner, spread[mine][:, rest]).T


def _add(module: nn.Module, name: str, change: Tensor) -> None:
    data = module.get_parameter(name).data
    set_parameter(module, name, (data.double() + change).to(data.dtype))


def other_columns(size: int, mine: Tensor) -> Tensor:
    others = torch.ones(size, dtype=torch.bool)
    others[mine] = False
    return others.nonzero()[:, 0]


def set_parameter(module: nn.Module, name: str, data: Tensor) -> None:
    path, _, leaf = name.rpartition(".")
    module.get_submodule(path)._parameters[leaf] = nn.Parameter(data.contiguous())
