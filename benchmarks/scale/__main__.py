"""`python -m benchmarks.scale`: bring everything up, measure, take everything down."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.live.errors import BenchError
from benchmarks.live.operators import operators, stop, unchanged_passes
from benchmarks.live.place import Place, standing
from benchmarks.reclaim.scenario import GPUS_PER_NODE
from benchmarks.scale import (
    churn,
    churned,
    fill,
    invariants,
    plain,
    plot,
    report,
    rest,
    rest_report,
    single,
    takeover,
)
from benchmarks.scale.churned import Churned
from benchmarks.scale.plain import Objects
from benchmarks.scale.report import Crowd, Figures
from benchmarks.scale.scenario import NAMESPACE, Scenario
from benchmarks.scale.single import Beside
from benchmarks.torch.report import renew
from devcluster import cache, command_line
from devcluster.progress import Progress

POLICY = Path(__file__).parent / "audit-policy.yaml"
PICTURE = "performance.svg"
SCHEDULER_FLAGS = ("--kube-api-qps=1000", "--kube-api-burst=2000")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def scale(
    name: Annotated[str, typer.Option(help="The cluster's name; it is made for this and taken down.")] = "bench",
    jobs: Annotated[
        int, typer.Option(help="Jobs created at once; a quarter, half and twice as many are measured, too.")
    ] = 200,
    size: Annotated[int, typer.Option(help="Pods of each job, with one GPU each.")] = 4,
    tries: Annotated[int, typer.Option(help="Tries of each single change.")] = 20,
    replicas: Annotated[int, typer.Option(help="Operators; one leads.", min=2)] = 2,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up.")] = False,
    minutes: Annotated[float, typer.Option("--churn", help="Minutes for which jobs start and end.", min=0)] = 0,
    rate: Annotated[
        float, typer.Option(help="Pods that come a second meanwhile; nothing else is measured then.", min=0)
    ] = 0,
    page: Annotated[Path | None, typer.Option(help="A page whose figures are renewed, and its picture.")] = None,
    at_rest: Annotated[int, typer.Option("--rest", help="Pods of jobs at rest: only these are measured then.")] = 0,
    others: Annotated[int, typer.Option(help="Foreign pods in addition to those at rest.")] = 0,
) -> None:
    """Measure how fast many jobs start that are created at once, compared with a plain client, and how that grows."""
    if rate and not minutes:
        raise BenchError(f"rate={rate:g}: write --churn MINUTES, too")
    progress = Progress()
    if at_rest:
        resting = run_rest(rest.Plan(at_rest, others, size), name=name, replicas=replicas, keep=keep, progress=progress)
        rest_report.show(resting, page)
        return
    plan = Scenario(jobs=jobs, size=size, tries=tries)
    figures, came, broken = run(
        plan, name=name, replicas=replicas, keep=keep, progress=progress, minutes=minutes, rate=rate
    )
    page = None if broken else page
    if figures:
        told = report.markdown(figures)
        picture = page.with_name(PICTURE) if page else cache.root() / PICTURE
        picture.write_text(plot.svg_of(figures))
        if page:
            renew(page, told, begin=report.RENEWED_BY)
        progress.say(f"as a picture: {picture}")
        print(told)
    if came:
        if page:
            renew(page, came.markdown(), begin=churned.RENEWED_BY)
        print(f"\n{came.markdown()}")
    print(report.line(figures, came.summary() if came else {}), flush=True)
    invariants.must_hold(broken)


def run(
    plan: Scenario,
    *,
    name: str,
    replicas: int,
    keep: bool,
    progress: Progress,
    minutes: float = 0.0,
    rate: float = 0.0,
) -> tuple[Figures | None, Churned | None, list[invariants.Violation]]:
    """Measure everything in a cluster of that name; returns figures and violations. Raises BenchError.

    Jobs are created and end for that many minutes, if any. With a rate of pods a second, nothing else is measured.
    """
    with standing(
        name, audited=POLICY, replicas=replicas, keep=keep, progress=progress, scheduler_flags=SCHEDULER_FLAGS
    ) as place:
        place.add_nodes(plan.nodes, gpus=GPUS_PER_NODE, progress=progress)
        place.create_namespace(NAMESPACE)
        figures = None if rate else measure(place, plan, replicas, progress)
        if figures and minutes:
            fill.clear(place)
            churn.start_operators(place, replicas)
            rate = churn.SHARE_OF_PLAIN * figures.crowd.pods / figures.same_objects.created_seconds
        came = churn.churn(place, plan, seconds=60 * minutes, rate=rate, progress=progress) if minutes else None
        with progress.step("what must hold at every moment, in the log of all writes"):
            place.quiet()
            writes, unsure = place.audit.read(), place.audit.unsure
            broken = invariants.violations(writes, unsure=unsure, gpus=GPUS_PER_NODE, most=plan.size)
        return figures, came, broken


def run_rest(plan: rest.Plan, *, name: str, replicas: int, keep: bool, progress: Progress) -> rest.Resting:
    """Measure many pods at rest, in a cluster of that name."""
    with standing(
        name, audited=POLICY, replicas=replicas, keep=keep, progress=progress, scheduler_flags=SCHEDULER_FLAGS
    ) as place:
        rest.fill(place, plan, progress)
        return rest.measure(place, plan, replicas, progress)


def measure(place: Place, plan: Scenario, replicas: int, progress: Progress) -> Figures:
    """Measure the crowds from the smallest to the largest, the operator's end and start, then the plain client."""
    load = os.getloadavg()[0]
    crowds = []
    objects: dict[str, Objects] = {}
    beside: list[Beside] = []
    for jobs in plan.crowds:
        crowds.append(_crowd(place, plan, jobs, progress))
        if jobs == plan.jobs:
            objects = plain.recorded(place)
            beside = _beside_bare_client(place, plan, objects, progress)
        if jobs != plan.crowds[-1]:
            fill.clear(place)
    *_, one, two, three = plan.names(plan.crowds[-1])
    killed, stopped = takeover.after_both(place, one, two, replicas, progress)
    with progress.step("an operator starts"):
        started = takeover.after_start(place, three)
    with progress.step("all jobs and the operator are deleted"):
        fill.clear(place)
        stop(place)
    with progress.step(f"{plan.jobs} jobs and all that belongs to them, by a plain client"):
        same_objects = plain.same_objects(place, plan, objects)
        fill.clear(place)
    with progress.step("only the pods, by a plain client"):
        pods_only = plain.pods_only(place, plan, objects)
    lost, scaled, freed = beside
    return Figures(
        crowds=crowds,
        main=plan.jobs,
        same_objects=same_objects,
        pods_only=pods_only,
        lost=lost,
        scaled=scaled,
        freed=freed,
        killed_s=killed,
        stopped_s=stopped,
        start_s=started,
        load=load,
    )


def _beside_bare_client(place: Place, plan: Scenario, objects: dict[str, Objects], progress: Progress) -> list[Beside]:
    """The answers to lost pods, jobs that are scaled up, and freed GPUs. Each job has one of these changes at most."""
    tries, names = plan.tries, plan.names(plan.jobs)
    *_, (_, body) = objects[names[-1]].pods
    pod = single.unpinned(body)
    with progress.step(f"{tries} jobs lose a worker, {tries} are scaled up, {tries} GPUs become free for others"):
        return [
            single.lost(place, pod, names[tries : 2 * tries]),
            single.scaled(place, plan, pod, names[-tries:]),
            single.freed(place, plan, pod, progress),
        ]


def _crowd(place: Place, plan: Scenario, jobs: int, progress: Progress) -> Crowd:
    leader, names = operators(place)[0], plan.names(jobs)
    with progress.step(f"{jobs} jobs of {plan.size} pods at once"):
        filled = fill.by_operator(place, plan, jobs, leader)
    with progress.step(f"{plan.tries} of them lose a worker, and change without effect"):
        lost = single.lost_by_operator(place, names[: plan.tries])
        place.quiet()
        unchanged = unchanged_passes(place, leader, jobs=[(NAMESPACE, name) for name in names[: plan.tries]])
    return Crowd(fill=filled, lost=lost, unchanged=unchanged)


if __name__ == "__main__":
    command_line.run(app, program="bench")
