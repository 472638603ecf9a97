"""The soaks' part of docs/reliability.md, between its two marks, and the plot beside it, from the kept results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from demo.install import REPOSITORY
from tests.soak import results
from tests.soak.plot import svg_of
from tests.soak.results import Result
from tests.soak.trainings import EPOCH_STEPS
from tests.soak.weight import LONG_SECONDS, MOST_GROWTH_MEGABYTES, MOST_MORE_MEGABYTES, WARM_UP_SECONDS

PAGE = REPOSITORY / "docs" / "reliability.md"
PLOT = REPOSITORY / "docs" / "soak.svg"
JUDGED = f"""\
New groups come from edits, too; a pause may be a training that was suspended. A planned change must lose no step, a
fault no more than the {EPOCH_STEPS} steps of an epoch, and none where it may cost nothing. No two groups of a job may
train at a time. Memory is flat: after the first {WARM_UP_SECONDS:.0f} s in which a process leads, or stands by, it
grows by at most {MOST_GROWTH_MEGABYTES:.0f} MB for as long as it does (judged from {LONG_SECONDS:.0f} s on), and the
processes of the second half hold at most {MOST_MORE_MEGABYTES:.0f} MB more than those of the first (median of what
each held at most)."""
BEGIN, END = "<!-- soak: begin -->", "<!-- soak: end -->"


def renew(seeds: Sequence[int]) -> None:
    """Write both, from the last results of these seeds; the plot is the last one's.

    A page without the marks is left as it is.
    """
    found = results.kept(seeds)
    if not found:
        return
    PLOT.write_text(svg_of(found[-1]))
    PAGE.write_text(put_in(PAGE.read_text(), section(found)))


def put_in(page: str, text: str) -> str:
    """The page with this text between its marks, and nothing else of it changed."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}{END}{after}" if begin and end else page


def section(found: Sequence[Result]) -> str:
    """Figures, a column for each seed, and what kinds of fault cost."""
    lines = [
        *_columns(found),
        "",
        "![GPUs per team, processes that train, memory of the operator, and faults over time](soak.svg)",
        "",
        JUDGED,
        "",
        *_rows([results.COSTS, *results.costs(found)]),
    ]
    return "".join(f"{line}\n" for line in lines)


def _columns(found: Sequence[Result]) -> Iterator[str]:
    columns = [dict(results.figures(result)) for result in found]
    head = ("seed", *(str(result.seed) for result in found))
    yield from _rows([head, *((name, *(column[name] for column in columns)) for name in columns[0])])


def _rows(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table, the first row its head."""
    head, *rest = (f"| {' | '.join(cells)} |" for cells in rows)
    yield from (head, "|---" * len(rows[0]) + "|", *rest)
