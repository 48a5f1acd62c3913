"""Task specifications: one `TaskSpec` per task, shared by configuration, dataset readers, training and command line.

To add a task, write its file (a `Task` whose `spec` is `SPECS[name]`) and add its entry to `SPECS`. A leaf without
torch: `multihead.tasks.TASKS` imports the implementing class on first access.
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
# Default architectures from scratch: mBART's for encoder-decoders, which trains far faster than Marian's (post-norm,
# sinusoidal); for all others rotary positions and pre-norm, which is Llama's design for decoders, and for encoders
# trains far faster than BERT's (learned positions, post-norm).
LEARNED_POSITIONS: dict[str, dict[str, Any]] = {"model": {"positions": "learned"}}
SMOOTHED: dict[str, dict[str, Any]] = {"train": {"smoothing": 0.1}}
SAMPLED: dict[str, dict[str, Any]] = {"decode": {"beam": 1, "sample": True, "temperature": 0.8, "top_p": 0.95}}


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """Facts about one task.

    name: name in run files and model directories, and of its section.
    implementation: the implementing class, as "module:Class".
    inputs, gold: the columns that prediction needs, and those that training needs in addition.
    label: the gold column that holds a label; None: the output is a generated text, or none.
    body: the kind of body: encoder, decoder or encoder-decoder.
    options: the class of its section in the run file, as "module:Class".
    example: a training file and its format, for `multihead init`.
    defaults: section -> key -> value, where they differ from those of other tasks.
    generates_text: the task has a [decode] section.
    has_source: it generates a text from another text, and words of the two can be aligned.
    soft_labels: it can be distilled from a teacher's probabilities.
    numeric_labels: its labels may be numbers on a scale.
    unsupported: keys of other sections that would have no effect, such as train.smoothing.
    self_describing: formats that name their own columns (CoNLL, SQuAD) are its usual ones.
    documents: a plain file is one running text, and JSON may hold conversations.
    fills_masks: its input is a text with mask tokens.
    default_for_body: the default task of a pretrained language model with such a body.
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
        """The class of its options; imported on first access, since loading a model does not need pydantic."""
        section: type[TaskSection] = import_object(self.options)
        return section

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its training data. A prompt is not one: it is the beginning of a text."""
        return self.gold if self.documents else (*self.inputs, *self.gold)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The input columns of its training data, without labels or target texts."""
        return self.gold if self.documents else self.inputs

    @property
    def tags_words(self) -> bool:
        """Whether it labels words; raw text can replace words, and tags have a scheme."""
        return "tags" in self.columns

    def conflicts(self, section: TaskSection) -> Mapping[str, str]:
        """Return keys of other sections that the task does not support with these options, mapped to the reason."""
        reasons = {} if self.soft_labels else {"data.teacher": self.name}
        return {**reasons, **dict.fromkeys(self.unsupported, f"task = {self.name}"), **section.conflicts()}


def import_object(path: str) -> Any:
    """Import and return the object at "module:name"."""
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
    """Return the name of a known task, or raise ValueError."""
    if task in SPECS:
        return task
    near = get_close_matches(task.lower(), SPECS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(SPECS)}"
    raise ValueError(f"task is {task!r}; {hint}")
