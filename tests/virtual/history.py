"""Random histories of whole operators: a seed decides the events of jobs, nodes, processes and their lines."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.kit.requests import Refusal, is_a_write
from tests.simulate import random_events as simulated
from tests.simulate import server as kinds
from tests.simulate.facts import place_of, terminating
from tests.simulate.history import BEGINNING, draw_events, note_trace
from tests.simulate.judge import judge, sizes_hold
from tests.simulate.violation import require
from tests.simulate.world import QUIET_SECONDS
from tests.virtual.line import Line
from tests.virtual.replica import Replica
from tests.virtual.world import ProcessWorld, run_world

EVENTS, REST_EVERY = 24, 12
BETWEEN_SECONDS = (0.05, 0.2, 0.2, 1.0, 1.0, 5.0, 20.0)
MOST_SECONDS = 4_000.0
"""The world comes to rest within this time."""


# -- faults of operators ---------------------------------------------------------------------------------------------


def _living(world: ProcessWorld) -> list[Replica]:
    return [replica for replica in world.replicas if replica.lives]


def _one(world: ProcessWorld) -> Replica:
    """A random running replica. If none runs, a new one starts."""
    if not _living(world):
        world.start()
    return world.rng.choice(_living(world))


def operator_is_killed(world: ProcessWorld) -> str:
    """Kill a leader or a standby. Another replica starts, at once or later."""
    replica = _one(world)
    led = replica.leads
    replica.kill()
    _after(world, world.rng.choice((0.0, 1.0, 30.0)), lambda: _make_up(world))
    return f"{replica.name}, which {'leads' if led else 'stands by'}, is killed"


def operator_is_stopped(world: ProcessWorld) -> str:
    """Stop a replica, as a rollout does. Another one starts."""
    replica = _one(world)
    if replica.place.frozen:
        return ""
    led = replica.leads
    replica.stop()
    _after(world, world.rng.choice((0.0, 5.0)), lambda: _make_up(world))
    return f"{replica.name}, which {'leads' if led else 'stands by'}, is stopped"


def operator_freezes(world: ProcessWorld) -> str:
    """Freeze a replica for some seconds."""
    replica, seconds = _one(world), world.rng.choice((2.0, 7.0, 12.0, 20.0, 60.0))
    if replica.place.frozen:
        return ""
    replica.freeze()
    _after(world, seconds, replica.thaw)
    return f"{replica.name}, which {'leads' if replica.leads else 'stands by'}, is frozen for {seconds:g} s"


def _make_up(world: ProcessWorld) -> None:
    """Start a replica if fewer than two run."""
    if len(_living(world)) < 2:
        world.start()


# -- faults of lines -------------------------------------------------------------------------------------------------


FAULTS: dict[str, Callable[[Line, Random], None]] = {
    "is refused": lambda line, _: setattr(line.faults, "refuse", True),
    "drops everything": lambda line, _: setattr(line.faults, "swallow", True),
    "waits": lambda line, _: setattr(line.faults, "stalled", True),
    "is slow": lambda line, rng: setattr(line.faults, "delay", rng.choice((0.3, 1.0, 2.0))),
    "has silent watches": lambda line, _: setattr(line.faults, "silent", lambda request: request.watches),
    "loses answers to writes": lambda line, _: setattr(line.faults, "unanswered", is_a_write),
    "gets 500": lambda line, _: line.faults.refusals.append(Refusal(500)),
    "gets 503 for some": lambda line, rng: line.faults.refusals.append(Refusal(503, times=rng.choice((1, 3, 10)))),
    "gets 429": lambda line, _: line.faults.refusals.append(Refusal(429, is_a_write, retry_after=2)),
    "gets 409": lambda line, rng: line.faults.refusals.append(Refusal(409, is_a_write, times=rng.choice((1, 3)))),
}


def line_fails(world: ProcessWorld) -> str:
    """The line of one replica, or of all, has a fault for some seconds."""
    rng = world.rng
    what, seconds = rng.choice(list(FAULTS)), rng.choice((0.5, 3.0, 8.0, 15.0, 40.0, 120.0))
    hit = world.replicas if rng.random() < 0.3 else [_one(world)]
    for replica in hit:
        FAULTS[what](replica.line, rng)
        _after(world, seconds, replica.line.heal)
    return f"the line of {', '.join(replica.name for replica in hit)} {what} for {seconds:g} s"


def connections_end(world: ProcessWorld) -> str:
    """The connections of one replica end."""
    replica = _one(world)
    replica.line.cut()
    return f"the connections of {replica.name} end"


def server_restarts(world: ProcessWorld) -> str:
    """The API server restarts. It loses its watch history, and all connections end."""
    world.api.forget()
    for replica in world.replicas:
        replica.line.cut()
    return "the API server is restarted"


def watches_fail(world: ProcessWorld) -> str:
    """The watches of one replica get an error, which ends kopf."""
    replica = _one(world)
    replica.line.end_watches(500)
    return f"the watches of {replica.name} are told 500"


def _after(world: ProcessWorld, seconds: float, do: Callable[[], None]) -> None:
    world.later.append((world.clock.passed + seconds, do))


OTHERWISE = (simulated.place_is_upset, simulated.operator_is_replaced, simulated.server_falters, simulated.time_passes)
"""Left out: here the faults of replicas and lines, and virtual time, stand for these events."""
RANDOM_EVENTS: dict[simulated.RandomEvent, int] = {
    **{event: often for event, often in simulated.RANDOM_EVENTS.items() if event not in OTHERWISE},
    operator_is_killed: 8,
    operator_is_stopped: 4,
    operator_freezes: 8,
    line_fails: 24,
    connections_end: 6,
    server_restarts: 4,
    watches_fail: 4,
}


# -- a history -------------------------------------------------------------------------------------------------------


def run_history(seed: int, events: int = EVENTS) -> ProcessWorld:
    """Run the history of that seed; returns the world at its end. An exception has the trace in its notes."""
    trace: list[str] = []

    async def scenario(world: ProcessWorld) -> None:
        trace.extend(beginning(world) for beginning in BEGINNING)  # type: ignore[arg-type]
        world.start()
        world.start()
        for count, _ in enumerate(draw_events(world, RANDOM_EVENTS, trace, events), start=1):
            await _go_on(world, world.rng.choice(BETWEEN_SECONDS))
            sizes_hold(world.server)
            if count % REST_EVERY == 0:
                await come_to_rest(world)

    with note_trace(seed, trace):
        return run_world(seed, scenario)


async def _go_on(world: ProcessWorld, seconds: float) -> None:
    """Let time pass, and run the functions of `world.later` that are due."""
    end = world.clock.passed + seconds
    while world.later and min(world.later, key=lambda one: one[0])[0] <= end:
        due = min(world.later, key=lambda one: one[0])
        world.later.remove(due)
        await world.advance(max(0.0, due[0] - world.clock.passed))
        due[1]()
    await world.advance(max(0.0, end - world.clock.passed))


async def come_to_rest(world: ProcessWorld) -> None:
    """End all faults. When pods no longer change, check that each team has what it is entitled to."""
    while world.later:
        await _go_on(world, 10.0)
    for replica in world.replicas:
        replica.line.heal()
    begun, since, before = world.clock.passed, world.clock.passed, _pods(world)
    while world.clock.passed - since < QUIET_SECONDS:
        await world.advance(5.0)
        now = _pods(world)
        if now != before:
            since, before = world.clock.passed, now
        if world.clock.passed - begun > MOST_SECONDS:
            require(False, f"pods come and go for {MOST_SECONDS:g} s though nothing happens; {world.report()}")
    require(world.leader is not None, f"nobody leads; {world.report()}")
    try:
        judge(world.server, world.rng)
    except AssertionError as error:
        error.add_note(world.report())
        raise


def _pods(world: ProcessWorld) -> list[tuple[str, ...]]:
    pods = world.server.all(kinds.PODS)
    return [(p["metadata"]["uid"], p["status"]["phase"], place_of(p), str(terminating(p))) for p in pods]
