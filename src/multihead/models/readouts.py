"""Readouts: layers on top of a body that turn hidden states [B, T, D] into logits."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.kernels.dropout import dropout as dropped
from multihead.models.config import ModelConfig
from multihead.models.feed_forward import ACTIVATIONS
from multihead.models.norm import make_norm
from multihead.models.transformer import Decoder, Encoder, EncoderDecoder


class LMReadout(nn.Module):
    """Logits over the vocabulary: [B, T, D] -> [B, T, V].

    transform: the dense layer and norm that BERT has before the projection.
    scale: factor on the hidden states (T5).
    """

    def __init__(
        self,
        config: ModelConfig,
        table: Tensor | None = None,
        bias: bool = False,
        transform: bool = False,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.scale = scale
        self.transform = (
            nn.Sequential(nn.Linear(config.dim, config.dim), ACTIVATIONS[config.activation](), make_norm(config))
            if transform
            else None
        )
        self.weight = nn.Parameter(torch.empty(config.vocab, config.dim)) if table is None else table
        if table is None:
            nn.init.normal_(self.weight, std=0.02)
        self.bias = nn.Parameter(torch.zeros(config.vocab)) if bias else None

    def forward(self, hidden: Tensor) -> Tensor:
        if self.transform is not None:
            hidden = self.transform(hidden)
        if self.scale != 1.0:
            hidden = hidden * self.scale
        return F.linear(hidden, self.weight, self.bias)


class ClassifierReadout(nn.Module):
    """Logits over classes, for every token or for the whole input.

    over: "tokens" -> [B, T, C]; "first", "last" (real token) or "mean" -> [B, C].
    hidden: the activation of a dense layer before the logits; None = no such layer.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        over: Literal["tokens", "first", "last", "mean"] = "tokens",
        hidden: Literal["tanh", "relu", "gelu"] | None = None,
        bias: bool = True,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.over, self.hidden = over, hidden
        self.dense = nn.Linear(dim, dim) if hidden else None
        self.activation = {"tanh": torch.tanh, "relu": torch.relu, "gelu": F.gelu, None: None}[hidden]
        self.dropout = dropout
        self.scores = nn.Linear(dim, classes, bias)
        nn.init.normal_(self.scores.weight, std=0.02)

    def forward(self, hidden: Tensor, keep: Tensor | None = None) -> Tensor:
        pooled = self.pool(hidden, keep)
        if self.dense is not None and self.activation is not None:
            pooled = self.activation(self.dense(pooled))
        return self.scores(dropped(pooled, self.dropout, self.training))

    def pool(self, hidden: Tensor, keep: Tensor | None) -> Tensor:
        """Pool hidden [B, T, D] over real tokens, keep [B, T], as `over` names it."""
        if self.over == "tokens":
            return hidden
        if self.over == "first":
            return hidden[:, 0]
        keep = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device) if keep is None else keep
        if self.over == "mean":
            weight = keep[..., None].to(hidden.dtype)
            return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)
        last = (keep * torch.arange(keep.shape[1], device=keep.device)).argmax(dim=1)
        return hidden[torch.arange(len(hidden), device=hidden.device), last]


class TaskModel(nn.Module):
    """A body and a readout."""

    source = "the model"  # where it was loaded from, for messages

    def __init__(self, body: Encoder | Decoder | EncoderDecoder, readout: nn.Module) -> None:
        super().__init__()
        self.body, self.readout = body, readout

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def forward(self, *inputs: Tensor | None, **options: Any) -> Tensor:
        """Apply body and readout: take the inputs of the body, return logits."""
        hidden = self.body(*inputs, **options)
        if not isinstance(self.readout, ClassifierReadout):
            return self.readout(hidden)
        index, name = (3, "target_keep") if isinstance(self.body, EncoderDecoder) else (1, "keep")
        keep = inputs[index] if len(inputs) > index else options.get(name)
        return self.readout(hidden, keep)


class LanguageModel(TaskModel):
    """A causal language model for next-token prediction; tokens [B, T] -> logits [B, T, V]."""

    def __init__(self, config: ModelConfig) -> None:
        body = Decoder(config)
        super().__init__(body, LMReadout(config, body.stem.embedding.weight if config.tied else None))
