"""Pretrained models: load, save, assemble."""

from multihead.pretrained.assemble import create, join, reading, trunk_of, with_readout
from multihead.pretrained.load import load
from multihead.pretrained.save import layout, save

__all__ = ["create", "join", "layout", "load", "reading", "save", "trunk_of", "with_readout"]
