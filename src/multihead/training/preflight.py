"""Preflight checks: problems that would stop a run or distort its scores, reported before its first step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path

from multihead.config import RunConfig
from multihead.data.validation import DataIssue
from multihead.io.hub import PREFIX
from multihead.tasks import Values
from multihead.tasks.classify import label_names
from multihead.tasks.ner import Ner
from multihead.training.dataset import encode_windows
from multihead.training.setup import TaskSetup, set_up
from multihead.training.task_data import read_all

SHOWN = 3  # examples per finding
LOOKED, LONG = 10_000, 0.1  # rows to examine; share of long ones that warrants a warning


def has_errors(issues: Mapping[str, list[DataIssue]]) -> bool:
    return any(finding.level == "stop" for findings in issues.values() for finding in findings)


def try_setup(run: RunConfig) -> dict[str, list[DataIssue]]:
    """Set up the run; return by task the errors that training would raise, and warnings about its data."""
    first = run.tasks[0].name if run.tasks else ""
    try:
        if str(run.from_).startswith(PREFIX):  # would be downloaded
            read_all(run)
            return {}
        return {subject.name: first_rows(subject) for subject in set_up(run)[0]}
    except ValueError as error:
        return {first: [DataIssue("stop", "refused", str(error))]}


def first_rows(subject: TaskSetup) -> list[DataIssue]:
    """Check the first rows for unknown tokens, long inputs, dropped rows, and questions without an answer."""
    task = subject.task
    issues = [DataIssue("warn", "unknown words", warning) for warning in subject.unknown_token_warnings()]
    for name, rows in {} if task.running else subject.sides.items():
        count = windowed = without = single = 0
        left: Counter[str] = Counter()
        for values in islice(task.training_rows(rows()) if name == "train" else task.prepare(rows()), LOOKED):
            windows, reason = encode_windows(task, values)
            count, windowed = count + 1, windowed + (len(windows) > task.readings)
            without += "answers" in task.gold and not values["answers"]
            single += bool(task.options.get("multi_label")) and len(label_names(values["label"])) == 1
            left.update([reason] if reason and name == "train" else [])
        of = f"{name}: {{:,}} of {'the first ' if count == LOOKED else ''}{count:,} inputs ({{:.1%}})"
        if windowed:
            what = f"{of.format(windowed, windowed / count)} are longer than {task.size} tokens and split into windows"
            issues.append(DataIssue("warn" if windowed > LONG * count else "note", "long inputs", what))
        if without and not task.options.get("no_answer"):
            fix = "have no answer, which the model cannot predict: set answer.no_answer = true"
            issues.append(DataIssue("warn", "no answer", f"{of.format(without, without / count)} {fix}"))
        if single and single == count and name == "train":
            fix = 'have one label; write several labels as a list, ["a", "b"], or remove classify.multi_label'
            issues.append(DataIssue("warn", "one label", f"{of.format(single, 1)} {fix}"))
        issues += otherwise_in_raw_text(name, task, rows) if isinstance(task, Ner) else []
        for reason, times in left.items():
            what = f"{of.format(times, times / count)} are not used for training: {reason}"
            issues.append(DataIssue("warn", "left out", what))
    return issues


def otherwise_in_raw_text(name: str, task: Ner, rows: Callable[[], Iterable[Values]]) -> list[DataIssue]:
    """Report first rows that encode differently from the same sentence as raw text."""
    count, differing = 0, []
    for values in islice(rows(), LOOKED):
        count += 1
        if not task.reads_raw_text(values):
            differing.append(f"{values['file']}:{values['line']}: {values.get('raw_text', '')}")
    if not differing:
        return []
    share = len(differing) / count
    what = f"{name}: {len(differing):,} of {'the first ' if count == LOOKED else ''}{count:,} inputs ({share:.1%})"
    what += " join to a text that differs from their raw text, so scores predict raw text less well"
    fix = "; add SpaceAfter=No, or a # text that consists of the tokens"
    return [DataIssue("warn" if share > LONG else "note", "raw text", what + fix, examples=tuple(differing[:SHOWN]))]


def missing_models(run: RunConfig) -> list[DataIssue]:
    """Report missing models to start from; those on the hub are not checked."""
    named = run.from_.values() if isinstance(run.from_, dict) else [run.from_ or PREFIX]
    fix = f"name a directory or hub:owner/name, or train from scratch: multihead init {run.task} --scratch"
    gone = [str(model) for model in named if not str(model).startswith(PREFIX) and not Path(model).exists()]
    return [DataIssue("stop", "no model", f"from = {model!r}: no such model; {fix}") for model in gone]
