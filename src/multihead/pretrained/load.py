"""A model's directory, in the hub's layout, or a .gguf file is opened."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from multihead.inference.defaults import DECODING, UNKNOWN
from multihead.inference.pipeline import Json, Pipeline
from multihead.io import manifest
from multihead.io.files import read_json
from multihead.io.gguf import GGUFFile
from multihead.io.hub import resolve
from multihead.io.pooling import Pooling, read_pooling
from multihead.io.weights import WEIGHTS, read_config, read_tensors
from multihead.models import Encoder, TaskModel
from multihead.models.families import (
    OWN,
    LoadPlan,
    check_shapes,
    label_fields,
    labels_of,
    load_tensors,
    make_plan,
    native_config,
    native_plan,
)
from multihead.models.families.shapes import Sizes
from multihead.models.finite import first_not_finite
from multihead.pretrained import multitask
from multihead.pretrained.assemble import architecture_of, family_of, join
from multihead.pretrained.task_options import check_options
from multihead.tasks import TASKS
from multihead.tasks.bi_encoder import EmbeddingTask
from multihead.text.gguf import load_gguf_tokenizer
from multihead.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

GENERATION = (
    "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id",
    "forced_eos_token_id", "suppress_tokens", "bad_words_ids", "max_length", "min_length", "early_stopping",
    *DECODING, *UNKNOWN,
)  # fmt: skip
TOKENIZERS = (
    "tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "source.spm",
    "sentencepiece.bpe.model",
)  # fmt: skip


def load(
    where: str | Path | Mapping[str, str | Path],
    *,
    architecture: str | None = None,
    tokenizer: bool = True,
    dtype: torch.dtype | None = torch.float32,
    task: str | None = None,
) -> Pipeline:
    """Open a model: a directory, "hub:owner/name", a .gguf file, or {encoder: …, decoder: …} to join two.

    architecture: instead of the one that config.json names; "BertModel" opens the body alone.
    dtype: of the weights; None leaves them as they are stored.
    task: of a model with several tasks, the name of one; without a name, the trunk alone is opened.
    """
    loaded = _open(where, architecture, tokenizer, dtype, task)
    check_weights(loaded.model, " and ".join(map(str, where.values())) if isinstance(where, Mapping) else str(where))
    return loaded


def check_weights(model: TaskModel, where: str) -> None:
    """Raise if a weight is NaN or infinite: every answer would be, and nobody would be told why."""
    model.source = where
    name = first_not_finite(model.named_parameters())
    if name is not None:
        raise ValueError(
            f"{where}: the weight {name} is not finite (NaN or infinite); train it again or fetch it again"
        )


def _open(
    where: str | Path | Mapping[str, str | Path],
    architecture: str | None,
    tokenizer: bool,
    dtype: torch.dtype | None,
    task: str | None,
) -> Pipeline:
    if isinstance(where, Mapping):
        if set(where) != {"encoder", "decoder"}:
            raise ValueError(f"joining wants {{encoder = …, decoder = …}}, not {', '.join(map(str, where))}")
        joined = join(*(load(where[side], tokenizer=tokenizer, dtype=dtype) for side in ("encoder", "decoder")))
        return _with_task(joined, task, {}, Path(where["encoder"]), dtype)
    path = resolve(where)
    if path.is_file():
        _check_is_model(path)
        return _with_task(_load_gguf(path, architecture, tokenizer, dtype), task, {}, path, dtype)
    told = manifest.check(path)
    _check_task(told, path / manifest.MANIFEST)
    config = _with_architecture(read_config(path), architecture, path / "config.json")
    plan = _plan(config, path / "config.json")
    file = next((path / name for name in WEIGHTS if (path / name).exists()), path)
    tensors = read_tensors(path)
    _check_sizes(plan, {name: tensor.shape for name, tensor in tensors.items()}, file, path / "config.json")
    model, kept = _load_weights(plan, tensors, file, dtype)
    generation = _optional(path / "generation_config.json")
    whole = Pipeline(
        model,
        config,
        tokenizer=Tokenizer.load(path) if tokenizer and _any(path, TOKENIZERS) else None,
        target_tokenizer=Tokenizer.load(path / "target") if tokenizer and (path / "target").is_dir() else None,
        labels=_labels(config, model, path / "config.json"),
        generation=generation or _generation(config, model),
        generation_file=str(path / ("generation_config.json" if generation else "config.json")),
        preprocessor=_optional(path / "preprocessor_config.json"),
        task=told.get("task"),
        name=str(told.get("name", "")),
        unused_tensors=kept,
        options=told.get("options", {}),
        pruned=told.get("pruned", {}),
        pooling=_find_pooling(told, path),
        tasks=tuple(told.get("tasks", {})),
    )
    return _with_task(whole, task, told, path, dtype)


def _with_task(trunk: Pipeline, name: str | None, told: Json, path: Path, dtype: torch.dtype | None) -> Pipeline:
    """One of several tasks; a model with one task may be asked for that one. None: as it is."""
    if name is None or (not trunk.tasks and name in (trunk.task, trunk.name)):
        return trunk
    if name not in trunk.tasks:
        known = ", ".join(trunk.tasks) or trunk.name or trunk.task or "none"
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
    model = multitask.with_stored_readout(trunk.model, readout, name, path, dtype)
    config = {**trunk.config, "architectures": [architecture]}
    config = native_config(model) if config.get("model_type") == OWN else config
    config |= label_fields(labels)
    own = replace(trunk, task=kind, name=name, labels=labels, options=options, tasks=())
    return replace(own, model=model, config=config, unused_tensors={})


def _check_task(told: Json, file: Path) -> None:
    """What a multihead.json from before its checksum may hold by a flipped bit, or anyone's by an edit."""
    if told.get("task") is not None and told["task"] not in TASKS:
        raise ValueError(f"{file}: the task is {told['task'][:80]!r}; known: {', '.join(TASKS)}; {manifest.FIX}")
    check_options(told, file)


def _check_is_model(path: Path) -> None:
    """A file is no model, unless it is GGUF, whatever its ending."""
    with path.open("rb") as file:
        if path.suffix == ".gguf" or file.read(4) == b"GGUF":
            return
    here = path.parent if (path.parent / "config.json").exists() else "the one with config.json"
    raise ValueError(f"{path}: a model is a directory or a .gguf file, not this; give a directory: {here}")


def _load_gguf(path: Path, architecture: str | None, tokenizer: bool, dtype: torch.dtype | None) -> Pipeline:
    file = GGUFFile(path)
    config = _with_architecture(file.config, architecture, path)
    plan = _plan(config, path)
    _check_sizes(plan, file.sizes, path, path)
    model, kept = _load_weights(plan, file.tensors, path, dtype)
    generation = _generation(config, model)
    return Pipeline(
        model,
        config,
        load_gguf_tokenizer(path, file.fields) if tokenizer else None,
        generation=generation,
        generation_file=str(path),
        unused_tensors=kept,
    )


def _check_sizes(plan: LoadPlan, sizes: Sizes, file: Path, told: Path) -> None:
    """Before anything is built, or a tensor is read: do the sizes in the config fit the tensors of the file?"""
    layers = sum(side.layers for side in plan.shape[:2] if side is not None)
    if layers > len(sizes):
        raise ValueError(f"{told}: names {layers:,} layers, {file.name} has {len(sizes):,} tensors")
    check_shapes(plan, sizes, str(file))


def _load_weights(
    plan: LoadPlan, tensors: Mapping[str, Tensor], file: Path, dtype: torch.dtype | None
) -> tuple[TaskModel, dict[str, Tensor]]:
    model, kept = load_tensors(plan, tensors, str(file), dtype)
    if kept:
        log.info("%s: not needed, left aside: %s", file, ", ".join(sorted(kept)))
    return model, kept


def _with_architecture(config: Json, architecture: str | None, file: Path) -> Json:
    named = config.get("architectures")
    if named is not None and (not isinstance(named, list) or not all(isinstance(name, str) for name in named)):
        raise ValueError(f"{file}: architectures is no list of names; mend it or fetch it again")
    return config if architecture is None else {**config, "architectures": [architecture]}


def _plan(config: Json, file: Path) -> LoadPlan:
    """What config.json describes; every complaint names the file."""
    try:
        if config.get("model_type") == OWN:
            return native_plan(config)
        family = family_of(config.get("model_type"))
        name = (config.get("architectures") or [f"{family.title}Model"])[0]
        suffix = name.removeprefix(family.title)
        if name != architecture_of(config["model_type"], suffix):
            raise ValueError(f"architecture {name!r} is not one of {config['model_type']}'s")
        return make_plan(family, config, suffix)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _labels(config: Json, model: TaskModel, file: Path) -> list[str]:
    answering = bool(config.get("architectures")) and config["architectures"][0].endswith("ForQuestionAnswering")
    try:
        return labels_of(config, model, answering)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _generation(config: Json, model: TaskModel) -> Json:
    """Where generation_config.json is missing, config.json itself says how a model begins and ends what it writes."""
    if isinstance(model.body, Encoder):
        return {}
    return {name: config[name] for name in GENERATION if config.get(name) is not None}


def _find_pooling(told: Json, path: Path) -> Pooling:
    """Of a bi-encoder that was trained here, as it was trained; else what the directory says."""
    options = told.get("options", {})
    name = told.get("task")
    if name is None or not issubclass(TASKS[name].variant(options), EmbeddingTask):
        return read_pooling(path)
    return "first" if options.get("pool") == "first" else "mean"


def _optional(file: Path) -> Json:
    return read_json(file) if file.exists() else {}


def _any(directory: Path, names: Sequence[str]) -> bool:
    return any((directory / name).exists() for name in names)
