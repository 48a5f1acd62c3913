"""Device selection: the CPU, or a GPU that torch supports here."""

import torch

NAMES = ("cuda", "mps")  # in the order `auto` prefers them; otherwise the CPU


def available_devices() -> list[str]:
    """Return the devices torch can use here, the CPU last."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return [*(name for name in NAMES if there[name]), "cpu"]


def select_device(name: str = "auto") -> torch.device:
    """Return a device by name; `auto` is a GPU where there is one; cuda:1 is the second."""
    devices = available_devices()
    if name != "auto" and name.partition(":")[0] not in devices:
        raise ValueError(
            f"device = {name!r}: torch {torch.__version__} sees {', '.join(devices)} here; use one of these or auto, "
            "or install a torch that was built for it"
        )
    return torch.device(devices[0] if name == "auto" else name)


def seed_device(device: torch.device, number: int) -> None:
    """Seed the random generator of a device, and always the CPU's, which draws the order and the masks."""
    # Not torch.manual_seed: for absent devices it stores three formatted stack traces, a few percent of a step.
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(number)
