"""Pretrained models: load, save, assemble."""

from multihead.pretrained.assemble import as_encoder, create, join, with_readout, without_readout
from multihead.pretrained.load import load
from multihead.pretrained.save import export_layout, save

__all__ = ["as_encoder", "create", "export_layout", "join", "load", "save", "with_readout", "without_readout"]
