"""The ratios as a picture: time over ours by length, forward and training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import attention_baselines
from benchmarks.attention_baselines import AGAIN, OURS
from benchmarks.attention_speed import SpeedResult
from benchmarks.tables import TITLES

# One colour per library; the second line of a library is dashed. Okabe-Ito colours: told apart by everybody.
LOOKS = {
    "torch.nn": ("#0072b2", "-"),
    "torch.nn, weights": ("#0072b2", "--"),
    "x-transformers": ("#d55e00", "-"),
    "BERT sdpa": ("#009e73", "-"),
    "BERT eager": ("#009e73", "--"),
    "Keras": ("#cc79a7", "-"),
}


def draw(speeds: Sequence[SpeedResult], machine: str, path: Path) -> None:
    """Write a PNG."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(attention_baselines.MODES), sharey=True)
    for panel, mode in zip(panels, attention_baselines.MODES, strict=True):
        _panel(panel, [speed for speed in speeds if speed.mode == mode])
        panel.set_title(TITLES[mode], loc="left", fontsize=11)
    panels[0].set_ylabel("time ÷ ours   (higher = slower)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    title = f"Self-attention, width {attention_baselines.DIM}, {attention_baselines.HEADS} heads, fp32"
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    figure.supxlabel(machine, x=0.01, ha="left", fontsize=7, color="0.45")
    figure.savefig(path, dpi=150)


def _panel(panel: Axes, speeds: Sequence[SpeedResult]) -> None:
    lengths = [speed.length for speed in speeds]
    panel.axhline(1, color="black", linewidth=2, label="ours")
    noise = [abs(speed.seconds[AGAIN] / speed.seconds[OURS] - 1) for speed in speeds]
    band = [1 - x for x in noise], [1 + x for x in noise]
    panel.fill_between(lengths, *band, color="black", alpha=0.15, linewidth=0, label="ours again (noise)")
    for name in (c.name for c in attention_baselines.CONTESTANTS if c.name in LOOKS):
        met = [(s.length, s.seconds[name] / s.seconds[OURS]) for s in speeds if name in s.seconds]
        if met:
            color, dash = LOOKS[name]
            panel.plot(*zip(*met, strict=True), dash, color=color, marker="o", markersize=4, label=name)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(lengths, [f"{length:,}" for length in lengths], rotation=45)
    _ratio_ticks(panel)
    panel.set_xlabel("tokens")
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", color="0.9")


def _ratio_ticks(panel: Axes) -> None:
    low, high = panel.get_ylim()
    ticks = [tick for tick in (0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50) if low <= tick <= high]
    panel.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.minorticks_off()
