"""Draws trainings: epochs over time, one colour per world size, gaps where the training paused. SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from demo.journal import Epoch

WIDTH, PANEL, BETWEEN = 760, 170, 34
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 76, 45
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700")


def svg_of(trainings: Mapping[str, Sequence[Epoch]], *, title: str) -> str:
    """The picture: a panel for each training, by its name, all on the same scales. Each has at least one epoch."""
    shown = {name: [_Dot(epochs[0], epoch) for epoch in epochs] for name, epochs in trainings.items()}
    dots = [dot for panel in shown.values() for dot in panel]
    seconds = max(1.0, *(dot.seconds for dot in dots))
    last = max(1, *(dot.epoch.number for dot in dots))
    sizes = sorted({dot.epoch.world_size for dot in dots})
    colours = {size: COLOURS[index % len(COLOURS)] for index, size in enumerate(sizes)}
    bottom = TOP + len(shown) * (PANEL + BETWEEN) - BETWEEN
    height = bottom + BOTTOM

    def x(at: float) -> float:
        return LEFT + at / seconds * (WIDTH - LEFT - RIGHT)

    def panel(top: float, name: str, drawn: list[_Dot]) -> Iterator[str]:
        def y(number: float) -> float:
            return top + PANEL - number / last * (PANEL - 12)

        yield f'<text x="{LEFT}" y="{top - 8:.0f}" fill="#1f2328">{name}</text>'
        yield f'<path d="M{LEFT} {top}V{top + PANEL}H{WIDTH - RIGHT}" fill="none" stroke="#8c959f"/>'
        for number in range(0, last + 1, 5):
            yield f'<text x="{LEFT - 8}" y="{y(number) + 4:.1f}" text-anchor="end">{number}</text>'
        for dot in drawn:
            colour = colours[dot.epoch.world_size]
            yield f'<circle cx="{x(dot.seconds):.1f}" cy="{y(dot.epoch.number):.1f}" r="4" fill="{colour}"/>'

    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
            ' font-size="13" fill="#57606a">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            f'<text x="{LEFT}" y="18" font-size="15" fill="#1f2328">{title}</text>',
            *(
                f'<circle cx="{LEFT + 4 + 130 * i}" cy="38" r="4" fill="{colours[size]}"/>'
                f'<text x="{LEFT + 14 + 130 * i}" y="42">{size} processes</text>'
                for i, size in enumerate(sizes)
            ),
            *(
                line
                for i, (name, drawn) in enumerate(shown.items())
                for line in panel(TOP + i * (PANEL + BETWEEN), name, drawn)
            ),
            *(
                f'<text x="{x(s):.1f}" y="{bottom + 18}" text-anchor="middle">{s} s</text>'
                for s in range(0, int(seconds) + 1, 10)
            ),
            f'<text x="{WIDTH - RIGHT}" y="{height - 6}" text-anchor="end">time since the first epoch</text>',
            f'<text x="14" y="{(TOP + bottom) / 2:.0f}" transform="rotate(-90 14 {(TOP + bottom) / 2:.0f})"'
            ' text-anchor="middle">epoch</text>',
            "</svg>\n",
        ]
    )


class _Dot:
    """An epoch, and how many seconds after the first one it was done."""

    def __init__(self, first: Epoch, epoch: Epoch) -> None:
        self.epoch, self.seconds = epoch, epoch.time - first.time
