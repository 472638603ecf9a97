"""The results: one `Run` for each policy and seed, and their sums with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.live.quantile import quantile
from benchmarks.policy.baselines import FirstCome, Static, WholeJobs
from benchmarks.policy.model import Assumptions, Mode
from benchmarks.policy.ours import Ours
from benchmarks.policy.traces import HOUR, Trace, draw
from benchmarks.policy.world import Policy, World

OURS, WHOLE_JOBS = Ours.name, WholeJobs.name
POLICIES: dict[str, Callable[[Trace], Policy]] = {
    Static.name: lambda _: Static(),
    WholeJobs.name: lambda _: WholeJobs(),
    FirstCome.name: lambda _: FirstCome(),
    Ours.name: Ours,
}
COMPARED = (WHOLE_JOBS, OURS)
HOURS = 8.0
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Run:
    """One day under one policy, up to the horizon, in GPU-seconds, except for `jobs`, `done`, counts and `waits`.

    `useful` is work that counts, in GPU-seconds of one GPU that works alone. `lost` is repeated work, by its cause, and
    the time of GPUs that were held without a step ("stopped"), by the mode of the job.
    """

    policy: str
    seed: int
    capacity: float
    held: float
    useful: float
    lost: dict[str, float]
    lost_by_mode: dict[str, float]
    waits: tuple[float, ...]
    flaps: int
    undone: int
    changes: int
    jobs: int
    done: int


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure, and its interval of 95 % over seeds."""

    value: float
    low: float
    high: float

    def text(self, digits: int = 2) -> str:
        """The text for a table."""
        return f"{self.value:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


@dataclass(frozen=True, slots=True)
class Task:
    """One run to be made."""

    policy: str
    seed: int
    assumed: Assumptions
    hours: float = HOURS
    most_teams: int = 20


def make(task: Task) -> Run:
    """The run."""
    trace = draw(task.seed, task.assumed, hours=task.hours, most_teams=task.most_teams)
    world = World(trace, POLICIES[task.policy](trace), task.assumed).run()
    jobs = [*world.ended, *world.jobs.values()]
    spent = [job.spent for job in jobs]
    lost = {cause: sum(one.undone[cause] for one in spent) for cause in ("change", "loss")}
    watching = world.watching
    return Run(
        policy=task.policy,
        seed=task.seed,
        capacity=trace.gpus * trace.horizon,
        held=sum(one.trained + one.starting + one.stopped for one in spent) + world.plain_seconds,
        useful=sum(job.done for job in jobs) + world.plain_seconds,
        lost={**lost, "stopped": sum(one.stopped for one in spent)},
        lost_by_mode={mode: sum(job.spent.lost for job in jobs if job.trace.mode is mode) for mode in Mode},
        waits=tuple(watching.waits),
        flaps=watching.flaps,
        undone=watching.undone,
        changes=watching.changes,
        jobs=len(trace.jobs),
        done=len(world.ended),
    )


Sum = Callable[[Sequence[Run]], float]


def utilisation(runs: Sequence[Run]) -> float:
    """The share of all GPU-seconds in which the GPU was held."""
    return sum(run.held for run in runs) / sum(run.capacity for run in runs)


def goodput(runs: Sequence[Run]) -> float:
    """The share of all GPU-seconds that became work."""
    return sum(run.useful for run in runs) / sum(run.capacity for run in runs)


def lost_hours(runs: Sequence[Run]) -> float:
    """The GPU-hours lost in a run."""
    return sum(sum(run.lost.values()) for run in runs) / len(runs) / HOUR


def lost_share(runs: Sequence[Run]) -> float:
    """The share of all GPU-seconds that is lost."""
    return sum(sum(run.lost.values()) for run in runs) / sum(run.capacity for run in runs)


def wait(share: float) -> Sum:
    """The quantile of the waits of entitled jobs and pods, in seconds."""
    return lambda runs: quantile((each for run in runs for each in run.waits), share)


def mean(name: str) -> Sum:
    """The mean of a count, per run."""
    return lambda runs: sum(getattr(run, name) for run in runs) / len(runs)


def done(runs: Sequence[Run]) -> float:
    """The share of jobs that ended by the horizon."""
    return sum(run.done for run in runs) / sum(run.jobs for run in runs)


def of(runs: Sequence[Run], policy: str) -> list[Run]:
    """The runs of one policy, by seed."""
    return sorted((run for run in runs if run.policy == policy), key=lambda run: run.seed)


def interval(runs: Sequence[Run], figure: Sum) -> Interval:
    """A figure of one policy's runs, with its interval by drawing as many seeds with replacement."""
    return _interval(list(range(len(runs))), lambda some: figure([runs[index] for index in some]))


def ratio(runs: Sequence[Run], figure: Sum, *, policy: str = OURS, over: str = WHOLE_JOBS) -> Interval:
    """The ratio of a figure of one policy to that of another, both on the same seeds."""
    ours, theirs = of(runs, policy), of(runs, over)
    assert [run.seed for run in ours] == [run.seed for run in theirs], "both were run on the same seeds"

    def over_those(some: Sequence[int]) -> float:
        below = figure([theirs[index] for index in some])
        return figure([ours[index] for index in some]) / below if below else float("inf")

    return _interval(list(range(len(ours))), over_those)


def _interval(seeds: list[int], figure: Callable[[Sequence[int]], float]) -> Interval:
    rng = Random(1)
    drawn = sorted(figure(rng.choices(seeds, k=len(seeds))) for _ in range(RESAMPLES))
    return Interval(figure(seeds), quantile(drawn, 0.025), quantile(drawn, 0.975))
