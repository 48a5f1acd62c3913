"""Where parts are put together: models are opened, made, used and written here."""

from multihead.build.forms import create, join, reading, trunk_of, with_readout
from multihead.build.loaded import Loaded
from multihead.build.opening import load
from multihead.build.writing import layout, save

__all__ = ["Loaded", "create", "join", "layout", "load", "reading", "save", "trunk_of", "with_readout"]
