"""Goodput and losses of each policy, seed by seed, as dots. SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

from benchmarks.policy import figures
from benchmarks.policy.figures import POLICIES, Run

WIDTH, ROW, LEFT, RIGHT, TOP, GAP, BOTTOM = 920, 40, 120, 40, 62, 66, 30
COLOURS = ("#9a6700", "#d1242f", "#8250df", "#1f6feb")


def svg_of(runs: Sequence[Run]) -> str:
    """Two panels with a row for each policy: a dot for each seed, a bar for all of them together."""
    panel = ROW * len(POLICIES)
    height = TOP + 2 * panel + GAP + BOTTOM
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
            ' font-size="13" fill="#57606a">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *_panel(runs, "Goodput: the share of all GPU time that became work", figures.goodput, top=TOP),
            *_panel(runs, "Lost: the share of all GPU time", figures.lost_share, top=TOP + panel + GAP),
            "</svg>\n",
        ]
    )


def _panel(runs: Sequence[Run], title: str, figure: Callable[[Sequence[Run]], float], *, top: int) -> list[str]:
    most = max(figure([run]) for run in runs) or 1.0
    drawn = [f'<text x="10" y="{top - 28}" font-size="15" fill="#1f2328">{escape(title)}</text>']

    def across(value: float) -> float:
        return LEFT + value / most * (WIDTH - LEFT - RIGHT)

    for index, policy in enumerate(POLICIES):
        mine, y, colour = figures.of(runs, policy), top + ROW * index, COLOURS[index % len(COLOURS)]
        all_of_them = figure(mine)
        drawn.append(f'<text x="10" y="{y + 5}" fill="#1f2328">{escape(policy)}</text>')
        drawn += [
            f'<circle cx="{across(figure([run])):.1f}" cy="{y}" r="4" fill="{colour}" fill-opacity="0.35"/>'
            for run in mine
        ]
        drawn.append(f'<path d="M{across(all_of_them):.1f} {y - 12}v24" stroke="{colour}" stroke-width="3"/>')
        drawn.append(f'<text x="{across(all_of_them) + 6:.1f}" y="{y - 8}">{all_of_them:.1%}</text>')
    return drawn
