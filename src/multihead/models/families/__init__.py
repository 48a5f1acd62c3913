"""Model families: one table per public family, for import and export. A new family is one table and one line here."""

from multihead.models.families.bart import BART
from multihead.models.families.bert import BERT
from multihead.models.families.clip import CLIP_TEXT, CLIP_VISION
from multihead.models.families.convert import (
    LoadPlan,
    body_config,
    check_shapes,
    construct,
    export_tensors,
    load_tensors,
    make_plan,
)
from multihead.models.families.dinov2 import DINOV2
from multihead.models.families.distilbert import DISTILBERT
from multihead.models.families.gpt2 import GPT2
from multihead.models.families.labels import label_fields, labels_of
from multihead.models.families.llama import LLAMA, MISTRAL, QWEN2
from multihead.models.families.marian import MARIAN
from multihead.models.families.mbart import MBART
from multihead.models.families.native import ARCHITECTURE, OWN, native_config, native_plan, readout_options
from multihead.models.families.roberta import ROBERTA, XLM_ROBERTA
from multihead.models.families.spec import BodyConfig, ModelFamily, ReadoutSpec, difference
from multihead.models.families.t5 import T5
from multihead.models.families.vit import VIT
from multihead.models.families.whisper import WHISPER

FAMILIES = {  # by config.json's model_type
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": XLM_ROBERTA,
    "distilbert": DISTILBERT,
    "gpt2": GPT2,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "qwen2": QWEN2,
    "marian": MARIAN,
    "bart": BART,
    "mbart": MBART,
    "t5": T5,
    "vit": VIT,
    "dinov2": DINOV2,
    "clip_vision_model": CLIP_VISION,
    "clip_text_model": CLIP_TEXT,
    "whisper": WHISPER,
}

__all__ = [
    "ARCHITECTURE",
    "FAMILIES",
    "OWN",
    "BodyConfig",
    "LoadPlan",
    "ModelFamily",
    "ReadoutSpec",
    "body_config",
    "check_shapes",
    "construct",
    "difference",
    "export_tensors",
    "label_fields",
    "labels_of",
    "load_tensors",
    "make_plan",
    "native_config",
    "native_plan",
    "readout_options",
]
