"""`python -m benchmarks.policy`: each seed under each policy, the control, and other assumptions, on all cores."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.live.errors import BenchError
from benchmarks.policy import plot, report
from benchmarks.policy.figures import COMPARED, HOURS, POLICIES, Run, Task, make
from benchmarks.policy.variants import BASE, CONTROL, VARIANTS
from benchmarks.torch.report import renew
from devcluster import cache, command_line
from devcluster.progress import Progress

PICTURE = "policy.svg"
_MAIN, _CONTROL = "main", "control"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def policy(
    seeds: Annotated[int, typer.Option(help="Seeds of the comparison and of its control.", min=2)] = 20,
    variants: Annotated[str, typer.Option(help="Other assumptions to try, separated by commas.")] = ",".join(VARIANTS),
    variant_seeds: Annotated[int, typer.Option(help="Seeds of each of those.", min=2)] = 4,
    hours: Annotated[float, typer.Option(help="Hours of virtual time.", min=0.5)] = HOURS,
    workers: Annotated[int, typer.Option(help="Processes; 0 is one for each core.", min=0)] = 0,
    page: Annotated[Path | None, typer.Option(help="A page whose figures are renewed, and its picture.")] = None,
) -> None:
    """Compare the work done under this project's policy and under three simpler ones, in simulated clusters."""
    chosen = _chosen(variants)
    tasks = {_MAIN: [Task(policy, seed, BASE, hours) for seed in range(seeds) for policy in POLICIES]}
    tasks[_CONTROL] = [Task(policy, seed, CONTROL, hours) for seed in range(seeds) for policy in COMPARED]
    for name in chosen:
        assumed = VARIANTS[name].assumed
        tasks[name] = [Task(policy, seed, assumed, hours) for seed in range(variant_seeds) for policy in COMPARED]
    progress = Progress()
    made = _make_all(tasks, workers or os.cpu_count() or 1, progress)
    others = {name: made[name] for name in chosen}
    told = report.markdown(made[_MAIN], made[_CONTROL], others)
    picture = page.with_name(PICTURE) if page else cache.root() / PICTURE
    picture.write_text(plot.svg_of(made[_MAIN]))
    if page:
        renew(page, told, begin=report.RENEWED_BY)
    progress.say(f"as a picture: {picture}")
    print(told)
    print(report.line(made[_MAIN], made[_CONTROL], others), flush=True)


def _make_all(tasks: dict[str, list[Task]], workers: int, progress: Progress) -> dict[str, list[Run]]:
    """Make all runs, in any order; the longest begin first."""
    made: defaultdict[str, list[Run]] = defaultdict(list)
    count = sum(map(len, tasks.values()))
    with ProcessPoolExecutor(workers) as pool, progress.step(f"{count} runs in {workers} processes") as step:
        under_way = {pool.submit(make, task): name for name, some in tasks.items() for task in some[::-1]}
        for number, future in enumerate(as_completed(under_way), start=1):
            made[under_way[future]].append(future.result())
            step.detail = f"{number} of {count}"
    return made


def _chosen(names: str) -> Sequence[str]:
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    for name in chosen:
        if name not in VARIANTS:
            raise BenchError(f"there is no variant {name!r}; there are {', '.join(VARIANTS)}")
    return chosen


if __name__ == "__main__":
    command_line.run(app, program="bench")
