"""Zero padding of a pruned model to its family's shape: zeros in place of removed heads and units, same predictions."""

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
    """Pad to the shape before pruning, for libraries without support for ragged models; other models are unchanged."""
    family: dict[str, Any] = loaded.pruned.get("family", {})
    now = configs(loaded.model)
    full = {stack: config.without_pruning() for stack, config in now.items()}
    if full == now:
        return loaded
    if family.get("model_type") not in FAMILIES:
        raise ValueError("this model was pruned, and its original family is unknown; export it as a multihead model")
    # Any indices will do: all other lines are zeros.
    blocks = [module for module in loaded.model.modules() if isinstance(module, TransformerBlock)]
    units = {block.address: tuple(range(block.feed_forward.up.out_features)) for block in blocks}
    all_attentions = attentions(loaded.model).items()
    keys = {name: (tuple(range(a.key_dims[0])),) * a.kv_heads for name, a in all_attentions}
    values = {name: (tuple(range(a.value_dims[0])),) * a.kv_heads for name, a in all_attentions}
    heads = plan_of_model(full, loaded.model).heads
    model = restore_parts(loaded.model, full, PruningPlan(heads, units, keys, values), None)
    config = {**family, **label_fields(loaded.labels), "architectures": [_architecture(loaded, family)]}
    return replace(loaded, model=model.eval(), config=config, pruned={})


def _architecture(loaded: Pipeline, config: dict[str, Any]) -> str:
    """Return the family's architecture with this readout."""
    family = FAMILIES[config["model_type"]]
    named = (config.get("architectures") or [""])[0].removeprefix(family.title)
    task = TASKS.get(loaded.task or "")
    preferred = [task.readout.architecture] if task is not None and hasattr(task, "readout") else []
    for suffix in dict.fromkeys([named, *preferred, *family.readouts]):
        if suffix in family.readouts:
            with MetaInit():
                template = construct(make_plan(family, config, suffix), len(loaded.labels))
            if readout_options(template.readout) == readout_options(loaded.model.readout):
                return family.title + suffix
    raise ValueError(f"{config['model_type']} does not support this model's readout")
