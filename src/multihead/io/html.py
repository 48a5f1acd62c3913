"""Small HTML tables, for the notebook display of objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]], limit: int = 200) -> str:
    """Return a table with a caption; every cell is escaped. Beyond `limit` rows the last line counts the rest."""
    cells = [list(row) for row in rows]
    lines = ["".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in cells[:limit]]
    if len(cells) > limit:
        lines.append(f'<td colspan="{len(header)}">… and {len(cells) - limit:,} more</td>')
    caption = f'<caption style="text-align:left"><b>{escape(title)}</b></caption>'
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
