"""Save a model to a directory in the hub's layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from multihead.inference.pipeline import Json, Pipeline
from multihead.io import manifest
from multihead.io.files import make_directory, name_file_in_errors
from multihead.io.weights import WEIGHTS, write_json, write_tensors
from multihead.models import ModelConfig, TaskModel
from multihead.models.crf import CRFReadout
from multihead.models.families import (
    ARCHITECTURE,
    FAMILIES,
    LoadPlan,
    body_config,
    construct,
    difference,
    export_tensors,
    label_fields,
    make_plan,
    native_config,
    native_plan,
    readout_options,
)
from multihead.models.meta_init import MetaInit
from multihead.pretrained import multitask


def save(
    loaded: Pipeline, directory: str | Path, *, family: bool = False, tasks: Mapping[str, Pipeline] | None = None
) -> None:
    """Write a model directory that `load` and, if its shape is a known family's, transformers can open.

    family: raise for a model outside of all families, instead of writing the native layout.
    tasks: several readouts on the body of this model, by name; their weights are written next to it.
    """
    directory = Path(directory)
    config, tensors, reason = export_layout(loaded)
    if loaded.options.get("case"):
        reason = "token types encode letter case (ner.case), which its tokenizers do not support"
    if family and reason:
        raise ValueError(f"this model cannot be saved for transformers: {reason}")
    with name_file_in_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    manifest.begin(directory)
    with name_file_in_errors(directory):
        for name in (*WEIGHTS[1:], multitask.READOUTS):
            (directory / name).unlink(missing_ok=True)  # of an earlier model
    files = [directory / "model.safetensors", directory / "config.json"]
    if loaded.tokenizer is not None:
        files += loaded.tokenizer.save(directory)
    if loaded.target_tokenizer is not None:
        make_directory(directory / "target")
        files += loaded.target_tokenizer.save(directory / "target")
    for name, content in (("generation", loaded.generation), ("preprocessor", loaded.preprocessor)):
        if content:
            files.append(directory / f"{name}_config.json")
            write_json(files[-1], content)
    write_tensors(files[0], tensors)
    write_json(files[1], config)
    entries = {name: _entry(pipeline, loaded) for name, pipeline in (tasks or {}).items()}
    if tasks:
        one_each = multitask.readout_tensors({name: pipeline.model for name, pipeline in tasks.items()})
        files.append(directory / multitask.READOUTS)
        write_tensors(files[-1], one_each)
    manifest.finish(directory, loaded.task, loaded.options, files, loaded.pruned, entries, loaded.name)


def export_layout(loaded: Pipeline) -> tuple[Json, dict[str, Tensor], str]:
    """Return config.json and the tensors as `save` writes them, and why no family fits ("" if one does)."""
    config, plan, reason = _describe_model(loaded)
    tensors = export_tensors(plan, loaded.model)
    if not reason:
        tensors |= {name: tensor for name, tensor in loaded.unused_tensors.items() if name not in tensors}
    return config, tensors, reason


def _entry(pipeline: Pipeline, shared: Pipeline) -> Json:
    """Return the entry of one task in multihead.json."""
    assert pipeline.model.body is shared.model.body
    return {
        "task": pipeline.task,
        "labels": pipeline.labels,
        "options": pipeline.options,
        "architecture": pipeline.architecture,
        "readout": readout_options(pipeline.model.readout),
    }


def _describe_model(loaded: Pipeline) -> tuple[Json, LoadPlan, str]:
    """Return config.json and the plan of a model, and why no family fits ("" if one does)."""
    config, model = loaded.config, loaded.model
    reason = _why_native(loaded)
    if config.get("model_type") in FAMILIES:
        family, shape = FAMILIES[config["model_type"]], body_config(model.body)
        suffix = loaded.architecture.removeprefix(family.title) or "Model"
        written = family.write(shape, config)
        if suffix in family.readouts and family.fits(shape, written, family.readouts[suffix].only):
            plan = replace(make_plan(family, written, suffix), shape=shape)
            with MetaInit():
                template = construct(plan, len(loaded.labels))
            if readout_options(template.readout) == readout_options(model.readout):
                written = _with_problem(written, loaded)
                return {**written, **label_fields(loaded.labels, config), **_dtype_field(config, model)}, plan, ""
            reason = f"its readout is not {loaded.architecture}'s"
        elif loaded.architecture != ARCHITECTURE:  # otherwise only its readout is native
            reason = f"its shape is not {config['model_type']}'s: {difference(family, written, shape)}"
    if isinstance(model.readout, CRFReadout):
        reason = "its readout is a conditional random field (ner.crf), which no family supports"
    native = native_config(model) | label_fields(loaded.labels)
    return native, native_plan(native), reason


def _why_native(loaded: Pipeline) -> str:
    """Return why a native model fits no family, with the keys of a run file that would make it fit."""
    shape, keys = body_config(loaded.model.body), []
    config = shape.decoder or shape.encoder
    assert config is not None
    if shape.encoder is not None and shape.decoder is not None and _of_two_kinds(shape.encoder, shape.decoder):
        return (
            "its encoder and decoder are of different families (joined by from = {encoder, decoder}); "
            "use --to multihead, or train from an encoder-decoder such as BART"
        )
    if shape.decoder is None and (config.norm == "rms" or config.activation == "gelu_tanh"):  # Llama's, GPT-2's
        return "it is a causal language model with bidirectional attention, which no family supports"
    if config.positions != "learned" and (shape.encoder or config.positions != "rotary"):
        keys.append("model.positions=learned")
    if config.norm_first != (shape.decoder is not None):
        keys.append(f"model.norm_first={str(not config.norm_first).lower()}")
    if readout_options(loaded.model.readout).get("over") == "mean":
        keys.append(f"{loaded.task}.pool=first")
        if len(keys) == 1:
            return f"it classifies by mean pooling, which no classifier there supports; train with {keys[0]}"
    return f"its shape fits no family; train with {', '.join(keys)}" if keys else "its shape fits no family"


def _of_two_kinds(encoder: ModelConfig, decoder: ModelConfig) -> bool:
    """Whether encoder and decoder differ in more than their sizes."""
    return any(getattr(encoder, name) != getattr(decoder, name) for name in ("positions", "norm_first", "activation"))


def _with_problem(config: Json, loaded: Pipeline) -> Json:
    """Set problem_type for transformers' pipeline if the task is multi-label; drop a value that another task left, if
    this task was trained here."""
    if loaded.task is None:
        return config
    rest = {name: value for name, value in config.items() if name != "problem_type"}
    return rest | ({"problem_type": "multi_label_classification"} if loaded.options.get("multi_label") else {})


def _dtype_field(config: Json, model: TaskModel) -> Json:
    """Set the precision of the weights in config.json; older files name it `torch_dtype`."""
    name = str(next(model.parameters()).dtype).removeprefix("torch.")
    key = "torch_dtype" if "torch_dtype" in config else "dtype"
    return {} if config.get(key) is None else {key: name}
