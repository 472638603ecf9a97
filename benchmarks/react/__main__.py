"""`python -m benchmarks.react`: bring everything up, measure, take everything down."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.live.operators import operators, unchanged_passes
from benchmarks.live.place import Place
from benchmarks.react import latencies, place, report, tries, weigh
from benchmarks.react.report import Figures
from benchmarks.react.scenario import NAMESPACE, Scenario
from devcluster import command_line
from devcluster.progress import Progress

REST_SECONDS = 60.0
UNCHANGED_PASSES = 50

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def react(
    name: Annotated[str, typer.Option(help="The cluster's name; it is made for this and taken down.")] = "bench",
    jobs: Annotated[int, typer.Option(help="Jobs.")] = 250,
    pods: Annotated[int, typer.Option(help="Their pods, of one GPU each, all jobs the same number.")] = 1000,
    count: Annotated[int, typer.Option("--tries", help="Tries of each kind.")] = 20,
    replicas: Annotated[int, typer.Option(help="Operators; one leads. Two is the chart's default.")] = 2,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up.")] = False,
) -> None:
    """Measure how fast the operator answers in a full cluster, and what it costs at rest."""
    plan = Scenario(jobs=jobs, pods=pods, tries=count)
    progress = Progress()
    with place.standing(name, plan, replicas=replicas, keep=keep, progress=progress) as standing:
        place.fill(standing, plan, progress)
        figures = measure(standing, plan, progress)
    report.show(figures, Console(width=140, highlight=False))


def measure(standing: Place, plan: Scenario, progress: Progress) -> Figures:
    """Make all tries, then the passes without a change, then measure the operator at rest."""
    jobs = [*plan.roomy_jobs, *plan.full_jobs]
    started = latencies.status_lags(standing.audit.read(), jobs)
    load = os.getloadavg()[0]
    with progress.step(f"{plan.tries} foreign pods are deleted, one by one"):
        react = tries.react(standing, plan)
    with progress.step(f"{plan.tries} jobs are scaled"):
        scale = tries.scale(standing, plan)
    with progress.step(f"{plan.tries} jobs lose a worker"):
        recreate = tries.recreate(standing, plan)
    standing.quiet()
    place.until_statuses_are_true(standing)
    lags = latencies.status_lags(standing.audit.read(), jobs)[len(started) :]
    found = operators(standing)
    with progress.step("changes of jobs without effect"):
        annotated = [(NAMESPACE, job) for job in plan.full_jobs[:UNCHANGED_PASSES]]
        unchanged = unchanged_passes(standing, found[0], jobs=annotated)
    with progress.step(f"{REST_SECONDS:.0f} s of rest"):
        standing.quiet()
        rest = weigh.at_rest(found, seconds=REST_SECONDS)
    return Figures(
        react=react,
        scale=scale,
        recreate=recreate,
        lags=lags,
        start_lags=started,
        unchanged=unchanged,
        rest=rest,
        load=load,
    )


if __name__ == "__main__":
    command_line.run(app, program="bench")
