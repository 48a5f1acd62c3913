"""nanoGPT's model and loop for a CPU, written anew from what is published of them (github.com/karpathy/nanoGPT: README,
config/train_shakespeare_char.py with the README's changes for a CPU); it is on no package index.

GPT-2's shape without biases, one matrix for q, k and v, tied embeddings; windows cut at random places of a mapped file
of tokens; AdamW without decay of norms, not fused on a CPU; the gradient's norm held at 1; the rate worked out and the
loss looked at in every step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.training import RoundResult, half_precision

TOKENS = "train.bin"
LAYERS, HEADS, WIDTH, BLOCK, BATCH = 4, 4, 128, 64, 12
RATE, LEAST, WARMUP, STEPS, BETAS, DECAY, CLIP = 1e-3, 1e-4, 100, 2000, (0.9, 0.99), 0.1, 1.0


class NanoLayerNorm(nn.Module):
    """A layer norm without bias."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, None, 1e-5)


class NanoBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = NanoLayerNorm(width), NanoLayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.gelu = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        q, k, v = self.qkv(self.first(x)).split(D, dim=2)
        q, k, v = (part.view(B, T, self.heads, D // self.heads).transpose(1, 2) for part in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(B, T, D))
        return x + self.down(self.gelu(self.up(self.second(x))))


class NanoGPT(nn.Module):
    """tokens [B, T] and those that follow -> the mean loss."""

    def __init__(
        self, vocab: int, layers: int = LAYERS, heads: int = HEADS, width: int = WIDTH, block: int = BLOCK
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(block, width)
        self.layers = nn.ModuleList(NanoBlock(width, heads) for _ in range(layers))
        self.norm = NanoLayerNorm(width)
        self.scores = nn.Linear(width, vocab, bias=False)
        self.scores.weight = self.tokens.weight
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                deep = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * layers) if deep else 0.02)

    def forward(self, tokens: Tensor, wanted: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        logits = self.scores(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), wanted.view(-1), ignore_index=-1)


def loop(
    model: NanoGPT, folder: TemporaryDirectory[str], steps: int, half: bool, fused: bool = False
) -> Callable[[], RoundResult]:
    """Rounds of the loop over the tokens in a folder. half: in bf16; fused: by torch's fused AdamW; nanoGPT does
    both on CUDA only."""
    several = [p for p in model.parameters() if p.dim() >= 2]
    single = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": several, "weight_decay": DECAY}, {"params": single, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, fused=fused or None)
    block = len(model.places.weight)
    done = 0

    def batch() -> tuple[Tensor, Tensor]:
        # Mapped anew for every batch, against a leak of memory.
        data = np.memmap(Path(folder.name) / TOKENS, dtype=np.uint16, mode="r")
        at = torch.randint(len(data) - block, (BATCH,))
        x = torch.stack([torch.from_numpy(data[i : i + block].astype(np.int64)) for i in at])
        y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block].astype(np.int64)) for i in at])
        return x, y

    def run() -> RoundResult:
        nonlocal done
        model.train()
        begin = time.perf_counter()
        x, y = batch()
        for _ in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = rate(done)
            with half_precision(half):
                loss = model(x, y)
            x, y = batch()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            loss.item()
            done += 1
        return RoundResult(steps * BATCH * block, steps * BATCH * block, time.perf_counter() - begin)

    return run


def rate(step: int) -> float:
    """A linear warmup, then a cosine down to the least."""
    if step < WARMUP:
        return RATE * (step + 1) / (WARMUP + 1)
    if step > STEPS:
        return LEAST
    done = (step - WARMUP) / (STEPS - WARMUP)
    return LEAST + 0.5 * (1.0 + math.cos(math.pi * done)) * (RATE - LEAST)
