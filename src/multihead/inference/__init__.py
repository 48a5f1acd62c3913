"""Using a model: the pipeline object, the batching engine, defaults of models without a task."""

from multihead.inference.pipeline import Pipeline

__all__ = ["Pipeline"]
