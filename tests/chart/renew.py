"""Writes golden/ anew from the chart as it is now: `uv run python -m tests.chart.renew`."""

from __future__ import annotations

from tests.chart.rendering import CASES, golden_file, render_case

COMMAND = "uv run python -m tests.chart.renew"


def main() -> None:
    """Render every case into its golden file; the diff is for a person to read."""
    for case in CASES:
        golden_file(case).write_text(render_case(case))


if __name__ == "__main__":
    main()
