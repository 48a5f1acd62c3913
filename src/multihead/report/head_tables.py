"""Heads in the terminal: what they do, what a task loses without them, the bill of pruning."""

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


def print_profile(found: HeadProfile, console: Console) -> None:
    """A line per head; shares in percent."""
    columns = list(SHOWN)[: max(2, min(len(SHOWN), (console.width - 46) // 7))]
    table = grid()
    table.add_column("head", no_wrap=True)
    table.add_column("what it does", no_wrap=True)
    for name in columns:
        table.add_column(SHOWN[name], justify="right", no_wrap=True)
    for place, (address, name) in enumerate(zip(found.addresses, found.names, strict=True)):
        cells = [cell(column, float(found.columns[column][place])) for column in columns]
        table.add_row(address, Text(name, "" if name not in ("mixed", "broad") else "dim"), *cells)
    console.print(table)
    counts = ", ".join(f"{count} {name}" for name, count in Counter(found.names).most_common())
    console.print(Text(f"{len(found)} heads on {found.inputs:,} inputs, {found.tokens:,} tokens: {counts}"))
    for cluster in found.clusters:
        console.print(Text.assemble(("look alike: ", "dim"), ", ".join(cluster)))
    for stack, shares in found.rollout.items():
        last = {name: values[-1] for name, values in shares.items()}
        told = ", ".join(f"{100 * share:.0f} % on {where}" for where, share in zip(
            ("the token itself", "the first token", "separators"), last.values(), strict=True))  # fmt: skip
        console.print(Text(f"rollout through the {stack} (Abnar & Zuidema 2020): of a token, {told}"))
    console.print(Text("entropy in nats, dist in tokens, all others in percent of the attention", "dim"))


def print_uses(found: HeadUsage, console: Console) -> None:
    """A line per head: how much of what each task uses it is, in percent; bold: this task's far more than others'."""
    table = grid()
    table.add_column("head", no_wrap=True)
    for name in found.shares:
        table.add_column(name, justify="right", no_wrap=True)
    for place, address in enumerate(found.addresses):
        owner = found.owner(place)
        cells = [
            Text(f"{100 * mine[place]:.1f}", "bold" if name == owner else "dim" if owner else "")
            for name, mine in found.shares.items()
        ]
        table.add_row(address, *cells)
    console.print(table)
    owners = Counter(found.owner(place) for place in range(len(found.addresses)))
    for name in found.shares:
        console.print(Text(f"{name}: {owners[name]} of {len(found.addresses)} heads are mostly its own"))
    for (one, other), share in found.shared_usage().items():
        console.print(Text(f"{one} and {other} have {100 * share:.0f} % of what they use in common"))
    console.print(Text("percent of what a task's loss hangs on all heads, by gradient", "dim"))


def cell(name: str, value: float) -> Text:
    if value != value:  # nan
        return Text("–", "dim")
    if name in ("entropy", "distance"):
        return Text(f"{value:.2f}")
    return Text(f"{100 * value:.0f}", "bold" if value >= 0.5 else "" if value >= 0.3 else "dim")


def print_ranking(found: HeadRanking, console: Console) -> None:
    """The most needed head first; losses in points, of a loss in nats."""
    table = grid()
    table.add_column("head", no_wrap=True, min_width=max(len(effect.address) for effect in found.effects))
    if found.whole is not None:
        table.add_column("lost", justify="right", no_wrap=True)
        table.add_column("interval", no_wrap=True)
        table.add_column("rows", justify="right", no_wrap=True)
    if any(effect.gradient is not None for effect in found.effects):
        table.add_column("gradient", justify="right", no_wrap=True)
    for effect in found.effects:
        cells: list[Text | str] = [effect.address]
        if effect.loss is not None and found.whole is not None:
            sure = effect.loss.interval.low > 0
            cells += [Text(f"{to_points(effect.loss.value, found.whole):+.2f}", "bold" if sure else "")]
            low, high = (to_points(end, found.whole) for end in (effect.loss.interval.low, effect.loss.interval.high))
            cells += [Text(f"{low:+.2f} to {high:+.2f}", "dim"), f"{effect.rows:,}"]
        if effect.gradient is not None:
            cells.append(f"{effect.gradient:.4f}")
        table.add_row(*cells)
    console.print(table)
    if found.whole is not None:
        level = next((effect.loss.interval.level for effect in found.effects if effect.loss is not None), 0.95)
        unit = (
            "in points" if to_points(1.0, found.whole) == 100 or found.whole.unit == "percent" else "as it is counted"
        )
        console.print(
            f"whole model: {display_name(found.metric)} {found.whole:.4f}; what is lost of it {unit}, with "
            "the interval of "
            f"{100 * level:g} %; bold: more than chance"
        )
    if found.clear is not None and found.whole is not None:
        clear = sum(effect.settled for effect in found.effects)
        near = to_points(found.clear, found.whole)
        console.print(
            f"clear: {clear} of {len(found.effects)} heads, whose intervals lie on one side of 0 or within "
            f"{near:.2g} of it; measuring stopped there"
        )
    if found.agreement is not None:
        console.print(f"agreement of ablation and gradient (Spearman): {found.agreement:.2f}")
    cost = ", ".join(f"{name} {value:.1f}" for name, value in found.cost.items())
    console.print(Text(f"cost, in evaluations of the whole model: {cost}", "dim"))


def spread(loss: Difference, score: Score) -> str:
    low, high = to_points(loss.interval.low, score), to_points(loss.interval.high, score)
    return f"{low:+.2f} to {high:+.2f} ({100 * loss.interval.level:g} %)"


def print_bill(done: PruningResult, console: Console) -> None:
    """What went, and what it cost."""
    bill, table = done.bill, grid()
    for heading in ("", "before", "after", "saved"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    pairs = [("heads", bill.before.heads, bill.after.heads)]
    pairs += [("key columns", bill.before.keys, bill.after.keys)] if done.columns else []
    pairs += [("value columns", bill.before.values, bill.after.values)] if done.columns else []
    pairs += [("feed-forward units", bill.before.units, bill.after.units)] if done.units else []
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
        f"lost: {lost:.2f} points, {spread(bill.loss, bill.scores[0])}, paired, "
        f"on {bill.rows:,} rows that chose nothing"
    )
    words = {
        "held": "[green]the budget is held[/green], by the whole of the interval",
        "likely": "[yellow]the budget is held by the estimate[/yellow], though not by the whole of its interval",
    }
    if done.held in words:
        console.print(words[done.held])
    console.print(Text("cut out: " + (", ".join(done.off) or "no head"), "dim"))
