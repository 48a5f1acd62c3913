"""`mh.serve`: models, threads, socket and server, from start to stop."""

from __future__ import annotations

import errno
import gc
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import uvicorn

from multihead.inference import Pipeline
from multihead.machine.threads import processors
from multihead.server.api import Api, document_models, make_app
from multihead.server.compat import CompatRoutes
from multihead.server.limits import Limits
from multihead.server.metrics import Metrics
from multihead.server.models import ModelTable, load_models
from multihead.server.openai import OpenAIRoutes
from multihead.server.security import Access, Guard, guarded_protocol
from multihead.server.studio import StudioOptions, StudioRoutes

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

Models = str | Path | Pipeline | Sequence[str | Path] | Mapping[str, Pipeline]
MOST_FILES = 8192
SPARE = 128  # files that are no connections
SWITCH = 0.001  # seconds until a thread that computes lets another one run: requests are read by one, models by another


@dataclass(eq=False)
class ModelServer:
    """A server with its models loaded, before and while it runs."""

    table: ModelTable
    api: Api
    server: Any  # uvicorn.Server
    socket: socket.socket
    address: str

    def run(self) -> None:
        """Answer requests until a signal comes, or `stop`; then finish what was begun."""
        try:
            self.server.run(sockets=[self.socket])
        finally:
            self.api.ready = False
            self.table.close()

    def stop(self) -> None:
        self.server.should_exit = True


def make_server(
    models: Models,
    *,
    access: Access | None = None,
    port: int = 8000,
    limits: Limits | None = None,
    workers: int = 1,
    device: str = "auto",
    precision: str = "fp32",
    studio: StudioOptions | None = None,
    write: Callable[[str], None] = lambda line: None,
) -> ModelServer:
    """Load models, warm them up and bind a socket. The server answers once `run` is called."""
    access, limits = access or Access(), limits or Limits()
    listening = bind(access.host, port)  # before the models: a port that is taken is told at once
    metrics = Metrics()
    table = ModelTable(limits, metrics, workers)
    try:
        limits = replace(limits, connections=min(limits.connections, raise_open_files() - SPARE))
        torch.set_num_threads(max(1, min(torch.get_num_threads(), processors()) // workers))
        sys.setswitchinterval(SWITCH)
        load_models(table, _models_by_name(models), device, precision)
        for served in table.models.values():
            served.warm_up()
    except BaseException:
        listening.close()
        table.close()
        raise
    api = Api(table, limits, metrics)
    routes = make_app(api)
    for part in (api, OpenAIRoutes(api), CompatRoutes(api), StudioRoutes(api, studio or StudioOptions())):
        part.add_routes(routes)
    document_models(routes, table)
    app = Guard(routes, access, limits, metrics, write, table.check_room)
    config = uvicorn.Config(
        app,
        http=guarded_protocol(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        timeout_keep_alive=int(limits.slow),
        timeout_graceful_shutdown=int(limits.seconds),
        backlog=min(2048, 2 * limits.connections),
    )
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # its start-up lines; ours says more
    api.ready = True
    # What was loaded stays: looking through it (0.4 s with torch) at every full collection would stall all requests.
    gc.collect()
    gc.freeze()
    listening.listen(config.backlog)  # whoever reads the address may connect at once
    return ModelServer(table, api, uvicorn.Server(config), listening, _address(listening, access.host))


def serve(
    models: Models,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    key: str = "",
    max_queue: int = Limits.queue,
    workers: int = 1,
    device: str = "auto",
    precision: str = "fp32",
) -> None:
    """Serve models over HTTP until Ctrl-C or SIGTERM.

    models: what `mh.load` gave, or a path, or several paths, or {name: loaded model}.
    Raises ValueError for a host that can be reached from elsewhere without a key.

    Example:
        mh.serve(mh.load("runs/ner/model"), port=8000)
    """
    limits = Limits(queue=max_queue, inputs=min(max_queue, Limits.inputs))
    make_server(
        models, access=Access(host, key), port=port, limits=limits, workers=workers, device=device, precision=precision
    ).run()


@contextmanager
def serve_in_thread(models: Models, **options: Any) -> Iterator[ModelServer]:
    """Serve in a thread while the block runs: for tests, notebooks and benchmarks."""
    running = make_server(models, **{"port": 0, **options})
    thread = threading.Thread(target=running.run, name="multihead-http", daemon=True)
    thread.start()
    try:
        while not running.server.started and thread.is_alive():
            time.sleep(0.005)
        yield running
    finally:
        running.stop()
        thread.join(timeout=60)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; the errors name the way out."""
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((bare, port))
    except (OSError, OverflowError) as error:
        listening.close()
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise ValueError(f"port {port} is taken; choose another: --port {min(port + 1, 65535)}") from None
        raise ValueError(f"cannot listen on {host}, port {port}: {error}; see --host and --port") from None
    return listening


def raise_open_files() -> int:
    """Ask for as many open files as the system grants, and return how many: each connection is one."""
    if resource is None:
        return 1024
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if 0 <= hard < MOST_FILES else MOST_FILES
    if 0 <= soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(256, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _address(listening: socket.socket, host: str) -> str:
    shown = f"[{host.strip('[]')}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"


def _models_by_name(models: Models) -> Sequence[str] | Mapping[str, Pipeline]:
    if isinstance(models, Pipeline):
        return {models.name or models.task or "model": models}
    if isinstance(models, str | Path):
        return [str(models)]
    return models if isinstance(models, Mapping) else [str(path) for path in models]
