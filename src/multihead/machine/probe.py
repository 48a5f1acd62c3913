"""Runs a training step's products in half precision, compares them with fp32 and times both.

A program of its own, started by `precision.measure`: on some processors the first half-precision product
ends the process with SIGILL although every capability check says yes. Prints one JSON line per precision.
"""

import json
import sys
import time

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
ROUNDS = 6


def step(x: Tensor, w: Tensor) -> list[Tensor]:
    """Projection, attention, projection, and their gradients: x [B,T,D], w [D,D] -> y, dy/dx, dy/dw."""
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    q = (x @ w).unflatten(-1, (4, -1)).transpose(1, 2)  # [B,H,T,K]
    y = scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(2) @ w
    return [y.detach(), *torch.autograd.grad(y.float().square().sum(), (x, w))]


def report(dtype: torch.dtype, device: str) -> dict[str, float]:
    """`error`: the largest relative error of an output or a gradient; `ratio`: time over fp32's."""
    torch.manual_seed(0)
    full = torch.randn(2, 256, 256).to(device), (torch.randn(256, 256) / 16).to(device)
    half = full[0].to(dtype), full[1].to(dtype)
    errors = [float((b.float() - a).norm() / a.norm()) for a, b in zip(step(*full), step(*half), strict=True)]
    # Interleaved, because a shared machine slows down and recovers; the minimum is free of neighbours.
    times = [(seconds(*full), seconds(*half)) for _ in range(ROUNDS)]
    return {"error": max(errors), "ratio": min(t for _, t in times) / min(t for t, _ in times)}


def seconds(x: Tensor, w: Tensor) -> float:
    start = time.perf_counter()
    float(step(x, w)[-1].sum())  # a graphics card has not computed before it is asked for a number
    return time.perf_counter() - start


if __name__ == "__main__":
    # One thread: with two on a busy machine, waiting for each other took 50 times as long as the products.
    torch.set_num_threads(1)
    device, *names = sys.argv[1:]
    for name in names:
        sys.stdout.write(json.dumps({"precision": name, **report(DTYPES[name], device)}) + "\n")
        sys.stdout.flush()  # the next precision may end this process
