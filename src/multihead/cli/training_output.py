"""Output of `train` while it runs: the data, a progress line, notes."""

from __future__ import annotations

import signal
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from multihead.tasks import Task
    from multihead.training.dataset import TrainingData
    from multihead.training.run import TrainingRun


def announce(training: TrainingRun, console: object) -> None:
    """Print the data and the estimated time."""
    from multihead.training import checkpoints
    from multihead.training.events import format_duration
    from multihead.training.time_estimate import seconds_per_step

    say = partial(console.print, markup=False)  # type: ignore[attr-defined]  # [tokenizer] in a message is not markup
    for subject, part in zip(training.subjects, training.parts, strict=True):
        train, data = subject.qualified_name("train"), cast("TrainingData", part.data)
        say(f"{train}: {data.read or subject.readings['train']}")
        for side, reading in subject.readings.items():
            if side != "train" and subject.labels:  # of other tasks only the first example was read so far
                say(f"{subject.qualified_name(side)}: {reading}")
        for note in data.notes:
            say(f"{train}: {note}")
        for warning in subject.overlap_warnings() + subject.unknown_token_warnings():
            say(f"{f'{subject.name}/' if subject.name else ''}{warning}", style="yellow")
        description = f"{about(part.task)}, {len(data.sizes):,} windows, {data.sizes.sum():,} tokens"
        if subject.name:
            say(f"{subject.name}: {description}{', auxiliary' if subject.auxiliary else ''}")
    if wrote := training.subjects[0].wrote:
        say(f"from: {wrote} is a causal model; it is fine-tuned as a bidirectional encoder")
    total = training.order.steps
    finished = max(checkpoints.list_steps(training.out / "checkpoints"), default=0)
    if finished == total:
        left = f"{total:,} steps, all finished; scoring again; --fresh starts over"
    else:
        of_them = f" ({finished:,} finished)" if finished else ""
        left = f"{total:,} steps{of_them}; {format_duration(seconds_per_step(training) * (total - finished))}"
    say(left if training.subjects[0].name else f"{description}, {left}")


def about(task: Task) -> str:
    """Return the output of a task: a number of labels, or a vocabulary."""
    if task.readout.over != "vocabulary":
        return f"{len(task.labels)} labels" if task.labels else task.name
    tokenizers = dict.fromkeys((task.tokenizer, task.tokenizer.target))
    return f"a vocabulary of {' and '.join(f'{len(tokenizer):,}' for tokenizer in tokenizers)}"


def run_steps(training: TrainingRun, console: object) -> int:
    """Run all steps with a progress line; a signal saves and stops. Return the signal, or 0."""
    from multihead.machine.memory import resident_bytes
    from multihead.report.data import display_name
    from multihead.report.progress import Progress
    from multihead.training.events import Evaluated, Note, Resumed, Saved
    from multihead.training.loop import StepRecord

    caught = 0

    def stop(signum: int, frame: FrameType | None) -> None:
        nonlocal caught
        caught, training.stop = signum, True

    before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        with Progress(training.order.steps, console=console) as line:  # type: ignore[arg-type]
            for event in training:
                if isinstance(event, StepRecord):
                    places = event.padded
                    line.update(
                        event.step,
                        loss=event.loss,
                        of=event.task,
                        tokens=event.tokens,
                        places=places,
                        memory=resident_bytes(),
                    )
                    if event.skipped:
                        line.say(f"step {event.step}: the gradient was not finite; the update was skipped")
                elif isinstance(event, Resumed):
                    for note in event.notes:
                        line.say(f"not used: {note}")
                    if event.step < training.order.steps:
                        line.say(f"going on from step {event.step}")
                elif isinstance(event, Evaluated):
                    mark = ", the best so far" if event.best else ""
                    line.say(f"{event.what}: validation {event.main} {event.scores[event.main].value:.4f}{mark}")
                    for name in event.mains if len(event.mains) > 1 else ():
                        line.say(f"  {display_name(name)} {event.scores[name].value:.4f}")
                elif isinstance(event, Note):
                    line.say(event.text)
                elif isinstance(event, Saved):
                    line.update(event.step, note="saved")
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
    return caught


def machine_line() -> str:
    import torch

    from multihead.machine.cpu import cpu_name

    return f"{cpu_name()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
