"""A pruned model in its family's shape: zeros where heads and units were cut out give the same answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from multihead.inference import Pipeline
from multihead.inspection import attentions
from multihead.models import TransformerBlock
from multihead.models.families import FAMILIES, construct, label_fields, make_plan, readout_options
from multihead.models.meta_init import MetaInit
from multihead.pruning.surgery import PruningPlan, configs, plan_of_model, restore_parts
from multihead.tasks import TASKS


def pad_pruned_model(loaded: Pipeline) -> Pipeline:
    """As large as before pruning, for libraries that know no ragged models; other models are given back as they are."""
    family: dict[str, Any] = loaded.pruned.get("family", {})
    now = configs(loaded.model)
    whole = {stack: config.without_pruning() for stack, config in now.items()}
    if whole == now:
        return loaded
    if family.get("model_type") not in FAMILIES:
        raise ValueError("heads were cut out of this model, and it is not known which family's it was before")
    # Any places will do: all others are zeros.
    blocks = [module for module in loaded.model.modules() if isinstance(module, TransformerBlock)]
    units = {block.address: tuple(range(block.feed_forward.up.out_features)) for block in blocks}
    found = attentions(loaded.model).items()
    keys = {name: (tuple(range(a.key_dims[0])),) * a.kv_heads for name, a in found}
    values = {name: (tuple(range(a.value_dims[0])),) * a.kv_heads for name, a in found}
    heads = plan_of_model(whole, loaded.model).heads
    model = restore_parts(loaded.model, whole, PruningPlan(heads, units, keys, values), None)
    config = {**family, **label_fields(loaded.labels), "architectures": [_architecture(loaded, family)]}
    return replace(loaded, model=model.eval(), config=config, pruned={})


def _architecture(loaded: Pipeline, config: dict[str, Any]) -> str:
    """The one of the family's that has this readout."""
    family = FAMILIES[config["model_type"]]
    named = (config.get("architectures") or [""])[0].removeprefix(family.title)
    task = TASKS.get(loaded.task or "")
    wanted = [task.readout.architecture] if task is not None and hasattr(task, "readout") else []
    for suffix in dict.fromkeys([named, *wanted, *family.readouts]):
        if suffix in family.readouts:
            with MetaInit():
                told = construct(make_plan(family, config, suffix), len(loaded.labels))
            if readout_options(told.readout) == readout_options(loaded.model.readout):
                return family.title + suffix
    raise ValueError(f"{config['model_type']} has no place for this model's readout")
