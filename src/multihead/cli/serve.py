"""`multihead serve`: an HTTP API for models of any task, and a page to look inside them."""

from __future__ import annotations

import sys
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multihead.cli.app import DEVICE, PRECISION, verb
from multihead.cli.data_arguments import rows_of

if TYPE_CHECKING:
    from multihead.server import ModelServer
    from multihead.tasks import Values

app = verb()

SCORED = 1000  # rows of a file that the studio scores on


@app.command()
def serve(
    models: Annotated[list[str], typer.Argument(help="Model directories or hub:owner/name; NAME=PATH gives a name.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 selects a free port.")] = 8000,
    host: Annotated[str, typer.Option(help="An address other than loopback requires --key.")] = "127.0.0.1",
    key: Annotated[str, typer.Option(envvar="MULTIHEAD_KEY", help="Clients send it: Authorization: Bearer KEY.")] = "",
    workers: Annotated[int, typer.Option(min=1, max=64, help="Batches of a model that are processed at a time.")] = 1,
    max_queue: Annotated[
        int, typer.Option(min=1, help="Inputs of a model that may wait; further ones get status 429.")
    ] = 256,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A host name of this server, in addition to loopback's.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="A web origin that may send requests: https://example.org.")
    ] = None,
    data: Annotated[
        list[Path] | None, typer.Option(help="Rows that the studio offers and scores on: FILE, or NAME=FILE.")
    ] = None,
    save_to: Annotated[Path | None, typer.Option(help="Where the studio may save pruned models.")] = None,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
    precision: Annotated[str, typer.Option(help=PRECISION)] = "fp32",
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No access log.")] = False,
) -> None:
    """Serve models over HTTP, with the studio (a web page) at the same address, until Ctrl-C or SIGTERM. Running
    requests are finished. Logs one line per request to stderr.

    \b
    Example:
      multihead serve runs/ner/model
      multihead serve runs/ner/model --data valid.conll --save-to runs/pruned --open
      multihead serve names=runs/ner/model mood=runs/sst2/model --port 9000
      curl localhost:8000/v1/predict/ner -H 'Content-Type: application/json' -d '{"input": "Ada visited Rome."}'
    """
    from multihead.server import Access, Limits, StudioOptions, make_server

    access = Access(host, key, tuple(name.lower() for name in allow_host or ()), tuple(allow_origin or ()))
    limits = Limits(queue=max_queue, inputs=min(max_queue, Limits.inputs))
    studio = StudioOptions(save_to=save_to)
    server = make_server(
        models,
        access=access,
        port=port,
        limits=limits,
        workers=workers,
        device=device,
        precision=precision,
        studio=studio,
        write=(lambda line: None) if quiet else _log,
    )
    studio.rows.update(_read_data(server, data or []))
    names = ", ".join(f"{name} ({served.description['task']})" for name, served in server.table.models.items())
    print(f"multihead: serving {names} at {server.address} (Ctrl-C stops)", flush=True)
    if open_page:
        threading.Timer(0.5, webbrowser.open, [server.address]).start()
    server.run()


def _read_data(server: ModelServer, given: list[Path]) -> dict[str, list[Values]]:
    """By model, the rows of its file; a file without a model's name is the first model's."""
    found: dict[str, list[Values]] = {}
    for entry in given:
        name, equals, path = str(entry).partition("=")
        if not equals:
            name, path = next(iter(server.table.models)), name
        if name not in server.table.models:
            raise typer.BadParameter(f"--data {entry}: no model is called {name!r}: {', '.join(server.table.models)}")
        found[name] = list(rows_of(server.table.models[name].loaded, Path(path), None, SCORED, gold=True))
    return found


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
