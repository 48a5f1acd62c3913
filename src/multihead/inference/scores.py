"""What an evaluation returns."""

from __future__ import annotations

from multihead.io.html import html_table
from multihead.metrics import Score


class Scores(dict[str, Score]):
    """Scores by name, which print themselves as a table."""

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:<{width}}  {score:.4f}" for name, score in self.items())

    def _repr_html_(self) -> str:
        rows = [
            (name, f"{score.value:.4f}", "" if (i := score.interval) is None else f"{i.low:.4f} to {i.high:.4f}")
            for name, score in self.items()
        ]
        return html_table("scores", ("metric", "value", "CI"), rows)
