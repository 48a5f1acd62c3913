"""Head statistics without materializing the attention weights.

With the log-sum-exp of a row, its entropy is lse - scale·q·E[k] - E[bias], where E[k] is attention itself with the keys
as values: one more fused call, O(T) memory. The share on one key is exp(score - lse). Only a score bias (ALiBi,
relative) needs the weights, which are then built by rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from multihead.attention import AttentionRecord, attend

if TYPE_CHECKING:
    from multihead.inspection.recording import Recording

NAMES = ("entropy", "self", "previous", "next", "first", "separator", "offset")
CHUNK = 2**22  # scores at a time, where there is a bias


@torch.no_grad()
def row_statistics(record: AttentionRecord, marked: Tensor | None = None, offset: bool = False) -> dict[str, Tensor]:
    """Return statistics of every row of one call, each [B, H, T]. marked [B, S]: the separators."""
    exact, record = record.q.dtype.itemsize >= 4, record.upcast()
    first, shares = record.bias.key_padding(), {}
    B, _, T, _ = record.q.shape
    start = torch.zeros(B, dtype=torch.long) if first is None else first.long().argmax(1).expand(B)
    columns = [] if marked is None else [marked.to(record.k.dtype)]
    if offset:
        columns.append(torch.arange(record.k.shape[2], dtype=record.k.dtype).expand(B, -1))
    lse = record.lse if record.lse is not None else _lse(record)
    if record.bias.position is None and exact:
        entropy, extra = _from_one_more_call(record, lse, columns)
    else:
        entropy, extra = _by_rows(record, lse, columns)
    shares["entropy"] = entropy
    if not record.bias.crossing:
        for name, step in (("self", 0), ("previous", -1), ("next", 1)):
            shares[name] = _share(record, lse, step)
    shares["first"] = _share_on(record, lse, start)
    if marked is not None:
        shares["separator"] = extra.pop(0)
    if offset:
        shares["offset"] = extra.pop(0) - (torch.arange(T) + record.bias.first)
    return shares


def _from_one_more_call(record: AttentionRecord, lse: Tensor, columns: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    q, k, K = record.q, record.k, record.q.shape[-1]
    values = k
    if columns:  # append more columns, padded to a width that suits the kernel
        more = torch.stack(columns, dim=-1)[:, None].expand(-1, k.shape[1], -1, -1)
        values = torch.cat((k, more, more.new_zeros(*more.shape[:-1], -(K + len(columns)) % 8)), dim=-1)
    mean, _ = attend(q, k, values, record.bias, scale=record.scale)
    entropy = lse - _dots(q, mean[..., :K]) * record.scale
    return entropy, [mean[..., K + i] for i in range(len(columns))]


def _by_rows(record: AttentionRecord, lse: Tensor, columns: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    B, H, T, _ = record.q.shape
    S = record.k.shape[2]
    k = record.k.repeat_interleave(H // record.k.shape[1], dim=1)
    entropy, extra = torch.empty_like(lse), [torch.empty_like(lse) for _ in columns]
    step = max(1, CHUNK // (B * H * S))
    for start in range(0, T, step):
        rows = slice(start, min(start + step, T))
        scores = record.q[:, :, rows] @ k.transpose(-1, -2) * record.scale
        add = record.bias.rows(rows.start, rows.stop)
        logs = (scores if add is None else scores + add) - lse[:, :, rows, None]
        weights = logs.exp()
        entropy[:, :, rows] = -(weights * logs.clamp(min=-1e4)).sum(-1)  # 0 · log 0 = 0
        for column, out in zip(columns, extra, strict=True):
            out[:, :, rows] = (weights * column[:, None, None]).sum(-1)
    return entropy, extra


def _share(record: AttentionRecord, lse: Tensor, step: int) -> Tensor:
    """Return the weight of each query on the key `step` positions ahead; 0 where there is none."""
    T, first, S = record.q.shape[2], record.bias.first, record.k.shape[2]
    low, high = max(0, -step - first), min(T, S - step - first)
    share = torch.zeros_like(lse)
    if low < high:
        at = torch.arange(first + low, first + high)
        k = record.k[:, :, first + low + step : first + high + step]
        scores = _dots(record.q[:, :, low:high], k) * record.scale
        add = record.bias.pairs(at, at + step)
        share[:, :, low:high] = ((scores if add is None else scores + add) - lse[:, :, low:high]).exp()
    return share


def _share_on(record: AttentionRecord, lse: Tensor, keys: Tensor) -> Tensor:
    """Return the weight of each query on one key of its batch row; keys [B]."""
    B, T = record.q.shape[0], record.q.shape[2]
    k = record.k[torch.arange(B), :, keys][:, :, None].expand(-1, -1, T, -1)
    scores = _dots(record.q, k) * record.scale
    at = torch.arange(T) + record.bias.first
    for key in keys.unique().tolist():
        add = record.bias.pairs(at, torch.full_like(at, key))
        if add is not None:
            rows = keys == key
            scores[rows] = scores[rows] + (add[rows] if add.shape[0] == B else add)
    return (scores - lse).exp()


def _dots(q: Tensor, k: Tensor) -> Tensor:
    """Return row-wise dot products, q [B, H, T, K] · k [B, G, T, K] -> [B, H, T]."""
    q, k = q.transpose(1, 2), k.transpose(1, 2)  # their memory layout: 5 times faster, and einsum is slower still
    grouped = q.unflatten(2, (k.shape[2], -1))  # [B, T, G, H/G, K]
    return torch.linalg.vecdot(grouped, k[:, :, :, None]).flatten(2).transpose(1, 2)


def _lse(record: AttentionRecord) -> Tensor:
    """Return the log-sum-exp by rows, where the kernel does not return it."""
    B, H, T, _ = record.q.shape
    k = record.k.repeat_interleave(H // record.k.shape[1], dim=1)
    parts = []
    for start in range(0, T, step := max(1, CHUNK // (B * H * k.shape[2]))):
        scores = record.q[:, :, start : start + step] @ k.transpose(-1, -2) * record.scale
        add = record.bias.rows(start, min(start + step, T))
        parts.append((scores if add is None else scores + add).logsumexp(-1).nan_to_num(neginf=0.0))
    return torch.cat(parts, dim=2)


def format_line(addresses: Sequence[str], columns: Mapping[str, Any], address: str) -> dict[str, float]:
    """Return the values of all columns for one head."""
    if address not in addresses:
        raise ValueError(f"unknown head {address!r}; the first is {addresses[0]}")
    place = addresses.index(address)
    return {name: float(column[place]) for name, column in columns.items()}


class HeadStatistics:
    """One line per head: means over the real rows. Entropy in nats, shares between 0 and 1; nan where undefined
    (neighbors in cross-attention). `stats["encoder.2.self.3"]["entropy"]`; prints as a table."""

    def __init__(self, addresses: list[str], columns: dict[str, Tensor], rows: list[int]) -> None:
        self.addresses, self.columns, self.rows = addresses, columns, rows

    def __getitem__(self, address: str) -> dict[str, float]:
        return format_line(self.addresses, self.columns, address)

    def __len__(self) -> int:
        return len(self.addresses)

    def __repr__(self) -> str:
        wide = max(map(len, self.addresses))
        lines = [" " * wide + "".join(f"{name:>11}" for name in self.columns)]
        for place, address in enumerate(self.addresses):
            numbers = "".join(f"{float(column[place]):11.3f}" for column in self.columns.values())
            lines.append(f"{address:<{wide}}{numbers}")
        return "\n".join(lines)


def summary(recording: Recording, separators: Sequence[int], offset: bool) -> HeadStatistics:
    """Average `row_statistics` over a recording, without padding."""
    addresses: list[str] = []
    counts: list[int] = []
    names = [n for n in NAMES if (n != "separator" or separators) and (n != "offset" or offset)]
    columns: dict[str, list[Tensor]] = {name: [] for name in names}
    for attention, heads in recording.heads.items():
        total, rows = {name: torch.zeros(heads, dtype=torch.float64) for name in names}, 0
        for record, keep, marked in recording.calls(attention, separators):
            statistics_ = row_statistics(record, marked, offset)
            rows += int(keep.sum())
            for name in names:
                line = statistics_.get(name, torch.full_like(statistics_["entropy"], torch.nan))
                total[name] += torch.where(keep[:, None], line.double(), 0.0).sum((0, 2))
        addresses += [f"{attention}.{head}" for head in recording.numbers[attention]]
        counts += [rows] * heads
        for name in names:
            columns[name].append(total[name] / max(rows, 1))
    return HeadStatistics(addresses, {name: torch.cat(parts) for name, parts in columns.items()}, counts)
