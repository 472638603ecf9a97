"""Plain aligned text, which looks the same in a terminal, a mail and a bug report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GAP = "  "


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table, and the lines below it."""

    cells: tuple[str, ...]
    below: tuple[str, ...] = ()


def aligned(head: Sequence[str], rows: Sequence[Row]) -> str:
    """The table under its head; each column is as wide as its widest cell. Lines below a row are indented."""
    widths = [max(map(len, column)) for column in zip(head, *(row.cells for row in rows), strict=True)]
    lines = [_line(head, widths)]
    for row in rows:
        lines.append(_line(row.cells, widths))
        lines.extend(GAP + line for text in row.below for line in text.splitlines())
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
