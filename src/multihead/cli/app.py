"""What all verbs share: how a verb's typer application is made."""

import typer

DEVICE = "auto (a graphics card where there is one), cpu, cuda or mps."
PRECISION = "Of tasks that read: fp32, bf16, or auto (bf16 where the machine is right in it, and faster)."


def verb() -> typer.Typer:
    """An application with one command; plain help (rich's layout costs 0.1 s) and our own error endings."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
