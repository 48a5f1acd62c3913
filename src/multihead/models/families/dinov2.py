"""DINOv2 (Oquab et al. 2023): a ViT with LayerScale, patches of 14, and positions interpolated for other sizes."""

from multihead.models.families.spec import ConfigField, ModelFamily, ReadoutSpec, read_count
from multihead.models.families.vit import VIT

assert VIT.encoder is not None
DINOV2 = ModelFamily(
    title="Dinov2",
    prefix="dinov2.",
    encoder={
        **VIT.encoder,
        "patch": ConfigField("patch_size", 14, VIT.encoder["patch"].into, kind=VIT.encoder["patch"].kind),
        "inner": ConfigField(
            "mlp_ratio",
            4,
            lambda ratio, config: int(read_count(config, "hidden_size") * ratio),
            lambda inner, model: inner // model.dim if inner % model.dim == 0 else inner / model.dim,
            int | float,
        ),
        "norm_eps": ConfigField("layer_norm_eps", 1e-6),
        "layer_scale": ConfigField("layerscale_value", 1.0),
        "interpolate": True,
    },
    tensors={
        **VIT.tensors,
        "stack.blocks.{i}.attention_norm": "encoder.layer.{i}.norm1",
        "stack.blocks.{i}.attention_scale": "encoder.layer.{i}.layer_scale1.lambda1",
        "stack.blocks.{i}.feed_forward.up": "encoder.layer.{i}.mlp.fc1",
        "stack.blocks.{i}.feed_forward.down": "encoder.layer.{i}.mlp.fc2",
        "stack.blocks.{i}.feed_forward_norm": "encoder.layer.{i}.norm2",
        "stack.blocks.{i}.feed_forward_scale": "encoder.layer.{i}.layer_scale2.lambda1",
    },
    readouts={"Model": ReadoutSpec()},
    demands={"use_swiglu_ffn": False},
    harmless=(r"embeddings\.mask_token", r"classifier\.\w+"),
)
