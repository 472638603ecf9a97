"""`python -m benchmarks.reclaim`: bring everything up, measure, take everything down."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.live.operators import operators, unchanged_passes
from benchmarks.live.place import Place, standing
from benchmarks.reclaim import large, owner, report, small
from benchmarks.reclaim.report import Figures
from benchmarks.reclaim.scenario import Scenario
from devcluster import command_line
from devcluster.progress import Progress

POLICY = Path(__file__).parent / "audit-policy.yaml"
UNCHANGED_PASSES = 50
SCHEDULER_FLAGS = ("--kube-api-qps=1000", "--kube-api-burst=2000")
# The limits on evictions must not affect the result: the Job takes half of the cluster at once.
NO_BRAKES = ("settings.reclaim.maxEvictionsPerDecision=100000", "settings.reclaim.maxEvictionsPerMinute=100000")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def reclaim(
    name: Annotated[str, typer.Option(help="The cluster's name; it is made for this and taken down.")] = "bench",
    nodes: Annotated[int, typer.Option(help="Nodes of 8 GPUs.")] = 500,
    jobs: Annotated[int, typer.Option(help="Jobs, which together fill all GPUs with pods of one GPU.")] = 1000,
    teams: Annotated[
        int, typer.Option(help="Teams the jobs belong to; one more team has half of all guaranteed.")
    ] = 20,
    tries: Annotated[int, typer.Option(help="Tries of each kind.")] = 20,
    gang: Annotated[int, typer.Option(help="Pods of the Job, of 8 GPUs each.")] = 250,
    replicas: Annotated[int, typer.Option(help="Operators; one leads. Two is the chart's default.")] = 2,
    owner_rounds: Annotated[
        int,
        typer.Option(help="How often two pods take GPUs back from a job that trains, for each way to train.", min=0),
    ] = 5,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up.")] = False,
) -> None:
    """Measure how fast a team gets its GPUs back, and whether more is evicted than requested."""
    plan = Scenario(nodes=nodes, jobs=jobs, teams=teams, tries=tries, gang=gang)
    progress, console = Progress(), Console(width=140, highlight=False)
    seen = owner.measure(f"{name}-owner", rounds=owner_rounds, keep=keep, progress=progress) if owner_rounds else None
    report.show(run(plan, name=name, replicas=replicas, keep=keep, progress=progress), seen, console)


def run(plan: Scenario, *, name: str, replicas: int, keep: bool, progress: Progress) -> Figures:
    """Measure everything, in a cluster of that name; BenchError if that fails."""
    with standing(
        name,
        audited=POLICY,
        replicas=replicas,
        keep=keep,
        progress=progress,
        scheduler_flags=SCHEDULER_FLAGS,
        values=NO_BRAKES,
    ) as place:
        return measure(place, plan, progress)


def measure(place: Place, plan: Scenario, progress: Progress) -> Figures:
    """Measure the small cluster first, then the large one, in the same Kubernetes."""
    small.fill(place, progress)
    few = {}
    for pods in (1, 2):
        with progress.step(f"four nodes: {pods} at once, {plan.tries} times"):
            few[pods] = small.tries(place, pods=pods, count=plan.tries)
    small.clear(place)
    large.fill(place, plan, progress)
    leader = operators(place)[0]
    memory = [leader.resident_megabytes()]
    load = os.getloadavg()[0]
    with progress.step("changes of jobs without effect"):
        unchanged = unchanged_passes(place, leader, jobs=plan.job_names[:UNCHANGED_PASSES])
    with progress.step(f"{plan.tries} pods of one GPU, one after the other"):
        single, allocations = large.tries(place, plan, leader)
    memory.append(leader.resident_megabytes())
    gang = large.gang(place, plan, progress)
    memory.append(leader.resident_megabytes())
    highest = leader.highest_resident_megabytes()
    by_hand = large.by_hand(place, plan, progress)
    return Figures(
        large=single,
        small=few,
        gang=gang,
        by_hand=by_hand,
        allocations=allocations,
        unchanged=unchanged,
        resident_megabytes=max(memory),
        highest_megabytes=highest,
        load=load,
    )


if __name__ == "__main__":
    command_line.run(app, program="bench")
