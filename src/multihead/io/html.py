"""Small tables of HTML: how objects show themselves in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]], limit: int = 200) -> str:
    """Return a table with a caption; every cell is escaped. Of more than `limit` rows the last line tells the rest."""
    every = [list(row) for row in rows]
    lines = ["".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in every[:limit]]
    if len(every) > limit:
        lines.append(f'<td colspan="{len(header)}">… and {len(every) - limit:,} more</td>')
    caption = f'<caption style="text-align:left"><b>{escape(title)}</b></caption>'
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
