"""The error for a token id outside the vocabulary of a model."""

from __future__ import annotations


def unknown_token(number: int, rows: int) -> ValueError:
    """Return the error for a token id without an embedding: the tokenizer has more tokens, or is another model's."""
    return ValueError(
        f"the tokenizer makes token {number} of it, this model's tokens are 0 to {rows - 1}; "
        "the tokenizer is another model's, or has tokens that were added to it alone"
    )
