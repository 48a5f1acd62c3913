"""Terminal tables of heads: profile, importance, and cost of pruning."""

from __future__ import annotations

from collections import Counter

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from multihead.inspection.head_profile import HeadProfile
from multihead.inspection.head_usage import HeadUsage
from multihead.metrics import Difference, Score
from multihead.pruning import HeadRanking, PruningResult
from multihead.pruning.evaluation import to_points
from multihead.report.data import display_name

SHOWN = {  # column -> heading, in the order of importance: narrow terminals drop the last
    "entropy": "entr", "distance": "dist", "previous": "prev", "self": "self", "next": "next", "first": "first",
    "separator": "sep", "same": "same", "punctuation": "punct", "after": "copy",
}  # fmt: skip


def grid() -> Grid:
    return Grid(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1), pad_edge=False, header_style="dim")


def print_profile(profile: HeadProfile, console: Console) -> None:
    """Print one line per head; shares in percent."""
    columns = list(SHOWN)[: max(2, min(len(SHOWN), (console.width - 46) // 7))]
    table = grid()
    table.add_column("head", no_wrap=True)
    table.add_column("what it does", no_wrap=True)
    for name in columns:
        table.add_column(SHOWN[name], justify="right", no_wrap=True)
    for place, (address, name) in enumerate(zip(profile.addresses, profile.names, strict=True)):
        cells = [cell(column, float(profile.columns[column][place])) for column in columns]
        table.add_row(address, Text(name, "" if name not in ("mixed", "broad") else "dim"), *cells)
    console.print(table)
    counts = ", ".join(f"{count} {name}" for name, count in Counter(profile.names).most_common())
    console.print(Text(f"{len(profile)} heads on {profile.inputs:,} inputs, {profile.tokens:,} tokens: {counts}"))
    for cluster in profile.clusters:
        console.print(Text.assemble(("look alike: ", "dim"), ", ".join(cluster)))
    for stack, shares in profile.rollout.items():
        last = {name: values[-1] for name, values in shares.items()}
        summary = ", ".join(f"{100 * share:.0f} % on {where}" for where, share in zip(
            ("the token itself", "the first token", "separators"), last.values(), strict=True))  # fmt: skip
        console.print(Text(f"rollout through the {stack} (Abnar & Zuidema 2020): of a token, {summary}"))
    console.print(Text("entropy in nats, dist in tokens, all others in percent of the attention", "dim"))


def print_uses(usage: HeadUsage, console: Console) -> None:
    """Print one line per head: its share of each task's usage in percent; bold: used mostly by this task."""
    table = grid()
    table.add_column("head", no_wrap=True)
    for name in usage.shares:
        table.add_column(name, justify="right", no_wrap=True)
    for place, address in enumerate(usage.addresses):
        owner = usage.owner(place)
        cells = [
            Text(f"{100 * shares[place]:.1f}", "bold" if name == owner else "dim" if owner else "")
            for name, shares in usage.shares.items()
        ]
        table.add_row(address, *cells)
    console.print(table)
    owners = Counter(usage.owner(place) for place in range(len(usage.addresses)))
    for name in usage.shares:
        console.print(Text(f"{name}: {owners[name]} of {len(usage.addresses)} heads are mostly used by it"))
    for (first, second), share in usage.shared_usage().items():
        console.print(Text(f"{first} and {second} have {100 * share:.0f} % of what they use in common"))
    console.print(Text("percent of the gradient-based importance of all heads for a task's loss", "dim"))


def cell(name: str, value: float) -> Text:
    if value != value:  # nan
        return Text("–", "dim")
    if name in ("entropy", "distance"):
        return Text(f"{value:.2f}")
    return Text(f"{100 * value:.0f}", "bold" if value >= 0.5 else "" if value >= 0.3 else "dim")


def print_ranking(ranking: HeadRanking, console: Console) -> None:
    """Print the most important head first; losses in points, of a loss in nats."""
    table = grid()
    table.add_column("head", no_wrap=True, min_width=max(len(effect.address) for effect in ranking.effects))
    if ranking.whole is not None:
        table.add_column("lost", justify="right", no_wrap=True)
        table.add_column("interval", no_wrap=True)
        table.add_column("rows", justify="right", no_wrap=True)
    if any(effect.gradient is not None for effect in ranking.effects):
        table.add_column("gradient", justify="right", no_wrap=True)
    for effect in ranking.effects:
        cells: list[Text | str] = [effect.address]
        if effect.loss is not None and ranking.whole is not None:
            significant = effect.loss.interval.low > 0
            cells += [Text(f"{to_points(effect.loss.value, ranking.whole):+.2f}", "bold" if significant else "")]
            low, high = (to_points(end, ranking.whole) for end in (effect.loss.interval.low, effect.loss.interval.high))
            cells += [Text(f"{low:+.2f} to {high:+.2f}", "dim"), f"{effect.rows:,}"]
        if effect.gradient is not None:
            cells.append(f"{effect.gradient:.4f}")
        table.add_row(*cells)
    console.print(table)
    if ranking.whole is not None:
        level = next((effect.loss.interval.level for effect in ranking.effects if effect.loss is not None), 0.95)
        unit = (
            "in points"
            if to_points(1.0, ranking.whole) == 100 or ranking.whole.unit == "percent"
            else "in its own unit"
        )
        console.print(
            f"full model: {display_name(ranking.metric)} {ranking.whole:.4f}; loss {unit}, with a "
            f"{100 * level:g} % confidence interval; bold: significant"
        )
    if ranking.clear is not None and ranking.whole is not None:
        clear = sum(effect.settled for effect in ranking.effects)
        near = to_points(ranking.clear, ranking.whole)
        console.print(
            f"clear: {clear} of {len(ranking.effects)} heads, whose intervals lie on one side of 0 or within "
            f"{near:.2g} of it; measuring stopped there"
        )
    if ranking.agreement is not None:
        console.print(f"agreement of ablation and gradient (Spearman): {ranking.agreement:.2f}")
    cost = ", ".join(f"{name} {value:.1f}" for name, value in ranking.cost.items())
    console.print(Text(f"cost, in evaluations of the full model: {cost}", "dim"))


def spread(loss: Difference, score: Score) -> str:
    low, high = to_points(loss.interval.low, score), to_points(loss.interval.high, score)
    return f"{low:+.2f} to {high:+.2f} ({100 * loss.interval.level:g} %)"


def print_bill(result: PruningResult, console: Console) -> None:
    """Print what was pruned, and its cost."""
    bill, table = result.bill, grid()
    for heading in ("", "before", "after", "saved"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    pairs = [("heads", bill.before.heads, bill.after.heads)]
    pairs += [("key columns", bill.before.keys, bill.after.keys)] if result.columns else []
    pairs += [("value columns", bill.before.values, bill.after.values)] if result.columns else []
    pairs += [("feed-forward units", bill.before.units, bill.after.units)] if result.units else []
    pairs += [("parameters", bill.before.parameters, bill.after.parameters)]
    for name, before, after in pairs:
        table.add_row(name, f"{before:,}", f"{after:,}", f"{1 - after / before:.1%}")
    table.add_row("MFLOPs per token", f"{bill.before.flops / 1e6:.1f}", f"{bill.after.flops / 1e6:.1f}",
                  f"{bill.flops_saved:.1%}")  # fmt: skip
    table.add_row("time", "1", f"{bill.latency:.3f}", f"{1 - bill.latency:.1%}")
    table.add_row(display_name(bill.metric), f"{bill.scores[0].value:.4f}", f"{bill.scores[1].value:.4f}",
                  f"{-to_points(bill.loss.value, bill.scores[0]):+.2f} points")  # fmt: skip
    console.print(table)
    lost = to_points(bill.loss.value, bill.scores[0])
    console.print(
        f"lost: {lost:.2f} points, {spread(bill.loss, bill.scores[0])}, paired, on {bill.rows:,} held-out examples"
    )
    words = {
        "held": "[green]within the budget[/green], by the full confidence interval",
        "likely": "[yellow]within the budget by the estimate[/yellow], but not by its full confidence interval",
    }
    if result.held in words:
        console.print(words[result.held])
    console.print(Text("pruned: " + (", ".join(result.off) or "no head"), "dim"))
