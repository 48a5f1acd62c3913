"""Serving: models over HTTP, batched as requests come, with limits that hold."""

from multihead.server.limits import Limits
from multihead.server.running import ModelServer, make_server, serve, serving
from multihead.server.security import Access

__all__ = ["Access", "Limits", "ModelServer", "make_server", "serve", "serving"]
