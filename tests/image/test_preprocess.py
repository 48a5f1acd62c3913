"""Preprocessing equals transformers' image processors, from and to preprocessor_config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from multihead.image import ImageError, ImageProcessor
from multihead.image.preprocess import DINOV2, KINDS

transformers = pytest.importorskip("transformers")
CONFIGS: dict[str, dict[str, Any]] = {
    "vit": {"image_processor_type": "ViTImageProcessor"},
    "vit old": {"feature_extractor_type": "ViTFeatureExtractor", "size": 32, "resample": 3},
    "vit plain": {"image_processor_type": "ViTImageProcessorFast", "size": [20, 30], "do_normalize": False},
    "vit unscaled": {"do_rescale": False, "size": {"height": 24, "width": 24}},
    "deit": {"image_processor_type": "DeiTImageProcessor", "size": 40, "crop_size": 32},
    "clip": {"image_processor_type": "CLIPImageProcessor"},
    "clip old": {"feature_extractor_type": "CLIPFeatureExtractor", "size": 36, "crop_size": 32},
    "clip crop larger": {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 20}, "crop_size": 31},
    "dinov2": DINOV2.to_config(),
    "bit uncropped": {"image_processor_type": "BitImageProcessor", "size": {"height": 18, "width": 21},
                      "do_center_crop": False},
}  # fmt: skip


def theirs(config: dict[str, Any]) -> Any:
    name = config.get("image_processor_type") or config.get("feature_extractor_type") or "ViTImageProcessor"
    kind = name.removesuffix("Fast").replace("FeatureExtractor", "ImageProcessor")
    return getattr(transformers, f"{kind}Pil")(**{k: v for k, v in config.items() if not k.endswith("_type")})


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("size", [(50, 37), (224, 224), (30, 301), (9, 8)])
def test_equal_to_transformers(name: str, size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(5).integers(0, 256, (*size, 3), dtype=np.uint8)
    ours = ImageProcessor.from_config(CONFIGS[name])(pixels)
    want = theirs(CONFIGS[name])(pixels, return_tensors="pt", input_data_format="channels_last")["pixel_values"].float()
    assert ours.dtype == torch.float32
    assert ours.is_contiguous()
    torch.testing.assert_close(ours, want, rtol=0, atol=1e-5 if "unscaled" not in name else 1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_written_and_read_again(name: str, tmp_path: Path) -> None:
    ours = ImageProcessor.from_config(CONFIGS[name])
    ours.save(tmp_path)
    assert ImageProcessor.load(tmp_path) == ours
    pixels = np.random.default_rng(5).integers(0, 256, (50, 37, 3), dtype=np.uint8)
    again = theirs(json.loads((tmp_path / "preprocessor_config.json").read_text()))
    want = again(pixels, return_tensors="pt", input_data_format="channels_last")["pixel_values"].float()
    torch.testing.assert_close(ours(pixels), want, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_are_theirs(kind: str) -> None:
    config = getattr(transformers, f"{kind}Pil")().to_dict()
    assert ImageProcessor.from_config(config) == ImageProcessor.from_config({"image_processor_type": kind})


def test_batches_and_grey(tmp_path: Path) -> None:
    grey = ImageProcessor(size=(8, 8), mean=(0.3,), std=(0.35,))
    pixels = grey([np.zeros((9, 9), dtype=np.uint8), np.full((8, 8, 3), 255, dtype=np.uint8)])
    assert pixels.shape == (2, 1, 8, 8)
    torch.testing.assert_close(pixels[:, 0, 0, 0], torch.tensor([-0.3 / 0.35, 0.7 / 0.35]))
    assert grey.shape == (8, 8)
    free = ImageProcessor(size=10)
    assert free.shape is None
    with pytest.raises(ImageError, match="different sizes"):
        free([np.zeros((9, 9), dtype=np.uint8), np.zeros((9, 20), dtype=np.uint8)])
    with pytest.raises(ImageError, match="no image"):
        free([])


@pytest.mark.parametrize(
    "config",
    [
        {"image_processor_type": "DonutImageProcessor"},
        {"size": -1},
        {"size": 10**9},
        {"size": "large"},
        {"size": {"longest_edge": 5}},
        {"size": {"height": 5.5, "width": 3}},
        {"image_std": [0, 1, 1]},
        {"image_mean": ["a", 1, 1]},
        {"image_mean": [1, 1]},
        {"image_mean": [float("nan")] * 3},
        {"rescale_factor": 0},
        {"rescale_factor": "x"},
        {"resample": 17},
        {"do_resize": "yes"},
        {"crop_size": {"shortest_edge": 4}, "do_center_crop": True},
    ],
)
def test_damaged_configs_name_the_file(config: dict[str, Any]) -> None:
    with pytest.raises(ImageError, match=r"^there/preprocessor_config\.json: "):
        ImageProcessor.from_config(config, "there/preprocessor_config.json")


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(["size", "crop_size", "resample", "do_resize", "image_mean", "image_std",
                                        "rescale_factor"]),
                       st.none() | st.booleans() | st.integers() | st.floats() | st.lists(st.integers(), max_size=4)
                       | st.dictionaries(st.sampled_from(["height", "width"]), st.integers()), max_size=4))  # fmt: skip
def test_any_config_is_read_or_refused(config: dict[str, Any]) -> None:
    message = ""
    try:
        ImageProcessor.from_config(config)
    except ImageError as error:
        message = str(error)
    assert not message or message.startswith("preprocessor_config.json: ")
