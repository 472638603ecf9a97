"""Random events that make the operator raise an error for one object, and events that end such an error."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulate import server as kinds
from tests.simulate.facts import name_of, waits
from tests.simulate.foreign import foreign_comes
from tests.simulate.policies import OWNERS, PARENT
from tests.simulate.raising import STATIONS
from tests.simulate.random_events import RANDOM_EVENTS, RandomEvent, any_job_comes, edit_job, open_jobs, write_policy
from tests.simulate.world import World

MOST_BROKEN = 3
NEW = 0.4
"""How often it is a new object, rather than one that is known already."""


def something_raises(world: World) -> str:
    """One station begins to raise for one object; a job or a policy is often edited just then, and so read again."""
    if len(world.raising.broken) >= MOST_BROKEN:
        return ""
    station = world.rng.choice(list(STATIONS))
    description = _CHOICES[STATIONS[station].kind](world, station)
    return description and f"{station!r} raises: {description}"


def it_is_mended(world: World) -> str:
    """Nothing raises for one of the objects any more."""
    name = world.rng.choice(world.raising.broken or [""])
    if name:
        world.raising.end(name)
    return name and f"nothing raises for {name} any more"


def _a_job(world: World, station: str) -> str:
    description = any_job_comes(world) if world.rng.random() < NEW else ""
    jobs = [job for job in open_jobs(world) if name_of(job) not in world.server.aside]
    job = jobs[-1] if jobs and description else world.choose(jobs)
    if job is None:
        return ""
    world.raising.begin(name_of(job), station)
    return description or edit_job(world, job)


def _a_pod(world: World, station: str) -> str:
    foreign_comes(world)
    pods = [pod for pod in world.server.all(kinds.PODS) if waits(pod) and name_of(pod) not in world.server.aside]
    pod = world.choose(pods)
    if pod is None:
        return ""
    world.raising.begin(name_of(pod), station)
    return f"pod {name_of(pod)}"


def _a_node(world: World, station: str) -> str:
    node = world.choose([node for node in world.server.all(kinds.NODES) if name_of(node) not in world.server.aside])
    if node is None:
        return ""
    world.raising.begin(name_of(node), station)
    return f"node {name_of(node)}"


def _a_policy(world: World, station: str) -> str:
    name = world.rng.choice((*OWNERS, PARENT))
    if name in world.server.aside:
        return ""
    world.raising.begin(name, station)
    return write_policy(world, name)


_CHOICES: dict[str, Callable[[World, str], str]] = {
    kinds.JOBS: _a_job,
    kinds.PODS: _a_pod,
    kinds.NODES: _a_node,
    kinds.POLICIES: _a_policy,
}
WITH_ERRORS: dict[RandomEvent, int] = {**RANDOM_EVENTS, something_raises: 20, it_is_mended: 12}
