"""`multihead heads stats`: profile every head over a dataset."""

from __future__ import annotations

import json as jsons

from multihead.cli.data_arguments import by_task, rows_of
from multihead.cli.heads.arguments import Columns, Data, Json, Limit, Model, Task


def stats(
    model: Model,
    data: Data,
    columns: Columns = None,
    limit: Limit = None,
    task: Task = None,
    json: Json = False,
) -> None:
    """Profile every head over a dataset: where it attends, how broadly, which heads are similar, and a name for it.

    The model may be one without a task. Names follow rules: a head that gives at least half of its attention to one
    kind of position is named for it, from three tenths on "partly"; "broad" is nearly uniform, "near" within two
    tokens.

    For a multi-task model, give a file for each task: the profile shows which heads each task uses.

    \b
    Example:
      multihead heads stats runs/ner/model test.txt --limit 500
      multihead heads stats runs/both/model mood=mood.csv type=type.csv text=question
    """
    from rich.console import Console

    from multihead.inspection.head_profile import stats as measured
    from multihead.inspection.head_usage import measure_head_usage
    from multihead.metrics import to_json
    from multihead.pretrained import load
    from multihead.report.head_tables import print_profile, print_uses

    console = Console(highlight=False, stderr=json)
    loaded = load(model, task=task)
    if str(data).partition("=")[0] in loaded.tasks:
        with console.status("reading the files"):
            used = measure_head_usage(by_task(model, loaded.tasks, [str(data), *(columns or [])], limit))
        if json:
            print(jsons.dumps(to_json(used), allow_nan=False))
        else:
            print_uses(used, console)
        return
    with console.status(f"reading {data}") as status:
        profile = measured(
            loaded,
            rows_of(loaded, data, columns, limit, gold=False),
            on_progress=lambda inputs: status.update(f"reading {data}: {inputs:,} inputs"),
        )
    if json:
        lines = {a: {"name": n, **to_json(profile[a])} for a, n in zip(profile.addresses, profile.names, strict=True)}
        record = {"inputs": profile.inputs, "tokens": profile.tokens, "heads": lines, "clusters": profile.clusters}
        print(
            jsons.dumps(
                record | {"similarity": to_json(profile.similarity), "rollout": to_json(profile.rollout)},
                allow_nan=False,
            )
        )
        return
    print_profile(profile, console)
