"""Writes golden/ anew from the chart as it is now: `make golden`."""

from __future__ import annotations

from tests.chart.rendering import CASES, golden_file, render_case

COMMAND = "make golden"


def main() -> None:
    """Render every case into its golden file; the diff is for a person to read."""
    for case in CASES:
        golden_file(case).write_text(render_case(case))


if __name__ == "__main__":
    main()
