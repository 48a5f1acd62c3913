"""What heads look at, in the terminal and as a PNG."""

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

INK = (20, 64, 140)  # of a full weight; fits on dark and on light, since cells have their own ground
PAPER = (246, 246, 243)
SHADES = " ·░▒▓█"  # where there are no colours: in a pipe, in a file
LABEL = 14  # columns of a word's name
LARGEST = 40  # words of a PNG with names on it
FONTS = ("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Microsoft YaHei", "PingFang SC", "SimHei",
         "WenQuanYi Micro Hei", "Arial Unicode MS")  # fmt: skip
FILES = ("cjk", "sourcehan", "msyh", "pingfang", "simhei", "wqy")  # in the names of their files


def show_map(picture: AttentionMaps, console: Console, head: str | None = None) -> None:
    """One head with its words, or all heads small."""
    if head is None:
        for view in picture.views:
            console.print(Text(f"{view.stack}, {view.kind}-attention", "bold"))
            show_all(view, console)
        console.print(Text("rows look at columns; --head ADDRESS shows one head, --html FILE all of them", "dim"))
        return
    view, one = picture.find(head)
    console.print(Text.assemble((one.address, "bold"), f"  {one.name}"))
    show_one(view, one, console)


def show_all(view: StackMaps, console: Console) -> None:
    """Thumbnails: a line of them per layer (or more, where they do not fit)."""
    layers: dict[str, list[HeadMap]] = {}
    for one in view.maps:
        layers.setdefault(one.address.split(".")[1], []).append(one)
    widest = max(len(maps) for maps in layers.values())
    room = console.width - 4
    wide = max(4, min(16, room // widest - 1))
    across = max(1, room // (wide + 1))
    for layer, maps in layers.items():
        for start in range(0, len(maps), across):
            some = maps[start : start + across]
            numbers = "".join(f"{one.address.split('.')[3]:<{wide + 1}}" for one in some)
            console.print(Text(f"{'' if start else layer:>3} {numbers}", "dim"), no_wrap=True, crop=True)
            blocks = [draw_thumbnail(one.weights, wide, max(2, wide // 2), console) for one in some]
            for line in range(len(blocks[0])):
                row = Text("    ")
                for block in blocks:
                    row.append_text(block[line]).append(" ")
                console.print(row, no_wrap=True, crop=True)


def show_one(view: StackMaps, one: HeadMap, console: Console) -> None:
    """A cell for every pair of words where they fit, else a coarse map; then what the words look at most."""
    label = min(LABEL, max((cell_len(word) for word in view.queries), default=1))
    cell = (console.width - label - 6) // max(1, len(view.keys))
    if one.rows is None and cell >= 2 and len(view.queries) <= 80:
        cell = min(cell, 3)
        heading = Text(" " * (label + 5))
        for key in range(len(view.keys)):
            heading.append(f"{key % 10 ** (cell - 1):>{cell}}", "dim")
        console.print(heading, no_wrap=True)
        for query, word in enumerate(view.queries):
            row = Text(f"{query:>3} ", "dim").append(f"{set_cell_size(truncate_word(word, label), label)} ", "not dim")
            for weight in one.weights[query]:
                row.append(
                    shade(float(weight)) * cell if is_monochrome(console) else " " * cell,
                    background_style(float(weight)),
                )
            console.print(row, no_wrap=True)
    else:
        wide = min(console.width - 4, 96)
        for line in draw_thumbnail(one.weights, wide, max(4, wide // 4), console):
            console.print(Text("  ").append_text(line), no_wrap=True)
    for line in strongest_links(view, one, min(24, max(8, console.height - 12))):
        console.print(line, no_wrap=True, overflow="ellipsis")


def strongest_links(view: StackMaps, one: HeadMap, most: int) -> list[Text]:
    """Lines such as: Merkel -> Angela 52 %, visited 20 %"""
    lines = []
    if one.rows is not None:
        spread = np.linspace(0, len(one.rows.at) - 1, min(most, len(one.rows.at))).astype(int)
        rows = [(int(one.rows.at[i]), one.rows.keys[i], one.rows.weights[i]) for i in spread]
    else:
        order = np.argsort(-one.weights, axis=1)[:, :3]
        rows = [(q, order[q], one.weights[q, order[q]]) for q in range(min(most, len(view.queries)))]
    for query, keys, weights in rows:
        found = [f"{view.keys[k]} {100 * w:.0f} %" for k, w in zip(keys[:3], weights[:3], strict=True) if w >= 0.01]
        lines.append(Text.assemble((f"{query:>6} ", "dim"), view.queries[query], (" → ", "dim"), ", ".join(found)))
    if len(lines) < len(view.queries) and one.rows is None:
        lines.append(Text(f"       … and {len(view.queries) - len(lines)} more words", "dim"))
    return lines


def is_monochrome(console: Console) -> bool:
    return console.color_system is None


def shade(weight: float) -> str:
    return SHADES[min(len(SHADES) - 1, int(root(weight) * len(SHADES)))]


def draw_thumbnail(weights: NDArray[np.float32], wide: int, high: int, console: Console) -> list[Text]:
    """A small picture of so many lines: two rows of points in each, by the upper half block; without colours, one."""
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
    """The largest weight that falls on each point, so that a thin diagonal stays a line."""
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
    """By roots, small weights are seen."""
    return float(np.sqrt(min(1.0, max(0.0, float(weight)))))


def background_style(weight: float) -> Style:
    return Style(bgcolor=Color.from_rgb(*mix_color(weight)))


def truncate_word(word: str, width: int) -> str:
    """Cut to so many columns; a Chinese character takes two."""
    if cell_len(word) <= width:
        return word
    return set_cell_size(word, width - 1).rstrip() + "…"


def draw_png(picture: AttentionMaps, path: Path, head: str | None = None) -> None:
    """One head with its words, or a grid of all heads."""
    if head is not None:
        view, one = picture.find(head)
        figure = _large(view, one)
    else:
        figure = _grid(picture)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=150)


def _large(view: StackMaps, one: HeadMap) -> Figure:
    named = one.rows is None and max(len(view.queries), len(view.keys)) <= LARGEST * 2
    size = 2.2 + 0.22 * max(one.weights.shape) if named else 7.0
    figure = Figure(figsize=(max(5.0, size), max(4.5, size)), layout="constrained")
    axis = figure.subplots()
    shown = axis.imshow(np.sqrt(one.weights), cmap="Blues", vmin=0, vmax=1, aspect="auto" if not named else "equal",
                        interpolation="nearest")  # fmt: skip
    bar = figure.colorbar(shown, ax=axis, shrink=0.6, ticks=np.sqrt([0, 0.01, 0.1, 0.25, 0.5, 1]))
    bar.ax.set_yticklabels(["0", "1 %", "10 %", "25 %", "50 %", "100 %"], fontsize=8)
    axis.set_title(f"{one.address}   {one.name}".rstrip(), loc="left", fontsize=11)
    if named:
        fonts = fonts_for([*view.queries, *view.keys])
        axis.set_yticks(range(len(view.queries)), [_name(word) for word in view.queries], fontsize=8, fontfamily=fonts)
        axis.set_xticks(range(len(view.keys)), [_name(word) for word in view.keys], rotation=90, fontsize=8,
                        fontfamily=fonts)  # fmt: skip
    else:
        axis.set_xlabel(f"{len(view.keys):,} words that are looked at")
        axis.set_ylabel(f"{len(view.queries):,} words that look")
        axis.set_xticks([])
        axis.set_yticks([])
    return figure


def _grid(picture: AttentionMaps) -> Figure:
    lines: list[tuple[StackMaps, int, list[HeadMap]]] = []
    for view in picture.views:
        layers = sorted({int(one.address.split(".")[1]) for one in view.maps})
        lines += [(view, n, [one for one in view.maps if int(one.address.split(".")[1]) == n]) for n in layers]
    widest = max(int(one.address.split(".")[3]) for _, _, maps in lines for one in maps) + 1
    figure = Figure(figsize=(1.1 * widest + 1.2, 1.15 * len(lines) + 0.6), layout="constrained")
    axes = figure.subplots(len(lines), widest, squeeze=False)
    for row, (view, layer, maps) in zip(axes, lines, strict=True):
        found = {int(one.address.split(".")[3]): one for one in maps}
        for number, axis in enumerate(row):
            axis.set_xticks([])
            axis.set_yticks([])
            if number in found:
                smooth = "nearest" if max(found[number].weights.shape) < 64 else "antialiased"
                roots = np.sqrt(found[number].weights)
                axis.imshow(roots, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation=smooth)
            else:
                axis.set_facecolor("0.95")  # cut out
            if layer == 0 and view is lines[0][0]:
                axis.set_title(str(number), fontsize=8)
        row[0].set_ylabel(f"{view.stack} {layer}\n{view.kind}", fontsize=8)
    title = picture.text if len(picture.text) <= 100 else f"{picture.text[:100]}…"
    figure.suptitle(_escape_text(title), fontsize=10, fontfamily=fonts_for([title]))
    return figure


def _name(word: str) -> str:
    return _escape_text(word if len(word) <= LABEL else word[: LABEL - 1] + "…")


def _escape_text(text: str) -> str:
    """matplotlib takes a dollar for mathematics, and signs that cannot be seen for boxes."""
    return "".join(sign if sign.isprintable() else "·" for sign in text).replace("$", r"\$")


def fonts_for(words: Sequence[str]) -> list[str]:
    """Families that are here, those with Chinese first where it is needed."""
    wide = any(unicodedata.east_asian_width(sign) in "WF" for word in words for sign in word)
    if not wide:
        return ["DejaVu Sans"]
    if not (found := _wide_fonts()):  # matplotlib's list is kept on disk, and may be older than a font
        for path in font_manager.findSystemFonts():
            if any(mark in Path(path).name.lower() for mark in FILES):
                font_manager.fontManager.addfont(path)
        found = _wide_fonts()
    return [*found, "DejaVu Sans"]


def _wide_fonts() -> list[str]:
    """Those with Chinese. Of a collection, matplotlib knows the first face only: of Noto's it is the Japanese one."""
    here = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in FONTS if name in here] + sorted(name for name in here if "CJK" in name and "Sans" in name)
