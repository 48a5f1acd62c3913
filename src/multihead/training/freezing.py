"""Freezing of model parts during training."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from torch import nn

from multihead.models import Decoder, Encoder, EncoderDecoder, TaskModel, TransformerBlock
from multihead.training.lora import add_updates

EMBEDDINGS = "embeddings"


def freeze_parameters(model: TaskModel, freeze: int | Sequence[str], rank: int, old: AbstractSet[int]) -> None:
    """Select the trainable parameters: the readout always; of the body, those that `freeze` and LoRA leave.

    old: ids of the pretrained parameters. Parameters that a task added (token types for letter case) are untrained and
    always trainable.
    """
    if rank:
        model.body.requires_grad_(False)
        add_updates(model.body, rank, old)
    for part in frozen_modules(model, freeze):
        part.requires_grad_(False)
    for name, parameter in model.body.named_parameters():
        if id(parameter) not in old and ".parametrizations." not in name:
            parameter.requires_grad_(True)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("train.freeze leaves nothing to train: the readout is tied to the embeddings; freeze less")


def frozen_modules(model: TaskModel, freeze: int | Sequence[str]) -> list[nn.Module]:
    """Return frozen modules. A number: the embeddings and that many lowest layers of each stack. Names: "embeddings",
    "encoder.0", …"""
    layers = {block.address: block for block in model.modules() if isinstance(block, TransformerBlock)}
    if isinstance(freeze, int):
        deepest = 1 + max(layer_number(address) for address in layers)
        if freeze > deepest:
            raise ValueError(f"train.freeze is {freeze}; this model has only {deepest} layers")
        low = [block for address, block in layers.items() if layer_number(address) < freeze]
        return [*embeddings(model), *low] if freeze else []
    known = [EMBEDDINGS, *layers]
    if unknown := next((name for name in freeze if name not in known), None):
        raise ValueError(f"train.freeze names {unknown!r}; this model has: {', '.join(known)}")
    return [part for name in freeze for part in (embeddings(model) if name == EMBEDDINGS else [layers[name]])]


def embeddings(model: TaskModel) -> list[nn.Module]:
    """Return stems and learned positions: below a frozen stem and frozen layers, no gradients are stored."""
    body = model.body
    sides: list[Encoder | Decoder] = [body.encoder, body.decoder] if isinstance(body, EncoderDecoder) else [body]
    positions = [side.stack.position for side in sides]
    return [*(side.stem for side in sides), *(p for p in positions if isinstance(p, nn.Module))]


def layer_number(address: str) -> int:
    return int(address.rpartition(".")[2])
