"""`multihead init`: print a complete, commented run file for a task."""

from typing import Annotated

import typer

from multihead.cli.app import verb

app = verb()


@app.command()
def init(
    task: Annotated[
        str, typer.Argument(help="ner, classify, match, answer, translate, summarize, generate, mask or denoise.")
    ],
    from_: Annotated[str | None, typer.Option("--from", help="The model to start from: a path or hub:owner/name.")] = (
        None
    ),
    scratch: Annotated[bool, typer.Option("--scratch", help="Train tokenizer and model from scratch.")] = False,
) -> None:
    """Print a complete, commented run file for a task.

    \b
    Example:
      multihead init ner --from path/to/model > run.toml
    """
    if scratch and from_ is not None:
        raise typer.BadParameter("--from and --scratch exclude each other")
    from multihead.config import template
    from multihead.tasks.spec import check_task_name

    try:
        check_task_name(task)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    print(template(task, from_scratch=scratch, **({} if from_ is None else {"from_": from_})), end="")
