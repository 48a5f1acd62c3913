"""The models with planted heads are those of the pruning tests."""

from tests.pruning.conftest import planted, planted_previous, random_body, tokenizer

__all__ = ["planted", "planted_previous", "random_body", "tokenizer"]
