"""How many pods are created and ready, second by second, by the operator and by the plain clients. SVG."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.scale.report import Figures

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 920, 420, 60, 20, 84, 40
COLOURS = ("#1f6feb", "#1a7f37", "#9a6700")
TICKS = 5


def svg_of(figures: Figures) -> str:
    """The picture, with a colour for each writer: a dashed line counts created pods, a solid one ready pods."""
    kinds = {
        "the operator": figures.crowd.fill.curve,
        "the same objects by a plain client": figures.same_objects,
        "the pods alone by a plain client": figures.pods_only,
    }
    longest = max(curve.running_seconds for curve in kinds.values())
    pods = figures.crowd.pods

    def path(moments: Sequence[float]) -> str:
        points = [
            f"{LEFT + at / longest * (WIDTH - LEFT - RIGHT):.1f} {_height(number, pods):.1f}"
            for number, at in enumerate(moments, start=1)
        ]
        return f"M{LEFT} {_height(0, pods):.1f}L" + "L".join(points)

    drawn: list[str] = []
    for (kind, curve), colour in zip(kinds.items(), COLOURS, strict=True):
        y = 40 + 16 * len(drawn) // 3
        drawn += [
            f'<path d="{path(curve.created)}" fill="none" stroke="{colour}" stroke-dasharray="4 3"/>',
            f'<path d="{path(curve.ready)}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{LEFT}" y="{y}" fill="{colour}">{escape(kind)}: {curve.running_seconds:.1f} s</text>',
        ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
            ' font-size="13" fill="#57606a">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            f'<text x="10" y="22" font-size="15" fill="#1f2328">{figures.main} jobs created at once: pods created'
            " (dashed) and ready</text>",
            *_axes(longest, pods),
            *drawn,
            "</svg>\n",
        ]
    )


def _height(number: int, pods: int) -> float:
    return HEIGHT - BOTTOM - number / pods * (HEIGHT - TOP - BOTTOM)


def _axes(longest: float, pods: int) -> list[str]:
    found = [f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#d0d7de"/>']
    for tick in range(TICKS + 1):
        x = LEFT + tick / TICKS * (WIDTH - LEFT - RIGHT)
        y = _height(pods * tick // TICKS, pods)
        found.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{longest * tick / TICKS:.0f} s</text>'
        )
        found.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{pods * tick // TICKS}</text>')
    return found
