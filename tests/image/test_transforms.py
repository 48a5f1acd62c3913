"""Resizing equals Pillow's; augmentation is a pure function of its generator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Generator, Tensor

from multihead.image import ImageError
from multihead.image.rand_augment import OPERATIONS, rand_augment
from multihead.image.resample import resize, resize_batch
from multihead.image.transforms import (
    center_crop,
    color_jitter,
    cutmix,
    mixup,
    one_hot,
    random_crop,
    random_erasing,
    random_flip,
    random_resized_crop,
)


def batch(B: int = 5, C: int = 3, H: int = 14, W: int = 11) -> Tensor:
    return torch.randint(256, (B, C, H, W), generator=Generator().manual_seed(B * C), dtype=torch.uint8)


def seeded(seed: int = 3) -> Generator:
    return Generator().manual_seed(seed)


SIDE = st.integers(1, 40)


@given(st.tuples(SIDE, SIDE), st.tuples(SIDE, SIDE), st.sampled_from(["bilinear", "bicubic"]), st.booleans())
def test_resized_as_pillow_does(before: tuple[int, int], after: tuple[int, int], resample: str, color: bool) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (2, *before, *([3] if color else [])), dtype=np.uint8)
    want = [np.array(Image.fromarray(p).resize(after[::-1], {"bilinear": 2, "bicubic": 3}[resample])) for p in pixels]
    np.testing.assert_array_equal(resize_batch(pixels, after, resample), want)  # type: ignore[arg-type]
    np.testing.assert_array_equal(resize(pixels[0], after, resample), want[0])  # type: ignore[arg-type]


def test_resize_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ImageError, match="at least 1"):
        resize(np.zeros((2, 2), dtype=np.uint8), (0, 3))


@given(st.tuples(SIDE, SIDE), st.tuples(SIDE, SIDE))
def test_center_crop_is_the_middle(before: tuple[int, int], after: tuple[int, int]) -> None:
    from transformers.image_transforms import center_crop as theirs

    pixels = np.random.default_rng(1).integers(1, 256, (*before, 3), dtype=np.uint8)
    np.testing.assert_array_equal(
        center_crop(pixels, after),
        theirs(pixels, after, data_format="channels_last", input_data_format="channels_last"),
    )


AUGMENTATIONS: dict[str, Callable[[Tensor, Generator], Tensor]] = {
    "flip": random_flip,
    "crop": lambda images, generator: random_crop(images, 2, generator),
    "resized crop": lambda images, generator: random_resized_crop(images, (9, 7), generator),
    "jitter": lambda images, generator: color_jitter(images, generator, hue=0.1),
    "erasing": lambda images, generator: random_erasing(images, generator, chance=0.9),
    "rand_augment": rand_augment,
    "mixup": lambda images, generator: mixup(images, torch.eye(len(images)), generator)[0],
    "cutmix": lambda images, generator: cutmix(images, torch.eye(len(images)), generator)[0],
}


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_the_generator_decides_everything(name: str, channels: int) -> None:
    augment, images = AUGMENTATIONS[name], batch(C=channels)
    before = images.clone()
    first = augment(images, seeded())
    assert torch.equal(images, before), "the input was changed"
    torch.manual_seed(999)  # the global generator has no say
    assert torch.equal(first, augment(images, seeded()))
    assert any(not torch.equal(first, augment(images, seeded(seed))) for seed in range(9))
    assert first.shape[:2] == images.shape[:2]
    if first.is_floating_point():
        assert 0 <= float(first.min()) <= float(first.max()) <= 1 + 1e-6


def test_flip_and_crop_keep_the_pixels() -> None:
    images = batch()
    flipped = random_flip(images, seeded())
    for ours, old in zip(flipped, images, strict=True):
        assert torch.equal(ours, old) or torch.equal(ours, old.flip(-1))
    assert torch.equal(random_flip(images, seeded(), chance=0.0), images)
    assert torch.equal(random_flip(images, seeded(), chance=1.0), images.flip(-1))
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    for row, crop in enumerate(random_crop(images, 2, seeded())):
        places = [
            (y, x) for y in range(5) for x in range(5) if torch.equal(crop, padded[row, :, y : y + 14, x : x + 11])
        ]
        assert len(places) == 1
    assert torch.equal(random_crop(images, 0, seeded()), images)


def test_a_crop_of_everything_is_a_resize() -> None:
    images = batch(H=12, W=12)
    crops = random_resized_crop(images, (6, 6), seeded(), area=(1.0, 1.0), ratio=(1.0, 1.0))
    want = torch.from_numpy(resize_batch(images.permute(0, 2, 3, 1).numpy(), (6, 6))).permute(0, 3, 1, 2)
    assert (crops.int() - want.int()).abs().max() <= 1


def test_mixed_targets_follow_the_pixels() -> None:
    images = (torch.arange(6, dtype=torch.float32) / 10)[:, None, None, None].expand(6, 3, 8, 8)
    targets = torch.eye(6)
    values = torch.arange(6, dtype=torch.float32) / 10
    mixed, soft = mixup(images, targets, seeded(), alpha=1.0)
    torch.testing.assert_close(mixed[:, 0, 0, 0], soft @ values)
    pasted, soft = cutmix(images, targets, seeded(), alpha=1.0)
    torch.testing.assert_close(pasted.mean((1, 2, 3)), soft @ values)
    torch.testing.assert_close(soft.sum(1), torch.ones(6))
    with pytest.raises(ImageError, match="alpha"):
        mixup(images, targets, seeded(), alpha=0.0)


def test_erasing_removes_about_the_area() -> None:
    images = torch.ones(400, 1, 28, 28)
    share = 1 - random_erasing(images, seeded(), chance=1.0, area=(0.2, 0.2)).mean()
    assert 0.1 < float(share) < 0.2  # parts outside of the image are lost
    assert torch.equal(random_erasing(images, seeded(), chance=0.0), images)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_do_nothing_at_no_strength(name: str) -> None:
    if name in ("autocontrast", "equalize"):
        pytest.skip("has no strength")
    images = batch().float() / 255
    torch.testing.assert_close(OPERATIONS[name](images, torch.zeros(len(images))), images, rtol=0, atol=2e-3)


def test_operations_against_pillow() -> None:
    from PIL import ImageOps

    images = (batch(B=1, H=90, W=80) // 3 + 20).float() / 255
    picture = Image.fromarray((images[0] * 255).round().byte().permute(1, 2, 0).numpy())
    for name, theirs in (("autocontrast", ImageOps.autocontrast(picture)), ("equalize", ImageOps.equalize(picture))):
        ours = OPERATIONS[name](images, torch.ones(1))[0].permute(1, 2, 0) * 255
        assert float((ours - torch.from_numpy(np.array(theirs, dtype=np.float32))).abs().mean()) < 2, name


def test_one_hot() -> None:
    targets = one_hot(torch.tensor([1, 0]), 4, smoothing=0.2)
    torch.testing.assert_close(targets, torch.tensor([[0.05, 0.85, 0.05, 0.05], [0.85, 0.05, 0.05, 0.05]]))
    with pytest.raises(ImageError, match="class 4"):
        one_hot(torch.tensor([4]), 4)
