"""The loss over a vocabulary: the numbers of the plain way, without its table of logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from multihead.kernels import chunked_cross_entropy
from multihead.kernels.chunked_cross_entropy import vocabulary_loss, vocabulary_nats
from multihead.models import LMReadout, ModelConfig
from multihead.tasks import IGNORE
from multihead.tasks.losses import class_loss

N, V, D = 11, 37, 6


def parts(bias: bool, transform: bool, scale: float) -> tuple[LMReadout, torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    config = ModelConfig(vocab=V, dim=D, heads=2, layers=1)
    readout = LMReadout(config, bias=bias, transform=transform, scale=scale).double()
    with torch.no_grad():
        for parameter in readout.parameters():
            parameter.normal_()
    hidden = torch.randn(1, N, D, dtype=torch.double, requires_grad=True)
    labels = torch.randint(0, V, (1, N))
    labels[0, [0, 4, 5]] = IGNORE
    return readout, hidden, labels


def plain(readout: LMReadout, hidden: torch.Tensor, labels: torch.Tensor, smoothing: float) -> torch.Tensor:
    logits = readout(hidden).flatten(0, 1)
    return F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing)


@pytest.mark.parametrize("chunk", [1, 3 * V, 1 << 22])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("bias", "transform", "scale"), [(False, False, 1.0), (True, True, 1.0), (True, False, 0.5)])
def test_loss_and_gradients_are_those_of_the_plain_way(monkeypatch, chunk, smoothing, bias, transform, scale):
    monkeypatch.setattr(chunked_cross_entropy, "CHUNK", chunk)
    readout, hidden, labels = parts(bias, transform, scale)
    wanted = plain(readout, hidden, labels, smoothing)
    (wanted / 7).backward()
    gradients = [hidden.grad, *(p.grad for p in readout.parameters())]
    hidden.grad = None
    readout.zero_grad()
    found = vocabulary_loss(readout, hidden, labels, smoothing)
    (found / 7).backward()
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6)
    for ours, theirs in zip([hidden.grad, *(p.grad for p in readout.parameters())], gradients, strict=True):
        torch.testing.assert_close(ours, theirs)
    with torch.no_grad():
        assert vocabulary_loss(readout, hidden, labels, smoothing).item() == pytest.approx(wanted.item(), rel=1e-6)
        nats = vocabulary_nats(readout, hidden, labels)
    assert nats.sum().item() == pytest.approx(plain(readout, hidden, labels, 0.0).item(), rel=1e-5)
    assert (nats[labels == IGNORE] == 0).all()


@pytest.mark.parametrize("chunk", [1, 4 * V, 1 << 22])
def test_two_readings_are_pulled_together_as_classes_are(monkeypatch, chunk):
    monkeypatch.setattr(chunked_cross_entropy, "CHUNK", chunk)
    readout, hidden, labels = parts(True, False, 1.0)
    again = (hidden.detach() + 0.3 * torch.randn_like(hidden)).requires_grad_()
    both, twice = torch.cat((hidden, again)), torch.cat((labels, labels))
    wanted = class_loss(readout(both).flatten(0, 1), twice.flatten(), 0.1, rdrop=3.0)
    assert wanted > class_loss(readout(both).flatten(0, 1), twice.flatten(), 0.1) + 1
    true = torch.autograd.grad(wanted, (hidden, again, *readout.parameters()), retain_graph=True)
    found = vocabulary_loss(readout, both, twice, 0.1, rdrop=3.0)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6)
    for one, other in zip(torch.autograd.grad(found, (hidden, again, *readout.parameters())), true, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("chunk", [2 * V, 1 << 22])
def test_all_products_are_of_halves_under_autocast_and_what_is_summed_is_whole(monkeypatch, chunk):
    monkeypatch.setattr(chunked_cross_entropy, "CHUNK", chunk)
    readout, hidden, labels = parts(True, False, 1.0)
    readout, hidden = readout.float(), hidden.detach().float().requires_grad_()
    wanted = plain(readout, hidden, labels, 0.1)
    wanted.backward()
    gradients = [hidden.grad, *(p.grad for p in readout.parameters())]
    hidden.grad = None
    readout.zero_grad()
    with MatmulDtypes() as products, torch.autocast("cpu", torch.bfloat16):
        found = vocabulary_loss(readout, hidden, labels, 0.1)
    found.backward()
    assert products.seen == {torch.bfloat16}
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(wanted.item(), rel=0.02)
    for ours, theirs in zip([hidden.grad, *(p.grad for p in readout.parameters())], gradients, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() < 0.02 * theirs.norm()


class MatmulDtypes(TorchDispatchMode):
    """What matrix products are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "mm" in str(func):
            self.seen.add(args[-1].dtype)
        return func(*args, **(kwargs or {}))


def test_nothing_to_foretell_is_no_loss():
    readout, hidden, labels = parts(True, False, 1.0)
    found = vocabulary_loss(readout, hidden, torch.full_like(labels, IGNORE))
    found.backward()
    assert found.item() == 0
    assert hidden.grad is not None
    assert not hidden.grad.any()


class Largest(TorchDispatchMode):
    """The size of the largest tensor that any operation gives back."""

    found = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.found = max(self.found, tensor.numel())
        return out


def test_all_logits_never_stand_in_memory_at_once(monkeypatch):
    monkeypatch.setattr(chunked_cross_entropy, "CHUNK", 2 * V)
    sizes = {}
    for name, loss in (("plain", plain), ("ours", vocabulary_loss)):
        readout, hidden, labels = parts(True, False, 1.0)
        with Largest() as largest:
            loss(readout, hidden, labels, 0.1).backward()
        sizes[name] = largest.found
    assert sizes["plain"] >= N * V
    assert sizes["ours"] <= V * D
