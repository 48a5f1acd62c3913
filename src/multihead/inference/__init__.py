"""Inference: the pipeline object, the batching engine, and defaults for models without a task."""

from multihead.inference.pipeline import Pipeline

__all__ = ["Pipeline"]
