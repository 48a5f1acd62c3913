"""The typer application and option texts that all commands share."""

import typer

DEVICE = "auto (a GPU where there is one), cpu, cuda or mps."
PRECISION = "For inference: fp32, bf16, or auto (bf16 where it is accurate and faster on this machine)."


def verb() -> typer.Typer:
    """Return an application with one command, with plain help (rich's layout costs 0.1 s) and our own error
    handling.
    """
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
