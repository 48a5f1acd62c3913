"""Run a training step's products in half precision or with another library, and compare result and time with fp32.

A separate program, started by `precision.measure`: on some CPUs the first half-precision product ends the process with
SIGILL although every capability check passes. Prints one JSON line per precision.
"""

import json
import sys
import time

import torch
from torch import Tensor

from multihead.machine.precision import matmul_backend

DTYPES = {"onednn": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
ROUNDS, LEAST, BUDGET = 12, 3, 1.0  # as many rounds as the seconds allow, within these limits
D, F = 256, 1024


def step(x: Tensor, *weights: Tensor) -> list[Tensor]:
    """Return the output and gradients of a block's products: x [B,T,D], weights [D,D], [D,F], [F,D]."""
    x, w, up, down = (tensor.detach().requires_grad_() for tensor in (x, *weights))
    q = (x @ w).unflatten(-1, (4, -1)).transpose(1, 2)  # [B,H,T,K]
    scores = torch.softmax((q @ q.mT).float(), dim=-1).to(q.dtype)
    y = (scores @ q).transpose(1, 2).flatten(2) @ up @ down
    return [y.detach(), *torch.autograd.grad(y.float().square().sum(), (x, w, up, down))]


def report(name: str, device: str) -> dict[str, float]:
    """Return `error`, the largest relative error of an output or gradient, and `ratio`, the time relative to fp32."""
    torch.manual_seed(0)
    shapes = (4, 128, D), (D, D), (D, F), (F, D)
    full = [(torch.randn(shape) / (1 if len(shape) == 3 else shape[0] ** 0.5)).to(device) for shape in shapes]
    cast = [tensor.to(DTYPES[name]) for tensor in full]
    with matmul_backend(name):
        outputs = step(*cast)
    errors = [float((b.float() - a).norm() / a.norm()) for a, b in zip(step(*full), outputs, strict=True)]
    # Interleaved, because a shared machine slows down and recovers; the minimum excludes other processes.
    times: list[tuple[float, float]] = []
    began = time.perf_counter()
    while len(times) < LEAST or (len(times) < ROUNDS and time.perf_counter() - began < BUDGET):
        times.append((seconds(full), seconds(cast, name)))
    return {"error": max(errors), "ratio": min(t for _, t in times) / min(t for t, _ in times)}


def seconds(tensors: list[Tensor], name: str = "fp32") -> float:
    # CPU time where the CPU computes: it excludes what other processes did meanwhile.
    clock = time.thread_time if tensors[0].device.type == "cpu" else time.perf_counter
    with matmul_backend(name):
        start = clock()
        float(step(*tensors)[-1].sum())  # synchronizes a GPU
        return clock() - start


if __name__ == "__main__":
    # One thread: with two on a busy machine, waiting for each other took 50 times as long as the products.
    torch.set_num_threads(1)
    device, *names = sys.argv[1:]
    for name in names:
        sys.stdout.write(json.dumps({"precision": name, **report(name, device)}) + "\n")
        sys.stdout.flush()  # the next precision may end this process
