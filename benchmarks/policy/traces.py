"""The events of a cluster for a day, drawn from a seed, and equal for all policies: jobs, plain pods, losses.

Teams work in bursts: for some hours jobs arrive, for some hours none. Together they request a drawn share of the
cluster, so some days have idle GPUs and some do not. A loss hits a place (a GPU of a node) and the pod that runs there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.policy.model import DELAY_SECONDS, Assumptions, Mode, pace

HOUR = 3600.0
GPUS_PER_NODE = 8
SIZES = {1: 0.25, 2: 0.2, 4: 0.25, 8: 0.2, 16: 0.1}
"""GPUs of a job: most are small, most GPUs are in large ones, as in published traces (Philly, Helios)."""
GPUS_PER_POD = {1: 0.75, 2: 0.15, 4: 0.1}
MEDIAN_SECONDS, SPREAD, LONGEST_SECONDS = HOUR, 1.2, 12 * HOUR
"""A job's time at its wanted size, log-normal."""
BURST_SECONDS = 4 * HOUR
"""The mean length of a team's bursts, and of its pauses."""
GUARANTEED_SHARE = 0.9
"""The guaranteed part of all GPUs."""
PLAIN_SHARE = 0.08
"""The part of the work in pods of one GPU that are no jobs, such as notebooks. They never give GPUs back."""
PLAIN_SECONDS = 2 * HOUR
POD_LOSS_HOURS = 500.0
"""The mean hours of a GPU's use until its pod is lost."""
NODE_LOSS_HOURS, NODE_AWAY_SECONDS = 200.0, HOUR / 2
HIGH_PRIORITY = 0.2


@dataclass(frozen=True, slots=True)
class Team:
    """A team that shares the cluster, and its guaranteed GPUs."""

    name: str
    guaranteed: int


@dataclass(frozen=True, slots=True)
class JobTrace:
    """A job that will arrive. Sizes are in pods of `gpus` GPUs; `work` is in GPU-seconds of one GPU that works alone.

    `wanted` is its size under policies with fixed sizes. It does not grow for `delay` seconds after a change. `slope`:
    see `pace`.
    """

    name: str
    team: str
    arrives: float
    work: float
    wanted: int
    least: int
    most: int
    gpus: int
    priority: int
    mode: Mode
    slope: float
    delay: int

    @property
    def is_elastic(self) -> bool:
        """Whether it has more than one size."""
        return self.least < self.most


@dataclass(frozen=True, slots=True)
class PlainTrace:
    """A pod of one GPU that will arrive, and ends `seconds` after its start."""

    name: str
    team: str
    arrives: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Loss:
    """The pod that holds that GPU of the node at that time is lost."""

    at: float
    node: int
    gpu: int


@dataclass(frozen=True, slots=True)
class Outage:
    """A node is off between these times."""

    at: float
    node: int
    until: float


@dataclass(frozen=True, slots=True)
class Trace:
    """One day of one cluster. `load` is the requested work in GPU-seconds, at the wanted sizes, over the capacity."""

    seed: int
    nodes: int
    horizon: float
    load: float
    teams: tuple[Team, ...]
    jobs: tuple[JobTrace, ...]
    plain: tuple[PlainTrace, ...]
    losses: tuple[Loss, ...]
    outages: tuple[Outage, ...]

    @property
    def gpus(self) -> int:
        """The number of all GPUs."""
        return self.nodes * GPUS_PER_NODE


def draw(seed: int, assumed: Assumptions, *, hours: float = 24.0, most_teams: int = 20) -> Trace:
    """Draw the day of a seed."""
    rng = Random(seed)
    count = rng.randint(2, most_teams)
    nodes, horizon, load = 4 + count, hours * HOUR, rng.uniform(*assumed.load)
    teams = _teams(count, nodes * GPUS_PER_NODE, rng)
    jobs: list[JobTrace] = []
    plain: list[PlainTrace] = []
    guaranteed = sum(team.guaranteed for team in teams)
    for team in teams:
        work = load * nodes * GPUS_PER_NODE * horizon * team.guaranteed / guaranteed
        jobs += _jobs(team, work * (1 - PLAIN_SHARE), horizon, assumed, rng)
        plain += _plain(team, work * PLAIN_SHARE, horizon, rng)
    return Trace(
        seed=seed,
        nodes=nodes,
        horizon=horizon,
        load=load,
        teams=teams,
        jobs=tuple(sorted(jobs, key=lambda job: job.arrives)),
        plain=tuple(sorted(plain, key=lambda pod: pod.arrives)),
        losses=tuple(_losses(nodes, horizon, rng)),
        outages=tuple(_outages(nodes, horizon, rng)),
    )


def _teams(count: int, gpus: int, rng: Random) -> tuple[Team, ...]:
    """Teams with unequal shares; each is guaranteed at least four GPUs."""
    weights = [rng.gammavariate(2.0, 1.0) for _ in range(count)]
    room = int(gpus * GUARANTEED_SHARE) - 4 * count
    return tuple(Team(f"team-{number}", 4 + int(room * weight / sum(weights))) for number, weight in enumerate(weights))


def _bursts(horizon: float, rng: Random) -> list[tuple[float, float]]:
    """The times at which the team works; at least one."""
    found: list[tuple[float, float]] = []
    time = -rng.expovariate(1 / BURST_SECONDS) if rng.random() < 0.5 else rng.expovariate(1 / BURST_SECONDS)
    while time < horizon:
        end = max(time, 0.0) + rng.expovariate(1 / BURST_SECONDS)
        if end > 0:
            found.append((max(0.0, time), min(end, horizon)))
        time = end + rng.expovariate(1 / BURST_SECONDS)
    return found or [(0.0, horizon)]


def _moment(bursts: list[tuple[float, float]], rng: Random) -> float:
    begin, end = rng.choices(bursts, [end - begin for begin, end in bursts])[0]
    return rng.uniform(begin, end)


def _jobs(team: Team, work: float, horizon: float, assumed: Assumptions, rng: Random) -> Iterator[JobTrace]:
    bursts, number = _bursts(horizon, rng), 0
    while work > 0:
        seconds = min(rng.lognormvariate(0.0, SPREAD) * MEDIAN_SECONDS, LONGEST_SECONDS)
        job = _job(team, number, _moment(bursts, rng), seconds, assumed, rng)
        work -= seconds * job.wanted * job.gpus
        number += 1
        yield job


def _job(team: Team, number: int, arrives: float, seconds: float, assumed: Assumptions, rng: Random) -> JobTrace:
    """A job that takes this many seconds at its wanted size."""
    sizes = {size: weight for size, weight in SIZES.items() if size <= team.guaranteed}
    size = rng.choices(list(sizes), list(sizes.values()))[0]
    gpus = rng.choices(list(GPUS_PER_POD), list(GPUS_PER_POD.values()))[0]
    gpus = gpus if size % gpus == 0 else 1
    slope, priority = rng.uniform(0.01, 0.08), 10 * (rng.random() < HIGH_PRIORITY)
    wanted, changes, mode = (
        size // gpus,
        rng.random() < assumed.elastic,
        assumed.modes[int(rng.random() * len(assumed.modes))],
    )
    least, most = max(1, round(wanted * assumed.least)), max(1, round(wanted * assumed.most))
    return JobTrace(
        name=f"{team.name}-job-{number}",
        team=team.name,
        arrives=arrives,
        work=pace(size, slope) * seconds,
        wanted=wanted,
        least=least if changes else wanted,
        most=most if changes else wanted,
        gpus=gpus,
        priority=priority,
        mode=mode if changes and least < most else Mode.FIXED,
        slope=slope,
        delay=assumed.torchrun_delay if mode is Mode.TORCHRUN else DELAY_SECONDS,
    )


def _plain(team: Team, work: float, horizon: float, rng: Random) -> Iterator[PlainTrace]:
    bursts, number = _bursts(horizon, rng), 0
    while work > 0:
        seconds = rng.expovariate(1 / PLAIN_SECONDS)
        work -= seconds
        yield PlainTrace(f"{team.name}-pod-{number}", team.name, _moment(bursts, rng), seconds)
        number += 1


def _losses(nodes: int, horizon: float, rng: Random) -> Iterator[Loss]:
    time, rate = 0.0, nodes * GPUS_PER_NODE / (POD_LOSS_HOURS * HOUR)
    while (time := time + rng.expovariate(rate)) < horizon:
        yield Loss(time, rng.randrange(nodes), rng.randrange(GPUS_PER_NODE))


def _outages(nodes: int, horizon: float, rng: Random) -> Iterator[Outage]:
    time, rate, back = 0.0, nodes / (NODE_LOSS_HOURS * HOUR), [0.0] * nodes
    while (time := time + rng.expovariate(rate)) < horizon:
        node = rng.randrange(nodes)
        if back[node] < time:
            back[node] = time + NODE_AWAY_SECONDS
            yield Outage(time, node, back[node])
