"""Where to compute: the processor, or a graphics card that torch sees."""

import torch

NAMES = ("cuda", "mps")  # as `auto` prefers them; the processor is what is left


def available_devices() -> list[str]:
    """What torch can compute on here, the processor last."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return [*(name for name in NAMES if there[name]), "cpu"]


def select_device(wanted: str = "auto") -> torch.device:
    """`auto` is a graphics card where there is one; cuda:1 names the second."""
    here = available_devices()
    if wanted != "auto" and wanted.partition(":")[0] not in here:
        raise ValueError(
            f"device = {wanted!r}: torch {torch.__version__} sees {', '.join(here)} here; take one of these or auto, "
            "or install a torch that was built for it"
        )
    return torch.device(here[0] if wanted == "auto" else wanted)


def seed_device(device: torch.device, number: int) -> None:
    """What noise on a device is drawn from; the processor's own in any case, since order and masks come from it."""
    # Not torch.manual_seed: for devices that are not there it keeps three printed stacks, a few percent of a step.
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(number)
