"""Where parts are put together: a model's directory is opened and written here, in the hub's layout."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multihead.data.disk import read_json
from multihead.data.tokenizer import Tokenizer
from multihead.machine.device import device_of
from multihead.models import (
    Classes,
    Decoder,
    Encoder,
    EncoderDecoder,
    Model,
    ModelConfig,
    TokenStem,
    Vocabulary,
    manifest,
    several,
)
from multihead.models.crf import Chain
from multihead.models.families import (
    FAMILIES,
    OWN,
    Family,
    Plan,
    Shape,
    construct,
    difference,
    drain,
    label_fields,
    labels_of,
    own_config,
    own_plan,
    plan_of,
    pour,
    readout_options,
    shape_of,
)
from multihead.models.files import read_config, read_tensors, write_json, write_tensors
from multihead.models.gguf import open_gguf
from multihead.models.hollow import Hollow
from multihead.models.hub import resolve
from multihead.scores import Score
from multihead.tasks import TASKS, Prediction, Task
from multihead.tasks.bi import Embed
from multihead.tasks.predict import evaluate, predictions
from multihead.tasks.ready import longest, natural, usage

log = logging.getLogger(__name__)

Json = dict[str, Any]
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
GENERATION = (
    "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id",
    "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens",
)  # fmt: skip
TOKENIZERS = (
    "tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "source.spm",
    "sentencepiece.bpe.model",
)  # fmt: skip


@dataclass
class Loaded:
    """A model with all that its directory says about it."""

    model: Model  # a body and a readout, in eval mode
    config: Json  # config.json, keys unknown to us included
    tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None  # of a decoder that was joined to an encoder and reads other tokens
    labels: list[str] = field(default_factory=list)
    generation: Json = field(default_factory=dict)  # generation_config.json
    preprocessor: Json = field(default_factory=dict)  # preprocessor_config.json: of pictures and sound
    task: str | None = None
    kept: dict[str, Tensor] = field(default_factory=dict)  # harmless tensors that the model does not need
    options: Json = field(default_factory=dict)  # of the task, and the window's size and overlap
    pruned: Json = field(default_factory=dict)  # what heads/pruning.py wrote about the model that this was cut from
    tasks: tuple[str, ...] = ()  # of a trunk with several readouts: their names; `load(…, task=name)` opens one

    def __post_init__(self) -> None:
        if self.tokenizer is not None and self.target_tokenizer is not None:
            self.tokenizer.target = self.target_tokenizer

    @property
    def ignored(self) -> list[str]:
        """Names of tensors in the file that the model does not use; `save` writes them back as they were."""
        return sorted(self.kept)

    @property
    def architecture(self) -> str:
        return str((self.config.get("architectures") or [""])[0])

    def ready(self) -> Task:
        """The task that this model was trained for, to be used with it; a model that scores tokens can write."""
        if self.task is None and self.tasks:
            raise ValueError(
                f"this model has several tasks: {', '.join(self.tasks)}; name one: --task {self.tasks[0]}, "
                f"in Python load(…, task={self.tasks[0]!r})"
            )
        if self.task is not None and self.tokenizer is not None:
            task = TASKS[self.task].variant(self.options)(self.tokenizer, self.labels, **self.options)
            task.device = self.model.device
            return task
        name = natural(self.model)
        if name is None or self.tokenizer is None:
            raise ValueError(f"this {self.architecture} was not trained for a task here; train it: multihead init TASK")
        told = usage(self.model.body, self.tokenizer.target, self.generation)
        task = TASKS[name](self.tokenizer, [], longest(self.model.body), **told)
        task.device = self.model.device
        return task

    def to(self, device: str = "auto") -> Loaded:
        """This model, where it shall compute: cpu, cuda, mps, or auto (a graphics card where there is one)."""
        self.model.to(device_of(device))
        return self

    def predict(self, inputs: Iterable[str | Json]) -> list[Prediction]:
        """One prediction for each text, or for each object with the task's columns."""
        task = self.ready()
        rows = (task.checked(given, f"input {number}") for number, given in enumerate(inputs))
        return [prediction for _, prediction in predictions(self.model, task, rows)]

    def embed(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """A vector of length 1 for each text [n, dim], by a bi-encoder or the bare body of one; a product of two is
        their cosine."""
        body, tokenizer = self.model.body, self.tokenizer
        bare = self.task is None or (self.task == "match" and self.options.get("kind") == "bi")
        if not bare or not isinstance(body, Encoder) or tokenizer is None or isinstance(self.model.readout, Classes):
            raise ValueError(f"this {self.architecture} gives no vectors; train one: match with kind = bi")
        size = int(self.options.get("size", body.config.max_length))
        task = Embed(tokenizer, [], size, min(int(self.options.get("overlap", 64)), size // 2))
        task.device = self.model.device
        if isinstance(texts, str):
            raise ValueError("embed takes a list of texts; for one text: embed([text])[0]")
        rows = (task.checked(text, f"input {number}") for number, text in enumerate(texts))
        found = [prediction["vector"] for _, prediction in predictions(self.model, task, rows)]
        return np.stack(found) if found else np.zeros((0, body.config.dim), dtype=np.float32)

    def evaluate(self, rows: Iterable[Json]) -> dict[str, Score]:
        """Scores, with intervals, on rows that hold the task's gold columns too."""
        return evaluate(self.model, self.ready(), rows).result()


def load(
    where: str | Path | Mapping[str, str | Path],
    *,
    architecture: str | None = None,
    tokenizer: bool = True,
    dtype: torch.dtype | None = torch.float32,
    task: str | None = None,
) -> Loaded:
    """Open a model: a directory, "hub:owner/name", a .gguf file, or {encoder: …, decoder: …} to join two.

    architecture: instead of the one that config.json names; "BertModel" opens the body alone.
    dtype: of the weights; None leaves them as they are stored.
    task: of a model with several tasks, the name of one; without a name, the trunk alone is opened.
    """
    if isinstance(where, Mapping):
        if set(where) != {"encoder", "decoder"}:
            raise ValueError(f"joining wants {{encoder = …, decoder = …}}, not {', '.join(map(str, where))}")
        joined = join(*(load(where[side], tokenizer=tokenizer, dtype=dtype) for side in ("encoder", "decoder")))
        return _with_task(joined, task, {}, Path(where["encoder"]), dtype)
    path = resolve(where)
    if path.is_file():
        return _with_task(_load_gguf(path, architecture, tokenizer, dtype), task, {}, path, dtype)
    told = manifest.check(path)
    config = _with_architecture(read_config(path), architecture, path / "config.json")
    plan = _plan(config, path / "config.json")
    file = next((path / name for name in WEIGHTS if (path / name).exists()), path)
    model, kept = _poured(plan, read_tensors(path), file, path / "config.json", dtype)
    whole = Loaded(
        model,
        config,
        tokenizer=Tokenizer.load(path) if tokenizer and _any(path, TOKENIZERS) else None,
        target_tokenizer=Tokenizer.load(path / "target") if tokenizer and (path / "target").is_dir() else None,
        labels=_labels(config, model, path / "config.json"),
        generation=_optional(path / "generation_config.json") or _generation(config, model),
        preprocessor=_optional(path / "preprocessor_config.json"),
        task=told.get("task"),
        kept=kept,
        options=told.get("options", {}),
        pruned=told.get("pruned", {}),
        tasks=tuple(told.get("tasks", {})),
    )
    return _with_task(whole, task, told, path, dtype)


def _with_task(trunk: Loaded, name: str | None, told: Json, path: Path, dtype: torch.dtype | None) -> Loaded:
    """One of several tasks; a model with one task may be asked for that one. None: as it is."""
    if name is None or (not trunk.tasks and name == trunk.task):
        return trunk
    if name not in trunk.tasks:
        known = ", ".join(trunk.tasks) or trunk.task or "none"
        raise ValueError(f"{path}: no task is named {name!r}; there {'are' if trunk.tasks else 'is'}: {known}")
    file = path / manifest.MANIFEST
    try:
        entry = told["tasks"][name]
        kind, labels, options = str(entry["task"]), [str(label) for label in entry["labels"]], dict(entry["options"])
        architecture, readout = str(entry["architecture"]), dict(entry["readout"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{file}: does not say what the task {name!r} is; save the model again") from None
    if kind not in TASKS:
        raise ValueError(f"{file}: the task of {name!r} is {kind!r}; known: {', '.join(TASKS)}")
    model = several.with_stored(trunk.model, readout, name, path, dtype)
    config = {**trunk.config, "architectures": [architecture]}
    config = own_config(model) if config.get("model_type") == OWN else config
    config |= label_fields(labels)
    return replace(trunk, model=model, config=config, labels=labels, task=kind, options=options, kept={}, tasks=())


def save(
    loaded: Loaded, directory: str | Path, *, family: bool = False, tasks: Mapping[str, Loaded] | None = None
) -> None:
    """Write a model's directory, which `load` and, if its shape is a known family's, transformers can open.

    family: refuse a model that is no family's, instead of writing it in our own layout.
    tasks: several readouts on the body of this model, by name; their weights are written beside it.
    """
    directory = Path(directory)
    config, tensors, reason = layout(loaded)
    if family and reason:
        raise ValueError(f"this model has no place in transformers: {reason}")
    directory.mkdir(parents=True, exist_ok=True)
    manifest.begin(directory)
    for name in (*WEIGHTS[1:], several.READOUTS):
        (directory / name).unlink(missing_ok=True)  # of a model that was here before
    if loaded.tokenizer is not None:
        loaded.tokenizer.save(directory)
    if loaded.target_tokenizer is not None:
        loaded.target_tokenizer.save(directory / "target")
    for name, content in (("generation", loaded.generation), ("preprocessor", loaded.preprocessor)):
        if content:
            write_json(directory / f"{name}_config.json", content)
    write_tensors(directory / "model.safetensors", tensors)
    write_json(directory / "config.json", config)
    told = {name: _entry(one, loaded) for name, one in (tasks or {}).items()}
    if tasks:
        one_each = several.readout_tensors({name: one.model for name, one in tasks.items()})
        write_tensors(directory / several.READOUTS, one_each)
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != manifest.MANIFEST]
    manifest.finish(directory, loaded.task, loaded.options, files, loaded.pruned, told)


def trunk_of(loaded: Loaded) -> Loaded:
    """The same body without a readout, labels or task."""
    config = {name: value for name, value in loaded.config.items() if name not in ("id2label", "label2id")}
    model = Model(loaded.model.body, torch.nn.Identity()).eval()
    if config.get("model_type") in FAMILIES:
        config["architectures"] = [_architecture(config["model_type"], "Model")]
    else:
        config = own_config(model)
    return replace(loaded, model=model, config=config, labels=[], task=None, options={}, kept={}, tasks=())


def _entry(one: Loaded, trunk: Loaded) -> Json:
    """What multihead.json says of one of several tasks."""
    assert one.model.body is trunk.model.body
    return {
        "task": one.task,
        "labels": one.labels,
        "options": one.options,
        "architecture": one.architecture,
        "readout": readout_options(one.model.readout),
    }


def layout(loaded: Loaded) -> tuple[Json, dict[str, Tensor], str]:
    """config.json and the tensors of a model as `save` writes them, and why they are no family's ("" if they are)."""
    config, plan, reason = _described(loaded)
    tensors = drain(plan, loaded.model)
    if not reason:
        tensors |= {name: tensor for name, tensor in loaded.kept.items() if name not in tensors}
    return config, tensors, reason


def create(
    model_type: str,
    suffix: str,
    *,
    encoder: ModelConfig | None = None,
    decoder: ModelConfig | None = None,
    shared: bool = True,
    labels: Sequence[str] = (),
    tokenizer: Tokenizer | None = None,
    config: Json | None = None,
) -> Loaded:
    """A new model with random weights in a family's shape: create("bart", "ForConditionalGeneration", …).

    config: what config.json shall say besides (pad_token_id, …).
    """
    family = _family(model_type)
    shape = Shape(encoder, decoder, shared and encoder is not None and decoder is not None)
    if encoder is not None and decoder is not None:
        shape = shape._replace(decoder=replace(decoder, memory_dim=encoder.dim))
    written = family.write(shape, {"model_type": model_type, **(config or {})})
    written |= {"architectures": [_architecture(model_type, suffix)], **label_fields(labels)}
    if not family.fits(shape, written, family.readouts[suffix].only):
        raise ValueError(f"this shape is not {model_type}'s: {difference(family, written, shape)}")
    plan = replace(plan_of(family, written, suffix), shape=shape)
    return Loaded(construct(plan, len(labels)).eval(), written, tokenizer, labels=list(labels))


def with_readout(loaded: Loaded, suffix: str, labels: Sequence[str] = ()) -> Loaded:
    """The same body under a new readout of its family: with_readout(bert, "ForTokenClassification", ["O", …])."""
    model_type = loaded.config.get("model_type", "")
    family = _family(model_type)
    config = {name: value for name, value in loaded.config.items() if name not in ("id2label", "label2id")}
    config |= {"architectures": [_architecture(model_type, suffix)], **label_fields(labels)}
    plan = replace(plan_of(family, config, suffix), shape=shape_of(loaded.model.body))
    whole = construct(plan, len(labels))
    # A pre-trained part of the new readout may have come along unused: BERT's pooler.
    for name, parameter in whole.readout.named_parameters():
        for prefix in plan.prefixes:
            stored = loaded.kept.get(plan.place(f"readout.{name}", prefix, plan.shape).name)
            if stored is not None and stored.shape == parameter.shape:
                parameter.data.copy_(stored)
    body = loaded.model.body
    model = Model(body, whole.readout)
    stem = body.decoder.stem if isinstance(body, EncoderDecoder) else body.stem
    tied = (plan.shape.decoder or plan.shape.encoder or ModelConfig()).tied
    if isinstance(whole.readout, Vocabulary) and isinstance(stem, TokenStem) and tied:
        whole.readout.weight = stem.embedding.weight
    return replace(loaded, model=model.eval(), config=config, labels=list(labels), task=None, kept={}, tasks=())


def join(encoder: Loaded, decoder: Loaded) -> Loaded:
    """A pre-trained encoder and a pre-trained decoder as one encoder-decoder; its cross-attention is new."""
    reads, writes = encoder.model.body, decoder.model.body
    if isinstance(reads, EncoderDecoder):
        reads = reads.encoder
    if not isinstance(reads, Encoder):
        raise ValueError(f"encoder: a {encoder.architecture} only writes; give a model that reads, such as BERT")
    if not isinstance(writes, Decoder):
        raise ValueError(f"decoder: a {decoder.architecture} is no decoder; give one such as GPT-2")
    body = EncoderDecoder(reads.config, writes.config, shared=False)
    body.encoder = reads
    # The parameters themselves, not copies: a readout stays tied to its table.
    missing, unexpected = body.decoder.load_state_dict(writes.state_dict(keep_vars=True), strict=False, assign=True)
    assert not unexpected
    assert all(".cross" in name for name in missing)
    model = Model(body, decoder.model.readout).eval()
    return Loaded(
        model,
        own_config(model),
        tokenizer=encoder.tokenizer,
        target_tokenizer=decoder.tokenizer,
        generation=decoder.generation,
        preprocessor=encoder.preprocessor,
    )


def _load_gguf(path: Path, architecture: str | None, tokenizer: bool, dtype: torch.dtype | None) -> Loaded:
    file = open_gguf(path)
    config = _with_architecture(file.config, architecture, path)
    model, kept = _poured(_plan(config, path), file.tensors, path, path, dtype)
    generation = _generation(config, model)
    return Loaded(model, config, file.tokenizer if tokenizer else None, generation=generation, kept=kept)


def _poured(
    plan: Plan, tensors: Mapping[str, Tensor], file: Path, told: Path, dtype: torch.dtype | None
) -> tuple[Model, dict[str, Tensor]]:
    # Modules are made before tensors are compared with them: a config must not ask for a billion.
    layers = sum(side.layers for side in plan.shape[:2] if side is not None)
    if layers > len(tensors):
        raise ValueError(f"{told}: names {layers:,} layers, {file.name} has {len(tensors):,} tensors")
    model, kept = pour(plan, tensors, str(file), dtype)
    if kept:
        log.info("%s: not needed, left aside: %s", file, ", ".join(sorted(kept)))
    return model, kept


def _with_architecture(config: Json, architecture: str | None, file: Path) -> Json:
    named = config.get("architectures")
    if named is not None and (not isinstance(named, list) or not all(isinstance(name, str) for name in named)):
        raise ValueError(f"{file}: architectures is no list of names; mend it or fetch it again")
    return config if architecture is None else {**config, "architectures": [architecture]}


def _plan(config: Json, file: Path) -> Plan:
    """What config.json describes; every complaint names the file."""
    try:
        if config.get("model_type") == OWN:
            return own_plan(config)
        family = _family(config.get("model_type"))
        name = (config.get("architectures") or [f"{family.title}Model"])[0]
        suffix = name.removeprefix(family.title)
        if name != _architecture(config["model_type"], suffix):
            raise ValueError(f"architecture {name!r} is not one of {config['model_type']}'s")
        return plan_of(family, config, suffix)
    except (ValueError, TypeError, KeyError) as error:  # a field of the wrong type, a field that another one needs
        what = error if isinstance(error, ValueError) else f"not to be read ({type(error).__name__}: {error})"
        raise ValueError(f"{file}: {what}") from None


def _family(model_type: Any) -> Family:
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ValueError(f"model_type {model_type!r} is not supported; supported: {', '.join(FAMILIES)}")
    return FAMILIES[model_type]


def _architecture(model_type: str, suffix: str) -> str:
    family = FAMILIES[model_type]
    if suffix not in family.readouts:
        known = ", ".join(family.title + suffix for suffix in family.readouts)
        raise ValueError(f"architecture {suffix!r} of {model_type} is not supported; supported: {known}")
    return family.title + suffix


def _described(loaded: Loaded) -> tuple[Json, Plan, str]:
    """config.json and plan of a model, and why it is no family's ("" if it is one)."""
    config, model = loaded.config, loaded.model
    reason = f"its model_type is {config.get('model_type')!r}, transformers' are {', '.join(FAMILIES)}"
    if config.get("model_type") in FAMILIES:
        family, shape = FAMILIES[config["model_type"]], shape_of(model.body)
        suffix = loaded.architecture.removeprefix(family.title) or "Model"
        written = family.write(shape, config)
        if suffix in family.readouts and family.fits(shape, written, family.readouts[suffix].only):
            plan = replace(plan_of(family, written, suffix), shape=shape)
            with Hollow():
                told = construct(plan, len(loaded.labels))
            if readout_options(told.readout) == readout_options(model.readout):
                return {**written, **label_fields(loaded.labels, config), **_dtype_field(config, model)}, plan, ""
            reason = f"its readout is not {loaded.architecture}'s"
        else:
            reason = f"its shape is not {config['model_type']}'s: {difference(family, written, shape)}"
    if isinstance(model.readout, Chain):
        reason = "its readout is a conditional random field (ner.crf), which no family has"
    own = own_config(model) | label_fields(loaded.labels)
    return own, own_plan(own), reason


def _dtype_field(config: Json, model: Model) -> Json:
    """config.json names the precision of the weights; `torch_dtype` was its name before."""
    name = str(next(model.parameters()).dtype).removeprefix("torch.")
    key = "torch_dtype" if "torch_dtype" in config else "dtype"
    return {} if config.get(key) is None else {key: name}


def _labels(config: Json, model: Model, file: Path) -> list[str]:
    answering = bool(config.get("architectures")) and config["architectures"][0].endswith("ForQuestionAnswering")
    try:
        return labels_of(config, model, answering)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _generation(config: Json, model: Model) -> Json:
    """Where generation_config.json is missing, config.json itself says how a model begins and ends what it writes."""
    if isinstance(model.body, Encoder):
        return {}
    return {name: config[name] for name in GENERATION if config.get(name) is not None}


def _optional(file: Path) -> Json:
    return read_json(file) if file.exists() else {}


def _any(directory: Path, names: Sequence[str]) -> bool:
    return any((directory / name).exists() for name in names)
