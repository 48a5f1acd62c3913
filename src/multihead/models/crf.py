"""Linear-chain conditional random field (Lafferty et al. 2001): a tagger with learned transition scores.

score(tags) = start[y_1] + Σ_t emission_t[y_t] + Σ_t step[y_t-1, y_t] + end[y_n];  p(tags) = exp(score − log Z), where Z
sums over all tag sequences, by the forward algorithm.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from multihead.models.readouts import ClassifierReadout


class CRFReadout(ClassifierReadout):
    """Emission scores of every tag for every token, [B, T, D] -> [B, T, C], and learned transition scores.

    The parameters start [C], end [C] and step [C, C] (from, to) are initialized to 0: all sequences are equally likely.
    """

    def __init__(self, dim: int, classes: int, bias: bool = True, dropout: float = 0.1) -> None:
        super().__init__(dim, classes, "tokens", bias=bias, dropout=dropout)
        self.start = nn.Parameter(torch.zeros(classes))
        self.end = nn.Parameter(torch.zeros(classes))
        self.step = nn.Parameter(torch.zeros(classes, classes))

    @classmethod
    def from_classifier(cls, plain: ClassifierReadout) -> CRFReadout:
        """Return a CRF with a classifier's emission scores (the same parameters) and new transition scores."""
        chain = cls(plain.scores.in_features, plain.scores.out_features, plain.scores.bias is not None)
        chain.scores, chain.dropout = plain.scores, plain.dropout
        return chain


def crf_nll(emissions: Tensor, tags: Tensor, lengths: Tensor, start: Tensor, end: Tensor, step: Tensor) -> Tensor:
    """Return −log p(tags) of each sequence [B]; 0 for an empty one.

    emissions: [B, T, C].
    tags: [B, T], any class beyond a sequence's end.
    lengths: [B].
    start, end: [B, C], one row per sequence, since a sequence may be part of a longer one.
    step: [C, C].
    """
    wide = torch.promote_types(emissions.dtype, torch.float32)  # half precision has no room for sums of logarithms
    emissions, start, end, step = (x.to(wide) for x in (emissions, start, end, step))
    lost = log_partition(emissions, lengths, start, end, step) - path_score(emissions, tags, lengths, start, end, step)
    return torch.where(lengths > 0, lost, 0.0)


def log_partition(emissions: Tensor, lengths: Tensor, start: Tensor, end: Tensor, step: Tensor) -> Tensor:
    """Return log Z of each sequence [B].

    Three operations per token: sequences continue beyond their end, and each sum is taken where its sequence ends;
    nothing beyond it has a gradient.
    """
    first, *rest = emissions.unbind(1)
    sums = [start + first]  # each [B, C]: over all prefixes whose last tag is c
    for emission in rest:
        sums.append(torch.logsumexp(sums[-1][:, :, None] + step, dim=1) + emission)
    rows = torch.arange(len(lengths), device=lengths.device)
    last = torch.stack(sums)[(lengths - 1).clamp(min=0), rows]
    return torch.logsumexp(last + end, dim=-1)


def path_score(emissions: Tensor, tags: Tensor, lengths: Tensor, start: Tensor, end: Tensor, step: Tensor) -> Tensor:
    """Return the score of one tag sequence per row [B]."""
    real = torch.arange(tags.shape[1], device=tags.device) < lengths[:, None]
    emitted = emissions.gather(2, tags[..., None])[..., 0].where(real, 0.0).sum(1)
    stepped = step[tags[:, :-1], tags[:, 1:]].where(real[:, 1:], 0.0).sum(1)
    last = tags.gather(1, (lengths - 1).clamp(min=0)[:, None])
    return start.gather(1, tags[:, :1])[:, 0] + emitted + stepped + end.gather(1, last)[:, 0]
