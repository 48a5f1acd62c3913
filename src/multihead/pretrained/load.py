"""Load a model from a directory in the hub's layout, or from a .gguf file."""

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

    architecture: overrides the one in config.json; "BertModel" loads the body alone.
    dtype: of the weights; None keeps the stored one.
    task: name of one task of a multi-task model; without it, only the shared encoder is loaded.
    """
    loaded = _open(where, architecture, tokenizer, dtype, task)
    check_weights(loaded.model, " and ".join(map(str, where.values())) if isinstance(where, Mapping) else str(where))
    return loaded


def check_weights(model: TaskModel, where: str) -> None:
    """Raise if a weight is NaN or infinite, since every prediction would be too."""
    model.source = where
    name = first_not_finite(model.named_parameters())
    if name is not None:
        raise ValueError(
            f"{where}: the weight {name} is not finite (NaN or infinite); train the model again or fetch it again"
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
            raise ValueError(f"joining needs {{encoder = …, decoder = …}}, not {', '.join(map(str, where))}")
        joined = join(*(load(where[side], tokenizer=tokenizer, dtype=dtype) for side in ("encoder", "decoder")))
        return _with_task(joined, task, {}, Path(where["encoder"]), dtype)
    path = resolve(where)
    if path.is_file():
        _check_is_model(path)
        return _with_task(_load_gguf(path, architecture, tokenizer, dtype), task, {}, path, dtype)
    metadata = manifest.check(path)
    _check_task(metadata, path / manifest.MANIFEST)
    config = _with_architecture(read_config(path), architecture, path / "config.json")
    plan = _plan(config, path / "config.json")
    file = next((path / name for name in WEIGHTS if (path / name).exists()), path)
    tensors = read_tensors(path)
    _check_sizes(plan, {name: tensor.shape for name, tensor in tensors.items()}, file, path / "config.json")
    model, unused = _load_weights(plan, tensors, file, dtype)
    generation = _optional(path / "generation_config.json")
    pipeline = Pipeline(
        model,
        config,
        tokenizer=Tokenizer.load(path) if tokenizer and _any(path, TOKENIZERS) else None,
        target_tokenizer=Tokenizer.load(path / "target") if tokenizer and (path / "target").is_dir() else None,
        labels=_labels(config, model, path / "config.json"),
        generation=generation or _generation(config, model),
        generation_file=str(path / ("generation_config.json" if generation else "config.json")),
        preprocessor=_optional(path / "preprocessor_config.json"),
        task=metadata.get("task"),
        name=str(metadata.get("name", "")),
        unused_tensors=unused,
        options=metadata.get("options", {}),
        pruned=metadata.get("pruned", {}),
        pooling=_find_pooling(metadata, path),
        tasks=tuple(metadata.get("tasks", {})),
    )
    return _with_task(pipeline, task, metadata, path, dtype)


def _with_task(shared: Pipeline, name: str | None, metadata: Json, path: Path, dtype: torch.dtype | None) -> Pipeline:
    """Return the pipeline of one task of several; a single-task model may be loaded by its task's name. None:
    unchanged."""
    if name is None or (not shared.tasks and name in (shared.task, shared.name)):
        return shared
    if name not in shared.tasks:
        known = ", ".join(shared.tasks) or shared.name or shared.task or "none"
        raise ValueError(f"{path}: unknown task {name!r}; known: {known}")
    file = path / manifest.MANIFEST
    try:
        entry = metadata["tasks"][name]
        kind, labels, options = str(entry["task"]), [str(label) for label in entry["labels"]], dict(entry["options"])
        architecture, readout = str(entry["architecture"]), dict(entry["readout"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{file}: has no entry for the task {name!r}; save the model again") from None
    if kind not in TASKS:
        raise ValueError(f"{file}: the task of {name!r} is {kind!r}; known: {', '.join(TASKS)}")
    model = multitask.with_stored_readout(shared.model, readout, name, path, dtype)
    config = {**shared.config, "architectures": [architecture]}
    config = native_config(model) if config.get("model_type") == OWN else config
    config |= label_fields(labels)
    pipeline = replace(shared, task=kind, name=name, labels=labels, options=options, tasks=())
    return replace(pipeline, model=model, config=config, unused_tensors={})


def _check_task(metadata: Json, file: Path) -> None:
    """Check the manifest's values; older files have no checksum, and anyone may edit one."""
    if metadata.get("task") is not None and metadata["task"] not in TASKS:
        raise ValueError(f"{file}: the task is {metadata['task'][:80]!r}; known: {', '.join(TASKS)}; {manifest.FIX}")
    check_options(metadata, file)


def _check_is_model(path: Path) -> None:
    """Raise for a file that is not a model; only GGUF files are, whatever their suffix."""
    with path.open("rb") as file:
        if path.suffix == ".gguf" or file.read(4) == b"GGUF":
            return
    here = path.parent if (path.parent / "config.json").exists() else "the one with config.json"
    raise ValueError(f"{path}: not a model directory or .gguf file; give a directory: {here}")


def _load_gguf(path: Path, architecture: str | None, tokenizer: bool, dtype: torch.dtype | None) -> Pipeline:
    file = GGUFFile(path)
    config = _with_architecture(file.config, architecture, path)
    plan = _plan(config, path)
    _check_sizes(plan, file.sizes, path, path)
    model, unused = _load_weights(plan, file.tensors, path, dtype)
    generation = _generation(config, model)
    return Pipeline(
        model,
        config,
        load_gguf_tokenizer(path, file.fields) if tokenizer else None,
        generation=generation,
        generation_file=str(path),
        unused_tensors=unused,
    )


def _check_sizes(plan: LoadPlan, sizes: Sizes, file: Path, source: Path) -> None:
    """Check the sizes in the config against the tensors of the file before building or reading anything."""
    layers = sum(side.layers for side in plan.shape[:2] if side is not None)
    if layers > len(sizes):
        raise ValueError(f"{source}: names {layers:,} layers, but {file.name} has {len(sizes):,} tensors")
    check_shapes(plan, sizes, str(file))


def _load_weights(
    plan: LoadPlan, tensors: Mapping[str, Tensor], file: Path, dtype: torch.dtype | None
) -> tuple[TaskModel, dict[str, Tensor]]:
    model, unused = load_tensors(plan, tensors, str(file), dtype)
    if unused:
        log.info("%s: unused tensors: %s", file, ", ".join(sorted(unused)))
    return model, unused


def _with_architecture(config: Json, architecture: str | None, file: Path) -> Json:
    named = config.get("architectures")
    if named is not None and (not isinstance(named, list) or not all(isinstance(name, str) for name in named)):
        raise ValueError(f"{file}: architectures must be a list of names; fix it or fetch it again")
    return config if architecture is None else {**config, "architectures": [architecture]}


def _plan(config: Json, file: Path) -> LoadPlan:
    """Build the load plan from config.json; every error names the file."""
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
    """Return generation_config.json or, if it is missing, the same fields of config.json."""
    if isinstance(model.body, Encoder):
        return {}
    return {name: config[name] for name in GENERATION if config.get(name) is not None}


def _find_pooling(metadata: Json, path: Path) -> Pooling:
    """Return the pooling of a bi-encoder as it was trained, or as the directory configures it."""
    options = metadata.get("options", {})
    name = metadata.get("task")
    if name is None or not issubclass(TASKS[name].variant(options), EmbeddingTask):
        return read_pooling(path)
    return "first" if options.get("pool") == "first" else "mean"


def _optional(file: Path) -> Json:
    return read_json(file) if file.exists() else {}


def _any(directory: Path, names: Sequence[str]) -> bool:
    return any((directory / name).exists() for name in names)
