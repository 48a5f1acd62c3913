"""Serving: models over HTTP, batched as requests come, with limits that hold."""

from multihead.serve.limits import Limits
from multihead.serve.running import ModelServer, make_server, serve, serving
from multihead.serve.security import Access

__all__ = ["Access", "Limits", "ModelServer", "make_server", "serve", "serving"]
