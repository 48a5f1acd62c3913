"""Choice of the next token: fast argmax and top-k, and sampling with counter-based random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multihead.generation.config import GenerationConfig

BLOCK = 64  # block size for maxima, which use vector instructions, unlike topk
ENOUGH = 1024  # sorted candidates; they nearly always cover top_p, so that no full sort is needed
COLDEST = 1e-6  # lower temperatures overflow

FloatArray = NDArray[Any]  # fp32 or fp64
IntArray = NDArray[np.int64]
UInt64Array = NDArray[np.uint64]


def to_float32(logits: Tensor) -> Tensor:
    """Convert half-precision logits [N, V] to fp32: sums of many log p need three digits."""
    return logits if logits.dtype == torch.float64 else logits.float()


def check_logits(logits: Tensor) -> None:
    if bool(logits.amax(dim=1).isnan().any()):
        raise ValueError("the model's logits are NaN; its weights are broken: load or train it again")


def argmax(scores: Tensor) -> Tensor:
    """Return the argmax over the last axis, the first of equals: [N, V] -> [N]. numpy's is vectorized, torch's is not
    (measured: 10 times faster at 32 x 8000)."""
    if scores.device.type == "cpu" and scores.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(scores.numpy().argmax(axis=1))
    return scores.argmax(dim=1)


def topk(scores: Tensor, start: FloatArray, k: int) -> tuple[FloatArray, IntArray, IntArray]:
    """Return the k largest start[b, i] + scores[b, i, v]: their values, i and v, each [B, k], largest first.

    start [B, n], scores [B, n, V]. On the CPU, numpy searches the k blocks with the largest maxima.
    """
    B, n, V = scores.shape
    if scores.device.type != "cpu":
        top = (scores + torch.from_numpy(start).to(scores)[..., None]).view(B, -1).topk(k)
        return top.values.cpu().numpy(), *divmod(top.indices.cpu().numpy(), V)
    count = V // BLOCK
    if count < 4 or n * count < 4 * k:
        best, at = _topk_rows((scores.numpy() + start[..., None]).reshape(B, -1), k)
        return best, *divmod(at, V)
    blocks = scores[:, :, : count * BLOCK].unflatten(2, (count, BLOCK))
    peaks = blocks.amax(dim=3).numpy() + start[..., None]  # [B, n, count]
    text, block = divmod(peaks.reshape(B, -1).argpartition(-k, axis=1)[:, -k:], count)  # [B, k]
    rows, rest = np.arange(B)[:, None], V - count * BLOCK
    candidates = (blocks.numpy()[rows, text, block] + start[rows, text][..., None]).reshape(B, -1)  # [B, k * BLOCK]
    if rest:
        tail = (scores[:, :, count * BLOCK :].numpy() + start[..., None]).reshape(B, -1)
        candidates = np.concatenate((candidates, tail), axis=1)
    best, at = _topk_rows(candidates, k)
    here, token = divmod(np.minimum(at, k * BLOCK - 1), BLOCK)
    texts, tokens = text[rows, here], block[rows, here] * BLOCK + token
    if rest:
        behind, (last, token) = at >= k * BLOCK, divmod(at - k * BLOCK, rest)
        texts, tokens = np.where(behind, last, texts), np.where(behind, token + count * BLOCK, tokens)
    return best, texts, tokens


def _topk_rows(table: FloatArray, k: int) -> tuple[FloatArray, IntArray]:
    """Return the k largest of each row [B, C] and their indices, largest first."""
    rows = np.arange(len(table))[:, None]
    at = table.argpartition(-k, axis=1)[:, -k:]
    at = at[rows, (-table[rows, at]).argsort(axis=1)]
    return table[rows, at], at


class CounterRNG:
    """Counter-based random numbers in [0, 1): a pure function of (seed, row, sample index, position).

    SplitMix64 (Steele et al. 2014), one sequence per text, seeded from seed, row and sample index.
    """

    def __init__(self, seed: int, rows: Sequence[int], draws: int) -> None:
        with np.errstate(over="ignore"):
            begin = _mix_bits(np.array([seed % 2**64], dtype=np.uint64))
            begin = _mix_bits(begin + np.array([row % 2**64 for row in rows], dtype=np.uint64))
            self.state = _mix_bits(np.repeat(begin, draws) + np.tile(np.arange(draws, dtype=np.uint64), len(rows)))

    def at(self, place: int) -> Tensor:
        """Return the random numbers of a position [N], float64."""
        with np.errstate(over="ignore"):
            bits = _mix_bits(self.state + np.uint64(place))
        return torch.from_numpy((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)

    def select_rows(self, rows: Tensor) -> None:
        self.state = self.state[rows.cpu().numpy()]


def _mix_bits(x: UInt64Array) -> UInt64Array:
    x = x * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def sample(logp: Tensor, settings: GenerationConfig, at: Tensor) -> Tensor:
    """Sample one token per row: logp [N, V] (forbidden: -inf), at [N] in [0, 1) -> [N]."""
    V = logp.shape[1]
    z = logp / max(settings.temperature, COLDEST) if settings.temperature != 1.0 else logp
    if not settings.top_k and settings.top_p == 1.0 and settings.min_p == 0.0:
        return _at(torch.softmax(z, dim=1), at)
    count = min(V, settings.top_k or ENOUGH)
    values, tokens = z.topk(count)
    total = torch.logsumexp(values if settings.top_k else z, dim=1, keepdim=True)
    filtered = _filter_candidates(values, total, settings)
    if not settings.top_k and count < V and bool((filtered[:, -1] > 0).any()):  # more candidates may belong to top_p
        values, tokens = z.sort(dim=1, descending=True)
        filtered = _filter_candidates(values, total, settings)
    return tokens.gather(1, _at(filtered, at)[:, None])[:, 0]


def _filter_candidates(values: Tensor, total: Tensor, settings: GenerationConfig) -> Tensor:
    """Return probabilities of candidates in descending order [N, C], 0 for those filtered out."""
    share = (values - total).exp()
    before = share.cumsum(dim=1) - share
    out = before >= settings.top_p
    if settings.min_p:
        out |= share < settings.min_p * share[:, :1]
    out[:, 0] = False
    return share.masked_fill(out, 0.0)


def _at(weights: Tensor, at: Tensor) -> Tensor:
    """Return the index where the running sum of weights [N, C] exceeds the share `at` [N] of the total."""
    device = weights.device
    sums = (weights.cpu() if device.type == "mps" else weights).double().cumsum(dim=1)  # mps has no double
    indices = torch.searchsorted(sums, at.to(sums.device)[:, None] * sums[:, -1:], right=True)
    return indices.clamp(max=sums.shape[1] - 1)[:, 0].to(device)
