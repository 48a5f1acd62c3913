"""Partial embeddings: only the rows of tokens in the training data are trained.

No other row ever gets a gradient, and AdamW, which does not decay embeddings, leaves it unchanged: only the cost
differs. CoNLL-2003 uses 46 % of MiniLM's embedding matrix, which is half of its weights; most datasets use far less of
a multilingual model's.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from multihead.data.token_cache import release_pages
from multihead.models import Encoder, TokenEmbedding

WORTH = 0.9  # largest share of rows where it pays off
CHUNK = 1 << 22  # tokens processed at a time


class PartialEmbedding(nn.Embedding):
    """Embedding whose trained rows come first, in one storage with the rest: training looks up those alone, evaluation
    all."""

    def __init__(self, table: nn.Embedding, used: Tensor) -> None:
        order = torch.cat((used.nonzero()[:, 0], (~used).nonzero()[:, 0]))
        every, places = table.weight.detach()[order], order.argsort()
        pad = None if table.padding_idx is None else int(places[table.padding_idx])
        trained_rows = every[: int(used.sum())]
        super().__init__(len(trained_rows), every.shape[1], pad, _weight=trained_rows)
        self.num_embeddings = len(every)  # the full vocabulary
        self.every, self.places, self.pad = every, places, table.padding_idx

    def forward(self, tokens: Tensor) -> Tensor:
        return F.embedding(self.places[tokens], self.weight if self.training else self.every, self.padding_idx)

    def full_embedding(self) -> nn.Embedding:
        """Return the plain embedding again."""
        return nn.Embedding.from_pretrained(self.every[self.places], freeze=False, padding_idx=self.pad)


def shrink_embedding(body: nn.Module, tokens: Iterable[NDArray[np.integer]], also: Iterable[int]) -> None:
    """Train only the rows of these tokens from now on; also: tokens that batches contain in addition to the data."""
    if not isinstance(body, Encoder) or not isinstance(body.stem, TokenEmbedding):
        return
    table = body.stem.embedding
    if isinstance(table, PartialEmbedding) or not table.weight.requires_grad:
        return
    used = np.zeros(len(table.weight), dtype=np.bool_)
    used[list(also)] = True
    for array in tokens:
        for start in range(0, len(array), CHUNK):
            used[array[start : start + CHUNK]] = True
            release_pages(array)
    if used.mean() <= WORTH:
        body.stem.embedding = PartialEmbedding(table, torch.from_numpy(used).to(table.weight.device))


def restore_embedding(body: nn.Module) -> None:
    """Restore every embedding with all rows; trained values stay."""
    for module in body.modules():
        if isinstance(module, TokenEmbedding) and isinstance(module.embedding, PartialEmbedding):
            module.embedding = module.embedding.full_embedding()
