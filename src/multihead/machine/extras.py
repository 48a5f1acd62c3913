"""Optional extras and their modules; a test compares this table with pyproject.toml."""

from importlib.util import find_spec

EXTRAS = {
    "hub": ("huggingface_hub",),
    "sentencepiece": ("sentencepiece",),
    "gguf": ("gguf",),
    "tensorboard": ("tensorboard",),
    "scores": ("sacrebleu", "rouge_score", "jiwer", "torchmetrics"),
    "image": ("PIL",),
    "audio": ("soundfile", "soxr"),
    "serve": ("fastapi", "uvicorn", "prometheus_client", "orjson"),
    "bench": ("x_transformers", "transformers", "accelerate", "keras", "ctranslate2", "litserve"),
}


def missing_extras() -> dict[str, list[str]]:
    """Return incomplete extras, each with its missing modules, without importing them."""
    absent = {extra: [name for name in names if find_spec(name) is None] for extra, names in EXTRAS.items()}
    return {extra: names for extra, names in absent.items() if names}


def extra_of(module: str) -> str | None:
    """Return the extra that provides a module (or its parent package), or None."""
    top = module.partition(".")[0]
    return next((extra for extra, names in EXTRAS.items() if top in names), None)
