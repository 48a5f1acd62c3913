"""Serving: models over HTTP, batched as requests come, with limits that hold."""

from multihead.server.limits import Limits
from multihead.server.running import ModelServer, make_server, serve, serve_in_thread
from multihead.server.security import Access
from multihead.server.studio import StudioOptions

__all__ = ["Access", "Limits", "ModelServer", "StudioOptions", "make_server", "serve", "serve_in_thread"]
