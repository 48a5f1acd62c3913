"""Attention of heads in the terminal and as a PNG."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

from multihead.inspection.attention_maps import AttentionMaps, HeadMap, StackMaps

INK = (20, 64, 140)  # color of weight 1; fits dark and light terminals, since cells have their own background
PAPER = (246, 246, 243)
SHADES = " ·░▒▓█"  # without colors: in a pipe, in a file
LABEL = 14  # columns of a word's label
LARGEST = 40  # words of a PNG with labels
FONTS = ("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Microsoft YaHei", "PingFang SC", "SimHei",
         "WenQuanYi Micro Hei", "Arial Unicode MS")  # fmt: skip
FILES = ("cjk", "sourcehan", "msyh", "pingfang", "simhei", "wqy")  # in the names of their files


def show_map(picture: AttentionMaps, console: Console, head: str | None = None) -> None:
    """Print one head with its words, or thumbnails of all heads."""
    if head is None:
        for view in picture.views:
            console.print(Text(f"{view.stack}, {view.kind}-attention", "bold"))
            show_all(view, console)
        console.print(
            Text("rows are queries, columns are keys; --head ADDRESS shows one head, --html FILE all of them", "dim")
        )
        return
    view, head_map = picture.find(head)
    console.print(Text.assemble((head_map.address, "bold"), f"  {head_map.name}"))
    show_one(view, head_map, console)


def show_all(view: StackMaps, console: Console) -> None:
    """Print thumbnails: one line per layer, or more where they do not fit."""
    layers: dict[str, list[HeadMap]] = {}
    for head_map in view.maps:
        layers.setdefault(head_map.address.split(".")[1], []).append(head_map)
    widest = max(len(maps) for maps in layers.values())
    room = console.width - 4
    wide = max(4, min(16, room // widest - 1))
    across = max(1, room // (wide + 1))
    for layer, maps in layers.items():
        for start in range(0, len(maps), across):
            line_maps = maps[start : start + across]
            numbers = "".join(f"{head_map.address.split('.')[3]:<{wide + 1}}" for head_map in line_maps)
            console.print(Text(f"{'' if start else layer:>3} {numbers}", "dim"), no_wrap=True, crop=True)
            blocks = [draw_thumbnail(head_map.weights, wide, max(2, wide // 2), console) for head_map in line_maps]
            for line in range(len(blocks[0])):
                row = Text("    ")
                for block in blocks:
                    row.append_text(block[line]).append(" ")
                console.print(row, no_wrap=True, crop=True)


def show_one(view: StackMaps, head_map: HeadMap, console: Console) -> None:
    """Print a cell for every pair of words where they fit, else a coarse map; then the strongest links."""
    label = min(LABEL, max((cell_len(word) for word in view.queries), default=1))
    cell = (console.width - label - 6) // max(1, len(view.keys))
    if head_map.rows is None and cell >= 2 and len(view.queries) <= 80:
        cell = min(cell, 3)
        heading = Text(" " * (label + 5))
        for key in range(len(view.keys)):
            heading.append(f"{key % 10 ** (cell - 1):>{cell}}", "dim")
        console.print(heading, no_wrap=True)
        for query, word in enumerate(view.queries):
            row = Text(f"{query:>3} ", "dim").append(f"{set_cell_size(truncate_word(word, label), label)} ", "not dim")
            for weight in head_map.weights[query]:
                row.append(
                    shade(float(weight)) * cell if is_monochrome(console) else " " * cell,
                    background_style(float(weight)),
                )
            console.print(row, no_wrap=True)
    else:
        wide = min(console.width - 4, 96)
        for line in draw_thumbnail(head_map.weights, wide, max(4, wide // 4), console):
            console.print(Text("  ").append_text(line), no_wrap=True)
    for line in strongest_links(view, head_map, min(24, max(8, console.height - 12))):
        console.print(line, no_wrap=True, overflow="ellipsis")


def strongest_links(view: StackMaps, head_map: HeadMap, most: int) -> list[Text]:
    """Return lines such as: Merkel -> Angela 52 %, visited 20 %."""
    lines = []
    if head_map.rows is not None:
        spread = np.linspace(0, len(head_map.rows.at) - 1, min(most, len(head_map.rows.at))).astype(int)
        rows = [(int(head_map.rows.at[i]), head_map.rows.keys[i], head_map.rows.weights[i]) for i in spread]
    else:
        order = np.argsort(-head_map.weights, axis=1)[:, :3]
        rows = [(q, order[q], head_map.weights[q, order[q]]) for q in range(min(most, len(view.queries)))]
    for query, keys, weights in rows:
        links = [f"{view.keys[k]} {100 * w:.0f} %" for k, w in zip(keys[:3], weights[:3], strict=True) if w >= 0.01]
        lines.append(Text.assemble((f"{query:>6} ", "dim"), view.queries[query], (" → ", "dim"), ", ".join(links)))
    if len(lines) < len(view.queries) and head_map.rows is None:
        lines.append(Text(f"       … and {len(view.queries) - len(lines)} more words", "dim"))
    return lines


def is_monochrome(console: Console) -> bool:
    return console.color_system is None


def shade(weight: float) -> str:
    return SHADES[min(len(SHADES) - 1, int(root(weight) * len(SHADES)))]


def draw_thumbnail(weights: NDArray[np.float32], wide: int, high: int, console: Console) -> list[Text]:
    """Return a small picture: two rows of points per line, by the upper half block; one row without colors."""
    if is_monochrome(console):
        return [Text("".join(map(shade, line))) for line in max_pool(weights, high, wide)]
    points = max_pool(weights, 2 * high, wide)
    lines = []
    for line in range(high):
        text = Text()
        for upper, lower in zip(points[2 * line], points[2 * line + 1], strict=True):
            text.append("▀", Style(color=Color.from_rgb(*mix_color(upper)), bgcolor=Color.from_rgb(*mix_color(lower))))
        lines.append(text)
    return lines


def max_pool(weights: NDArray[np.float32], high: int, wide: int) -> NDArray[np.float32]:
    """Return the largest weight of each point, so that a thin diagonal stays a line."""
    rows = np.linspace(0, weights.shape[0], high + 1)
    columns = np.linspace(0, weights.shape[1], wide + 1)
    out = np.zeros((high, wide), dtype=np.float32)
    for y in range(high):
        top, bottom = int(rows[y]), max(int(rows[y]) + 1, int(np.ceil(rows[y + 1] - 1e-9)))
        for x in range(wide):
            left, right = int(columns[x]), max(int(columns[x]) + 1, int(np.ceil(columns[x + 1] - 1e-9)))
            out[y, x] = weights[top:bottom, left:right].max()
    return out


def mix_color(weight: float) -> tuple[int, int, int]:
    red, green, blue = (round(a + (b - a) * root(weight)) for a, b in zip(PAPER, INK, strict=True))
    return red, green, blue


def root(weight: float) -> float:
    """Return the square root of a weight, which makes small weights visible."""
    return float(np.sqrt(min(1.0, max(0.0, float(weight)))))


def background_style(weight: float) -> Style:
    return Style(bgcolor=Color.from_rgb(*mix_color(weight)))


def truncate_word(word: str, width: int) -> str:
    """Truncate a word to a number of columns; a Chinese character takes two."""
    if cell_len(word) <= width:
        return word
    return set_cell_size(word, width - 1).rstrip() + "…"


def draw_png(picture: AttentionMaps, path: Path, head: str | None = None) -> None:
    """Write a PNG of one head with its words, or a grid of all heads."""
    if head is not None:
        view, head_map = picture.find(head)
        figure = _large(view, head_map)
    else:
        figure = _grid(picture)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=150)


def _large(view: StackMaps, head_map: HeadMap) -> Figure:
    named = head_map.rows is None and max(len(view.queries), len(view.keys)) <= LARGEST * 2
    size = 2.2 + 0.22 * max(head_map.weights.shape) if named else 7.0
    figure = Figure(figsize=(max(5.0, size), max(4.5, size)), layout="constrained")
    axis = figure.subplots()
    shown = axis.imshow(np.sqrt(head_map.weights), cmap="Blues", vmin=0, vmax=1,
                        aspect="auto" if not named else "equal", interpolation="nearest")  # fmt: skip
    bar = figure.colorbar(shown, ax=axis, shrink=0.6, ticks=np.sqrt([0, 0.01, 0.1, 0.25, 0.5, 1]))
    bar.ax.set_yticklabels(["0", "1 %", "10 %", "25 %", "50 %", "100 %"], fontsize=8)
    axis.set_title(f"{head_map.address}   {head_map.name}".rstrip(), loc="left", fontsize=11)
    if named:
        fonts = fonts_for([*view.queries, *view.keys])
        axis.set_yticks(range(len(view.queries)), [_name(word) for word in view.queries], fontsize=8, fontfamily=fonts)
        axis.set_xticks(range(len(view.keys)), [_name(word) for word in view.keys], rotation=90, fontsize=8,
                        fontfamily=fonts)  # fmt: skip
    else:
        axis.set_xlabel(f"{len(view.keys):,} keys")
        axis.set_ylabel(f"{len(view.queries):,} queries")
        axis.set_xticks([])
        axis.set_yticks([])
    return figure


def _grid(picture: AttentionMaps) -> Figure:
    lines: list[tuple[StackMaps, int, list[HeadMap]]] = []
    for view in picture.views:
        layers = sorted({int(head_map.address.split(".")[1]) for head_map in view.maps})
        lines += [
            (view, n, [head_map for head_map in view.maps if int(head_map.address.split(".")[1]) == n]) for n in layers
        ]
    widest = max(int(head_map.address.split(".")[3]) for _, _, maps in lines for head_map in maps) + 1
    figure = Figure(figsize=(1.1 * widest + 1.2, 1.15 * len(lines) + 0.6), layout="constrained")
    axes = figure.subplots(len(lines), widest, squeeze=False)
    for row, (view, layer, maps) in zip(axes, lines, strict=True):
        by_number = {int(head_map.address.split(".")[3]): head_map for head_map in maps}
        for number, axis in enumerate(row):
            axis.set_xticks([])
            axis.set_yticks([])
            if number in by_number:
                smooth = "nearest" if max(by_number[number].weights.shape) < 64 else "antialiased"
                roots = np.sqrt(by_number[number].weights)
                axis.imshow(roots, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation=smooth)
            else:
                axis.set_facecolor("0.95")  # pruned
            if layer == 0 and view is lines[0][0]:
                axis.set_title(str(number), fontsize=8)
        row[0].set_ylabel(f"{view.stack} {layer}\n{view.kind}", fontsize=8)
    title = picture.text if len(picture.text) <= 100 else f"{picture.text[:100]}…"
    figure.suptitle(_escape_text(title), fontsize=10, fontfamily=fonts_for([title]))
    return figure


def _name(word: str) -> str:
    return _escape_text(word if len(word) <= LABEL else word[: LABEL - 1] + "…")


def _escape_text(text: str) -> str:
    """Escape dollars, which matplotlib reads as mathematics, and replace unprintable characters."""
    return "".join(char if char.isprintable() else "·" for char in text).replace("$", r"\$")


def fonts_for(words: Sequence[str]) -> list[str]:
    """Return available font families, those with Chinese first where needed."""
    wide = any(unicodedata.east_asian_width(char) in "WF" for word in words for char in word)
    if not wide:
        return ["DejaVu Sans"]
    if not (families := _wide_fonts()):  # matplotlib caches its list on disk, which may be older than a font
        for path in font_manager.findSystemFonts():
            if any(mark in Path(path).name.lower() for mark in FILES):
                font_manager.fontManager.addfont(path)
        families = _wide_fonts()
    return [*families, "DejaVu Sans"]


def _wide_fonts() -> list[str]:
    """Return families with Chinese. Of a collection, matplotlib knows the first face only: for Noto the Japanese
    one.
    """
    here = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in FONTS if name in here] + sorted(name for name in here if "CJK" in name and "Sans" in name)
