"""Plot of the score against the pruned heads in the search of `heads prune`."""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from multihead.metrics import Difference
from multihead.pruning import PruningResult
from multihead.pruning.evaluation import to_points
from multihead.report.data import display_name

BLUE, ORANGE = "#0072b2", "#d55e00"  # Okabe and Ito: safe for color-blind readers


def limits(loss: Difference) -> tuple[float, float]:
    """Return the worst and the best value of the confidence interval."""
    return loss.interval.high, loss.interval.low


def draw_curve(result: PruningResult, path: Path, budget: float | None = None) -> None:
    """Write a PNG. budget: points that may be lost."""
    curve, full_score = result.curve, result.curve[0].score
    by_flops = bool(result.units or result.columns)
    remaining = [100 * (point.flops if by_flops else point.heads) for point in curve]
    lost = [-to_points(point.loss.value, full_score) for point in curve]
    low, high = zip(*([-to_points(x, full_score) for x in limits(point.loss)] for point in curve), strict=True)
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    axis.axhline(0, color="0.6", linewidth=1)
    if budget is not None:
        axis.axhline(-budget, color="0.6", linewidth=1, linestyle="--", label=f"budget: {budget:g} points")
    axis.fill_between(remaining, low, high, color=BLUE, alpha=0.18, linewidth=0, label="paired confidence interval")
    axis.plot(remaining, lost, color=BLUE, marker="o", markersize=4, label="selection examples")
    bill = result.bill
    share = bill.after.flops / bill.before.flops if by_flops else bill.after.heads / bill.before.heads
    value, worst, best = (-to_points(x, bill.scores[0]) for x in (bill.loss.value, *limits(bill.loss)))
    axis.errorbar([100 * share], [value], yerr=[[value - worst], [best - value]], color=ORANGE, marker="D", capsize=3,
                  linestyle="", label="the pruned model, on held-out examples")  # fmt: skip
    axis.invert_xaxis()
    axis.set_xlabel(f"{'arithmetic' if by_flops else 'heads'} remaining, %")
    axis.set_ylabel(f"{display_name(bill.metric)}, points relative to the full model")
    axis.legend(frameon=False, loc="lower left")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    figure.savefig(path, dpi=150)
