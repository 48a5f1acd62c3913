"""The three bodies: encoder, decoder, encoder-decoder. Each maps its input to hidden states [B, T, D]."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.attention import KVCache, Mask
from multihead.models.block import TransformerStack
from multihead.models.config import ModelConfig
from multihead.models.embeddings import STEMS, TokenEmbedding


class Encoder(nn.Module):
    """A bidirectional encoder of tokens, images or audio."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = STEMS[config.stem](config)
        self.stack = TransformerStack(config, "encoder", causal=False)

    def forward(
        self,
        source: Tensor,
        keep: Tensor | None = None,
        *,
        types: Tensor | None = None,
        segments: Tensor | None = None,
        mask: Mask | None = None,
    ) -> Tensor:
        """Encode a source.

        source: tokens [B, T], or the input of the stem.
        keep: [B, T], True = a real token.
        Returns hidden [B, T, D].
        """
        if isinstance(self.stem, TokenEmbedding):
            self.stem.check(source.shape[1])
            source = self.stem(source, position_ids(source, keep, segments), types)
        else:
            source = self.stem(source)
        return self.stack(source, combine_masks(keep, segments, mask))


class Decoder(nn.Module):
    """A causal decoder, with cross-attention to a memory if it has a `memory_dim`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        if config.layer_scale is not None:  # the fast decoder has no place for it
            raise ValueError("layer_scale is for encoders; leave it out of a decoder")
        self.stem = TokenEmbedding(config)
        self.stack = TransformerStack(config, "decoder", causal=True)

    def forward(
        self,
        tokens: Tensor,
        keep: Tensor | None = None,
        *,
        memory: Tensor | None = None,
        memory_keep: Tensor | None = None,
        segments: Tensor | None = None,
        mask: Mask | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Decode tokens [B, T] to hidden [B, T, D]. With a KV cache, `tokens` are the new ones and `keep` covers all of
        them.
        """
        first = cache.length if cache else 0
        self.stem.check(first + tokens.shape[1])
        x = self.stem(tokens, position_ids(tokens, keep, segments, first))
        return self.stack(x, combine_masks(keep, segments, mask), memory, combine_masks(memory_keep, None, None), cache)


class EncoderDecoder(nn.Module):
    """A sequence-to-sequence model: an encoder of the source, and a decoder of the target that attends to it."""

    def __init__(self, encoder: ModelConfig, decoder: ModelConfig | None = None, shared: bool = True) -> None:
        super().__init__()
        decoder = decoder or encoder
        if decoder.memory_dim is None:
            decoder = replace(decoder, memory_dim=encoder.dim)
        self.encoder, self.decoder = Encoder(encoder), Decoder(decoder)
        self.shared = shared
        if shared:
            if not isinstance(self.encoder.stem, TokenEmbedding) or (encoder.vocab, encoder.dim) != (
                decoder.vocab,
                decoder.dim,
            ):
                raise ValueError("encoder and decoder cannot share one embedding table; build with shared=False")
            self.decoder.stem.embedding.weight = self.encoder.stem.embedding.weight

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_keep: Tensor | None = None,
        target_keep: Tensor | None = None,
    ) -> Tensor:
        """Encode source [B, S] and decode target [B, T]; return hidden [B, T, D]."""
        memory = self.encoder(source, source_keep)
        return self.decoder(target, target_keep, memory=memory, memory_keep=source_keep)


def combine_masks(keep: Tensor | None, segments: Tensor | None, mask: Mask | None) -> Mask | None:
    """Combine padding, segments and a mask into one mask."""
    mask = Mask() if mask is None else mask
    if keep is not None:
        mask = mask & Mask.keep(keep)
    if segments is not None:
        mask = mask & Mask.segments(segments)
    return mask


def position_ids(tokens: Tensor, keep: Tensor | None, segments: Tensor | None, first: int = 0) -> Tensor | slice:
    """Return the position of each token, counted from the first real token of its row and of its segment."""
    T = tokens.shape[1]
    if segments is not None:
        index = torch.arange(T, device=tokens.device).expand_as(segments)
        changes = F.pad(segments[:, 1:] != segments[:, :-1], (1, 0), value=True)
        return index - torch.where(changes, index, 0).cummax(dim=1).values
    if keep is None:
        return slice(first, first + T)
    return (keep.long().cumsum(dim=1) - 1).clamp(min=0)[:, -T:]
