"""A demo's training as a picture: epochs over time, one colour per world size, gaps where training stood still. SVG."""

from __future__ import annotations

from demo.journal import Epoch

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 40, 45
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700")


def svg_of(epochs: list[Epoch], *, title: str) -> str:
    """The picture; `epochs` in order of time, at least one."""
    start, end = epochs[0].time, max(epochs[-1].time, epochs[0].time + 1)
    top_epoch = max(1, *(epoch.number for epoch in epochs))
    sizes = sorted({epoch.world_size for epoch in epochs})
    colours = {size: COLOURS[index % len(COLOURS)] for index, size in enumerate(sizes)}

    def x(time: float) -> float:
        return LEFT + (time - start) / (end - start) * (WIDTH - LEFT - RIGHT)

    def y(number: float) -> float:
        return HEIGHT - BOTTOM - number / top_epoch * (HEIGHT - TOP - BOTTOM)

    dots = [
        f'<circle cx="{x(e.time):.1f}" cy="{y(e.number):.1f}" r="4" fill="{colours[e.world_size]}"/>' for e in epochs
    ]
    legend = [
        f'<circle cx="{LEFT + 12 + 130 * i}" cy="{TOP - 8}" r="4" fill="{colours[size]}"/>'
        f'<text x="{LEFT + 22 + 130 * i}" y="{TOP - 4}">{size} processes</text>'
        for i, size in enumerate(sizes)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
            ' font-size="13" fill="#57606a">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            f'<text x="{LEFT}" y="18" font-size="15" fill="#1f2328">{title}</text>',
            *legend,
            f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#8c959f"/>',
            *_ticks([(x(start + s), f"{s} s") for s in range(0, int(end - start) + 1, 10)], along_x=True),
            *_ticks([(y(n), str(n)) for n in range(0, top_epoch + 1, 5)], along_x=False),
            f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">time since the first epoch</text>',
            f'<text x="14" y="{TOP + 60}" transform="rotate(-90 14 {TOP + 60})" text-anchor="middle">epoch</text>',
            *dots,
            "</svg>\n",
        ]
    )


def _ticks(ticks: list[tuple[float, str]], *, along_x: bool) -> list[str]:
    if along_x:
        return [
            f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{text}</text>' for at, text in ticks
        ]
    return [f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{text}</text>' for at, text in ticks]
