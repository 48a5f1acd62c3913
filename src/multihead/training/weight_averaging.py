"""Weight averaging: a moving average over steps ("ema"), or the mean of the last checkpoints ("checkpoints")."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from multihead.training.checkpoints import Checkpoint, model_tensors, open_checkpoint, restore_weights


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model_tensors(model).items()}


def ema_update(average: Mapping[str, Tensor], model: nn.Module, decay: float) -> None:
    """Update in place: average = decay · average + (1 - decay) · weights."""
    now = model_tensors(model)
    torch._foreach_lerp_(list(average.values()), [now[name] for name in average], 1 - decay)


def checkpoints_to_average(steps: Sequence[int], keep: int, every: int) -> list[int]:
    """Return the steps to average: the last checkpoint, and the scheduled ones before it.

    A checkpoint written because the run was interrupted does not count: the run yields the same model without the stop.
    """
    due = [step for step in steps[:-1] if step % every == 0]
    return [*due[len(due) - min(keep - 1, len(due)) :], steps[-1]]


def average_checkpoints(
    directory: Path, steps: Sequence[int], check: Callable[[Checkpoint, Path], None] = lambda tensors, path: None
) -> tuple[dict[str, Tensor], list[int], list[str]]:
    """Average checkpoints, opened one after the other; return the mean, the intact steps, and the faults of the others.
    check: raises ValueError for an intact checkpoint of another run.

    Summed in float64, so that weights that never changed stay identical.
    """
    total: dict[str, Tensor] = {}
    tensors: dict[str, Tensor] = {}
    used: list[int] = []
    wrong: list[str] = []
    for step in steps:
        try:
            checkpoint = open_checkpoint(directory / f"step-{step}")
            check(checkpoint, directory / f"step-{step}")
        except (ValueError, OSError) as error:
            wrong.append(str(error))
            continue
        tensors = checkpoint.tensors["model"]
        total = {name: tensor.double() + total[name] if used else tensor.double() for name, tensor in tensors.items()}
        used.append(step)
    return {name: (tensor / len(used)).to(tensors[name].dtype) for name, tensor in total.items()}, used, wrong


@contextmanager
def swapped_weights(model: nn.Module, tensors: Mapping[str, Tensor] | None) -> Iterator[None]:
    """Swap in other weights temporarily; None: keep the model's own."""
    if tensors is None:
        yield
        return
    saved = copy_weights(model)
    restore_weights(model, tensors)
    try:
        yield
    finally:
        restore_weights(model, saved)
