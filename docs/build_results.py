"""Write docs/results.md from docs/results.toml: one table of quality, one of speed."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
HEAD = """# Results

One line per result; the linked page has the command, what was tried and what failed. Machine: AMD EPYC, 2 cores,
24 GiB, no GPU, torch 2.13 (CPU). Intervals are 95 % confidence intervals. Test splits chose nothing, unless the caveat
says how often they were scored.

"""
QUALITY = ("task", "dataset", "model", "metric", "reference", "recipe", "commit", "caveat")
SPEED = ("what", "ratio", "baseline", "commit", "caveat")


def build() -> str:
    """Return the page."""
    results = tomllib.loads((DOCS / "results.toml").read_text(encoding="utf-8"))
    speed = "Speed-up: baseline's time ÷ ours, median of interleaved rounds in one run.\n\n"
    quality = "## Quality\n\n" + _table(QUALITY, results["quality"])
    return HEAD + quality + "\n## Speed and memory\n\n" + speed + _table(SPEED, results["speed"])


def _table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(_cell(row, name) for name in columns) + " |" for row in rows]) + "\n"


def _cell(row: dict[str, Any], name: str) -> str:
    text = str(row[name])
    if name == "recipe" and not text.startswith("`"):
        file = text if text.endswith(".toml") else f"{text}/run.toml"
        return f"[{text}](../src/multihead/recipes/{file})"
    return f"{text} [Details](experiments/{row['details']})" if name == "caveat" else text


if __name__ == "__main__":
    (DOCS / "results.md").write_text(build(), encoding="utf-8")
    print(DOCS / "results.md", file=sys.stderr)
