"""The error of a token number that is outside the vocabulary of a model."""

from __future__ import annotations


def unknown_token(number: int, rows: int) -> ValueError:
    """The error for a token that a model has no row for: a tokenizer may have more tokens, or be another model's."""
    return ValueError(
        f"the tokenizer makes token {number} of it, this model's tokens are 0 to {rows - 1}; "
        "the tokenizer is another model's, or has tokens that were added to it alone"
    )
