"""What each task is: one `TaskSpec` a task, read by the configuration, the readers, training and the command line.

To add a task, write its file (a `Task` whose `spec` is `SPECS[name]`) and add its entry to `SPECS`. A leaf without
torch: the class that does a task is imported when `multihead.tasks.TASKS` is asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from multihead.tasks.sections import TaskSection

Body = Literal["encoder", "decoder", "encoder_decoder"]
# A model from scratch has a shape that learns well: mBART's for encoder-decoders, far faster than Marian's (norm after,
# sinusoidal); for all others rotary positions and the norm first, which is Llama's shape for decoders, and for encoders
# far faster than BERT's (learned positions, norm after).
LEARNED_POSITIONS: dict[str, dict[str, Any]] = {"model": {"positions": "learned"}}
SMOOTHED: dict[str, dict[str, Any]] = {"train": {"smoothing": 0.1}}
SAMPLED: dict[str, dict[str, Any]] = {"decode": {"beam": 1, "sample": True, "temperature": 0.8, "top_p": 0.95}}


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """The facts about one task.

    name: what run files and model directories call it, also the name of its section.
    implementation: the class that does it, as "module:Class".
    inputs, gold: the columns that a prediction needs, and those that training needs on top.
    label: the gold column that holds a label; None: the output is a text of its own, or none.
    body: what the model is.
    options: the class of its section in the run file, as "module:Class".
    example: a training file and its format, for `multihead init`.
    defaults: section -> key -> value, where they differ from those of other tasks.
    generates_text: it has [decode].
    has_source: it writes another text than it reads, whose words can be aligned.
    soft_labels: it can learn a teacher's probabilities.
    numeric_labels: its labels may be numbers on a scale.
    unsupported: keys of other sections that would change nothing, such as train.smoothing.
    self_describing: formats that name their own columns (CoNLL, SQuAD) are its usual ones.
    documents: a plain file is one text that a model goes on with, and JSON may hold conversations.
    fills_masks: its input is a text with mask tokens.
    default_for_body: what a language model with such a body is used for that was not trained here.
    """

    name: str
    implementation: str
    inputs: tuple[str, ...]
    gold: tuple[str, ...] = ()
    label: str | None = None
    body: Body = "encoder"
    options: str = "multihead.tasks.sections:TaskSection"
    example: tuple[str, str] = ("train.csv", "csv")
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    generates_text: bool = False
    has_source: bool = False
    soft_labels: bool = False
    numeric_labels: bool = False
    unsupported: tuple[str, ...] = ()
    self_describing: bool = False
    documents: bool = False
    fills_masks: bool = False
    default_for_body: bool = False

    @property
    def section(self) -> type[TaskSection]:
        """The class of its options; imported when asked for, because opening a model does without pydantic."""
        section: type[TaskSection] = import_object(self.options)
        return section

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its training data. A prompt is none: it is the beginning of a text."""
        return self.gold if self.documents else (*self.inputs, *self.gold)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns of its training data that are read, without the labels or the text to be written."""
        return self.gold if self.documents else self.inputs

    @property
    def tags_words(self) -> bool:
        """Whether it labels words; raw text can be given instead of words, and tags have a scheme."""
        return "tags" in self.columns

    def conflicts(self, section: TaskSection) -> Mapping[str, str]:
        """Return keys of other sections that the task does not support with these options -> why."""
        reasons = {} if self.soft_labels else {"data.teacher": self.name}
        return {**reasons, **dict.fromkeys(self.unsupported, f"task = {self.name}"), **section.conflicts()}


def import_object(path: str) -> Any:
    """Return what "module:name" names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


SPECS: dict[str, TaskSpec] = {
    spec.name: spec
    for spec in (
        TaskSpec(
            name="ner",
            implementation="multihead.tasks.ner:Ner",
            inputs=("tokens",),
            gold=("tags",),
            label="tags",
            options="multihead.tasks.sections:NerSection",
            example=("train.conll", "conll"),
            soft_labels=True,
            self_describing=True,
        ),
        TaskSpec(
            name="classify",
            implementation="multihead.tasks.classify:Classify",
            inputs=("text",),
            gold=("label",),
            label="label",
            options="multihead.tasks.sections:ClassifySection",
            example=("train.csv", "csv"),
            soft_labels=True,
        ),
        TaskSpec(
            name="match",
            implementation="multihead.tasks.match:Match",
            inputs=("text_a", "text_b"),
            gold=("label",),
            label="label",
            options="multihead.tasks.sections:MatchSection",
            example=("train.tsv", "tsv"),
            soft_labels=True,
            numeric_labels=True,
        ),
        TaskSpec(
            name="answer",
            implementation="multihead.tasks.answer:Answer",
            inputs=("question", "context"),
            gold=("answers",),
            options="multihead.tasks.sections:AnswerSection",
            example=("train.json", "squad"),
            unsupported=("train.smoothing", "train.rdrop"),
            self_describing=True,
        ),
        TaskSpec(
            name="translate",
            implementation="multihead.tasks.translate:Translate",
            inputs=("source",),
            gold=("target",),
            body="encoder_decoder",
            options="multihead.tasks.sections:TranslateSection",
            example=("train.tsv", "pairs"),
            defaults=LEARNED_POSITIONS | SMOOTHED,
            generates_text=True,
            has_source=True,
            default_for_body=True,
        ),
        TaskSpec(
            name="summarize",
            implementation="multihead.tasks.summarize:Summarize",
            inputs=("source",),
            gold=("target",),
            body="encoder_decoder",
            options="multihead.tasks.sections:SummarizeSection",
            example=("train.jsonl", "jsonl"),
            defaults=LEARNED_POSITIONS | SMOOTHED,
            generates_text=True,
            has_source=True,
        ),
        TaskSpec(
            name="generate",
            implementation="multihead.tasks.generate:Generate",
            inputs=("prompt",),
            gold=("text",),
            body="decoder",
            options="multihead.tasks.sections:GenerateSection",
            example=("train.txt", "document"),
            defaults=SAMPLED,
            generates_text=True,
            unsupported=("train.rdrop",),
            documents=True,
            default_for_body=True,
        ),
        TaskSpec(
            name="mask",
            implementation="multihead.tasks.masked_lm:MaskedLM",
            inputs=("text",),
            options="multihead.tasks.sections:MaskSection",
            example=("train.txt", "text"),
            unsupported=("train.rdrop",),
            default_for_body=True,
            fills_masks=True,
        ),
        TaskSpec(
            name="denoise",
            implementation="multihead.tasks.denoise:Denoise",
            inputs=("text",),
            body="encoder_decoder",
            options="multihead.tasks.sections:DenoiseSection",
            example=("train.txt", "text"),
            defaults=LEARNED_POSITIONS,
            generates_text=True,
            unsupported=("train.rdrop",),
            fills_masks=True,
        ),
    )
}


def check_task_name(task: str) -> str:
    """Return the name, if there is such a task."""
    if task in SPECS:
        return task
    near = get_close_matches(task.lower(), SPECS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(SPECS)}"
    raise ValueError(f"task is {task!r}; {hint}")
