"""The soaks' part of docs/reliability.md, between its two marks, and the plot beside it, from the kept results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from demo.install import REPOSITORY
from tests.soak import results
from tests.soak.faults import COSTLY, FAULT
from tests.soak.plot import svg_of
from tests.soak.results import Result

PAGE = REPOSITORY / "docs" / "reliability.md"
PLOT = REPOSITORY / "docs" / "soak.svg"
BEGIN, END = "<!-- soak: begin -->", "<!-- soak: end -->"
COMMAND = 'make soak MINUTES=30 ARGS="--seed 1 --seed 2 --seed 3 --report"'


def renew(seeds: Sequence[int], page: Path = PAGE, plot: Path = PLOT) -> None:
    """Write both, from the last results of these seeds; the plot is the last one's.

    A page without the marks is left as it is.
    """
    found = results.kept(seeds)
    if not found:
        return
    plot.write_text(svg_of(found[-1]))
    if page.exists():
        page.write_text(put_in(page.read_text(), section(found)))


def put_in(page: str, text: str) -> str:
    """The page with this text between its marks, and nothing else of it changed."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}{END}{after}" if begin and end else page


def section(found: Sequence[Result]) -> str:
    """Figures, a column for each seed, and what kinds of fault cost."""
    lines = [
        f"Renewed by `{COMMAND}`.",
        "",
        *_table(found),
        "",
        "![GPUs per team, processes that train, memory of the operator, and faults over time](soak.svg)",
        "",
        *_costs(found),
    ]
    return "".join(f"{line}\n" for line in lines)


def _table(found: Sequence[Result]) -> Iterator[str]:
    columns = [dict(results.figures(result)) for result in found]
    yield " | ".join(["| seed", *(str(result.seed) for result in found)]) + " |"
    yield "|---" * (len(found) + 1) + "|"
    for name in columns[0]:
        yield " | ".join([f"| {name}", *(column[name] for column in columns)]) + " |"


def _costs(found: Sequence[Result]) -> Iterator[str]:
    """Each kind of fault over all seeds."""
    yield "| fault | times | groups ended until the next fault | steps done again | longest pause of a training |"
    yield "|---|---|---|---|---|"
    for name in sorted({event.name for result in found for event in result.of(FAULT)}):
        events = [(result, event) for result in found for event in result.of(FAULT) if event.name == name]
        changes = [change for result, event in events for _, change in result.changes_in(event)]
        pause = max((change.pause_seconds for change in changes), default=0.0)
        lost = sum(change.lost for change in changes)
        may = "" if name in COSTLY or lost else " (may cost none)"
        yield f"| {name} | {len(events)} | {len(changes)} | {lost}{may} | {pause:.1f} s |"
