"""The pace of each way as bars, with the pace of one device times the number of devices. SVG."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.torch.figures import Row
from benchmarks.torch.hardware import Hardware

WIDTH, ROW, LEFT, RIGHT, TOP, BOTTOM = 920, 24, 330, 90, 66, 16
COLOURS = ("#1f6feb", "#1a7f37", "#9a6700", "#d1242f")


def svg_of(rows: Sequence[Row], hardware: Hardware) -> str:
    """A row for each training, one colour per number of processes. There is at least one with results."""
    drawn = [row for row in rows if row.results]
    one = next((row.images_per_second for row in drawn if row.way.form == "single"), 0.0)
    most = max(max(row.images_per_second, one * min(row.size, hardware.devices)) for row in drawn)
    sizes = sorted({row.size for row in drawn})
    height = TOP + ROW * len(drawn) + BOTTOM

    def width(pace: float) -> float:
        return pace / most * (WIDTH - LEFT - RIGHT)

    def bar(row: Row, y: int) -> str:
        label = escape(f"{row.way.title}, {row.way.started}, {row.size}")
        colour, end = COLOURS[sizes.index(row.size) % len(COLOURS)], LEFT + width(row.images_per_second)
        ideal = LEFT + width(one * min(row.size, hardware.devices))
        return (
            f'<text x="10" y="{y + 5}" fill="#1f2328">{label}</text>'
            f'<rect x="{LEFT}" y="{y - 8}" width="{end - LEFT:.1f}" height="16" fill="{colour}"/>'
            f'<text x="{max(end, ideal) + 6:.1f}" y="{y + 5}">{row.images_per_second:,.0f}</text>'
            f'<path d="M{ideal:.1f} {y - 11}v22" stroke="#1f2328" stroke-dasharray="3 2"/>'
        )

    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
            ' font-size="13" fill="#57606a">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            '<text x="10" y="22" font-size="15" fill="#1f2328">Images per second, by way and processes</text>',
            f'<text x="10" y="42">{escape(str(hardware))}; dashed: one device, as often as there are devices</text>',
            *(bar(row, TOP + ROW * index) for index, row in enumerate(drawn)),
            "</svg>\n",
        ]
    )
