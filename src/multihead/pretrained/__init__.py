"""Pretrained models: load, save, assemble."""

from multihead.models.families import FAMILIES
from multihead.pretrained.assemble import as_encoder, create, join, with_readout, without_readout
from multihead.pretrained.load import load
from multihead.pretrained.save import export_layout, save


def list_models() -> dict[str, list[str]]:
    """Return the supported model families with their architectures: {"bert": ["BertModel", …]}."""
    return {name: [f"{family.title}{kind}" for kind in family.readouts] for name, family in FAMILIES.items()}


__all__ = [
    "as_encoder", "create", "export_layout", "join", "list_models", "load", "save", "with_readout", "without_readout",
]  # fmt: skip
