"""`multihead heads show`: show the attention of heads in a text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.heads.arguments import Model


def show(
    model: Model,
    text: Annotated[str, typer.Argument(help="A sentence; - reads it from stdin, @FILE from a file.")],
    head: Annotated[str | None, typer.Option(help="One head, by its address: encoder.2.self.3")] = None,
    second: Annotated[str | None, typer.Option(help="The second text of a pair; of a translation, the target.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write a picture.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that opens in any browser, on its own.")] = None,
    rows: Annotated[str | None, typer.Option(help="In a long text: words with exact rows in the page, 100:150")] = None,
    window: Annotated[int | None, typer.Option(help="Which window of a text that is longer than the model's.")] = None,
) -> None:
    """Show the attention of heads in a text: in the terminal, as a picture, as a page.

    Subwords are joined to words. Beyond 256 words, maps are coarse and some rows are exact: some of every head, those
    of --rows, or all of one --head.

    \b
    Example:
      multihead heads show runs/ner/model "Angela Merkel visited Beijing." --head encoder.2.self.3
      multihead heads show runs/ner/model @article.txt --html heads.html
    """
    from rich.console import Console

    from multihead.inspection.attention_maps import attention_maps
    from multihead.io.files import write_bytes
    from multihead.pretrained import load
    from multihead.report.attention_html import render_attention
    from multihead.report.attention_terminal import draw_png, show_map

    console = Console(highlight=False)
    content = text_of(text)
    loaded = load(model)
    with console.status("reading the text"):
        drawn = attention_maps(
            loaded, content, second, window=window, head=head, rows=span(rows), title=Path(model).resolve().parent.name
        )
    if png is not None:
        draw_png(drawn, png, head)
    if html is not None:
        write_bytes(html, render_attention(drawn, head).encode())
    for path in (png, html):
        if path is not None:
            console.print(f"written: {path}")
    if png is None and html is None:
        show_map(drawn, console, head)


def text_of(argument: str) -> str:
    """Return the text of an argument, or read it from stdin or a file."""

    from multihead.io.files import read_text

    if argument == "-":
        return sys.stdin.read().strip()
    return read_text(Path(argument[1:])).strip() if argument.startswith("@") else argument


def span(rows: str | None) -> range:
    """Parse 100:150, or 7."""
    if rows is None:
        return range(0)
    first, _, last = rows.partition(":")
    if not first.isdigit() or (last and not last.isdigit()):
        raise typer.BadParameter(f"{rows!r} is not of the form 100:150")
    return range(int(first), int(last) if last else int(first) + 1)
