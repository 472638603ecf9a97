"""Two replicas, a leader and a standby, and the faults of either."""

from __future__ import annotations

from functools import partial

import pytest

from elastic_operator.cluster.lease import LeaseTiming
from elastic_operator.cluster.objects import ANNOTATION_OPERATOR_NAMESPACE
from elastic_operator.pods.failure_logs import LOG_READ_SECONDS, MAX_LOGS_OF_NAMESPACE, WAIT_SECONDS
from tests.kit.requests import Refusal, Request
from tests.simulate import server as kinds
from tests.virtual.actions import (
    block,
    cut,
    edit,
    end,
    fault,
    freeze,
    has_logged,
    has_status,
    heal,
    job,
    kill,
    leads,
    lives,
    no,
    nodes,
    of,
    on,
    replica,
    settled,
    stop,
    thaw,
    writes,
)
from tests.virtual.line import Line
from tests.virtual.scenario import Scenario, Step, run_scenario
from tests.virtual.world import ProcessWorld

TIMING = LeaseTiming()
SEEN_SECONDS = 0.2
"""The sum of a latency and the poll interval of a scenario."""
POLL_SECONDS = 1.2 * TIMING.poll_seconds + SEEN_SECONDS
"""Whoever stands by looks that often at the latest."""
AFTER_A_DEATH = TIMING.lease_duration_seconds + 2 * POLL_SECONDS
"""The last renewal is seen one look late, and so is its end."""
BEAT_SECONDS = 5
"""So long before its loop stood still it may have beaten last."""
FIRST, SECOND = 0, 1
JOBS, PODS = ("toy", "other"), ("master-0", "worker-0", "worker-1")

BEGIN: Scenario = (
    Step("the first leads", (nodes(2, 8), replica()), (leads(FIRST),), within_seconds=1),
    Step(
        "a job runs",
        (replica(), job(big=2)),
        (settled("toy", 2), no(leads(SECOND))),
        within_seconds=2,
        never=(writes(SECOND),),
    ),
    Step(
        "it stays so",
        expect=(settled("toy", 2), leads(FIRST), lives(SECOND)),
        hold_seconds=120,
        never=(writes(SECOND),),
    ),
)


def renews(request: Request) -> bool:
    """Whether it writes the lease."""
    return request.of_lease and request.writes


def refuse_renewals(line: Line, *, times: int | None = None) -> None:
    """The next `times` of them are; all, where no number is given."""
    line.faults.refusals.append(Refusal(500, where=renews, times=times))


def reads_a_log(request: Request) -> bool:
    """Whether it asks for the log of a pod."""
    return request.path.endswith("/log")


def is_under_way(world: ProcessWorld) -> bool:
    """Whether the leader sent a write that was not answered yet."""
    return any(not entry.status for entry in world.replicas[FIRST].writes(since=world.step_began))


WRITE_UNDER_WAY: Scenario = (
    *BEGIN,
    Step(
        "a write is under way, and of pods it hears nothing any more",
        (fault(FIRST, unseen=of("pods"), delay=2.0), edit("toy", maxReplicas=6)),
        (is_under_way,),
        within_seconds=3,
    ),
)
WAKES_UP: Scenario = (
    Step("the job grows", expect=(settled("toy", 6),), within_seconds=3),
    Step("and once more", (edit("toy", maxReplicas=8),), (settled("toy", 8),), within_seconds=2),
    Step("it stays so", expect=(settled("toy", 8),), hold_seconds=30, never=(writes(FIRST),)),
    Step(
        "the first wakes", (thaw(FIRST),), (has_logged(FIRST, "standing by"),), within_seconds=3, never=(writes(FIRST),)
    ),
    Step(
        "and stands by",
        expect=(has_logged(FIRST, "leading as", times=1), has_logged(SECOND, "leading as", times=1), leads(SECOND)),
        hold_seconds=120,
        never=(writes(FIRST),),
    ),
    Step(
        "it leads again",
        (heal(FIRST), kill(SECOND)),
        (has_logged(FIRST, "leading as", times=2),),
        within_seconds=AFTER_A_DEATH,
    ),
    Step(
        "and grows the job",
        (edit("toy", maxReplicas=9),),
        (settled("toy", 9), has_status("toy", restarts=0)),
        within_seconds=2,
    ),
)


def another_installation_is_older(world: ProcessWorld) -> None:
    """A priority class says that the operator of this cluster is another one."""
    meta = {"name": "first", "annotations": {ANNOTATION_OPERATOR_NAMESPACE: "elsewhere"}}
    world.server.create(kinds.PRIORITY_CLASSES, {"metadata": meta, "value": 1})


def knows_the_older_one(world: ProcessWorld) -> bool:
    """Whether the leader has heard of it."""
    process = world.replicas[FIRST].process
    return process is not None and process.installation.elsewhere() != ""


SCENARIOS: dict[str, Scenario] = {
    "a leader that is stopped while it stands down still hands over": (
        *BEGIN,
        Step(
            "its events are not answered",
            (fault(FIRST, unanswered=of("events")), edit("toy", maxReplicas=4)),
            (settled("toy", 4),),
            within_seconds=2,
            hold_seconds=1,
        ),
        Step(
            "it stands down",
            (another_installation_is_older,),
            (knows_the_older_one,),
            within_seconds=1,
            never=(has_logged(FIRST, "lease released"),),
        ),
        Step(
            "and is stopped", (stop(FIRST),), (no(lives(FIRST)), has_logged(FIRST, "lease released")), within_seconds=6
        ),
    ),
    "a leader that has stood down reads no more logs": (
        *BEGIN,
        Step("jobs run", (edit("toy", maxReplicas=3), job("other", big=3)), (settled("toy", 3), settled("other", 3))),
        Step(
            "more logs than are read at once are not answered",
            (fault(FIRST, unanswered=reads_a_log), end(1, *(f"{job}-{pod}" for job in JOBS for pod in PODS))),
            (lambda world: len(world.replicas[FIRST].line.requests(where=reads_a_log)) == MAX_LOGS_OF_NAMESPACE,),
            within_seconds=1,
        ),
        Step(
            "it stands down",
            (another_installation_is_older,),
            (has_logged(FIRST, "not leading any more"),),
            within_seconds=1,
        ),
        Step(
            "the next logs would be read now",
            expect=(lambda world: not world.replicas[FIRST].line.requests(since=world.step_began, where=reads_a_log),),
            hold_seconds=WAIT_SECONDS + LOG_READ_SECONDS,
        ),
    ),
    "when the leader is killed the other goes on": (
        *BEGIN,
        Step(
            "the other leads",
            (kill(FIRST), edit("toy", maxReplicas=4)),
            (leads(SECOND),),
            not_before_seconds=TIMING.lease_duration_seconds - TIMING.renew_seconds,
            within_seconds=AFTER_A_DEATH,
            never=(writes(FIRST),),
        ),
        Step(
            "the job grows once", expect=(settled("toy", 4), has_status("toy", resizes=1, restarts=0)), hold_seconds=60
        ),
    ),
    "a leader that is stopped hands over before its lease ends": (
        *BEGIN,
        Step("it ends", (stop(FIRST),), (no(lives(FIRST)), has_logged(FIRST, "lease released")), within_seconds=1),
        Step(
            "the other leads",
            expect=(leads(SECOND),),
            within_seconds=POLL_SECONDS,
            never=(writes(FIRST),),
        ),
        Step("the job grows", (edit("toy", maxReplicas=4),), (settled("toy", 4),), within_seconds=2, hold_seconds=60),
    ),
    "a frozen leader writes nothing when it is thawed": (
        *WRITE_UNDER_WAY,
        Step(
            "the other leads",
            (freeze(FIRST), fault(FIRST, delay=0.0)),
            (leads(SECOND),),
            within_seconds=AFTER_A_DEATH,
            never=(writes(FIRST),),
        ),
        *WAKES_UP,
    ),
    "a leader that is frozen for less than the lease goes on leading": (
        *BEGIN,
        Step(
            "nothing happens", (freeze(FIRST),), hold_seconds=TIMING.renew_deadline_seconds - TIMING.renew_seconds - 1
        ),
        Step(
            "it leads",
            (thaw(FIRST), edit("toy", maxReplicas=3)),
            (leads(FIRST), settled("toy", 3)),
            within_seconds=2,
            hold_seconds=60,
        ),
        Step(
            "nobody else did",
            expect=(has_logged(SECOND, "leading as", times=0), has_logged(FIRST, "leading as", times=1)),
        ),
    ),
    "a leader whose loop stands still for longer than its lease leads on": (
        *BEGIN,
        Step(
            "it holds the lease",
            (block(FIRST), edit("toy", maxReplicas=3)),
            expect=(leads(FIRST),),
            hold_seconds=2 * TIMING.lease_duration_seconds,
            never=(leads(SECOND), writes(FIRST)),
        ),
        Step("and goes on", (thaw(FIRST),), (leads(FIRST), settled("toy", 3)), within_seconds=2, hold_seconds=60),
        Step(
            "nobody else did",
            expect=(has_logged(SECOND, "leading as", times=0), has_logged(FIRST, "leading as", times=1)),
        ),
    ),
    "a leader whose loop does not go on is followed": (
        *WRITE_UNDER_WAY,
        Step(
            "the other leads",
            (block(FIRST), fault(FIRST, delay=0.0)),
            (leads(SECOND), has_logged(FIRST, "lease given up")),
            not_before_seconds=TIMING.stuck_seconds,
            within_seconds=TIMING.stuck_seconds + BEAT_SECONDS + TIMING.renew_seconds + AFTER_A_DEATH,
            never=(writes(FIRST),),
        ),
        *WAKES_UP,
    ),
    "a leader that loses its lease while its loop stands still hears of it before it writes": (
        *WRITE_UNDER_WAY,
        Step(
            "the other leads",
            (block(FIRST), fault(FIRST, delay=0.0), on(FIRST, refuse_renewals)),
            (leads(SECOND), has_logged(FIRST, "lease lost")),
            within_seconds=AFTER_A_DEATH,
            never=(writes(FIRST),),
        ),
        *WAKES_UP,
    ),
    "a leader that hears nothing stops before anybody may take over": (
        *BEGIN,
        Step(
            "it leads no more",
            (fault(FIRST, swallow=True),),
            (no(leads(FIRST)),),
            within_seconds=TIMING.renew_deadline_seconds + SEEN_SECONDS,
            not_before_seconds=TIMING.renew_deadline_seconds - TIMING.renew_seconds - SEEN_SECONDS,
            never=(leads(SECOND),),
        ),
        Step(
            "the other leads",
            expect=(leads(SECOND),),
            within_seconds=AFTER_A_DEATH - TIMING.renew_deadline_seconds + TIMING.renew_seconds,
        ),
        Step(
            "the first stands by",
            (heal(FIRST), cut(FIRST)),
            (leads(SECOND),),
            hold_seconds=120,
            never=(writes(FIRST), leads(FIRST)),
        ),
    ),
    "one renewal that fails costs nothing": (
        *BEGIN,
        Step(
            "a renewal is refused",
            (on(FIRST, partial(refuse_renewals, times=1)),),
            (lambda world: world.replicas[FIRST].line.requests(since=world.step_began, where=renews),),
            within_seconds=TIMING.renew_seconds + SEEN_SECONDS,
        ),
        Step("it leads on", expect=(leads(FIRST),), hold_seconds=60, never=(leads(SECOND),)),
    ),
    "a lease that somebody deletes is made again by who leads": (
        *BEGIN,
        Step(
            "it is there again",
            (lambda world: world.server.remove("leases", world.server.all("leases")[0]),),
            (lambda world: world.fencing_checker.holder() == "r1",),
            within_seconds=TIMING.renew_seconds + SEEN_SECONDS,
            never=(leads(SECOND),),
        ),
        Step("it leads on", expect=(leads(FIRST),), hold_seconds=60, never=(leads(SECOND),)),
    ),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SCENARIOS)
def test_standby_takes_over_after_any_fault_of_the_leader(name: str, seed: int) -> None:
    run_scenario(SCENARIOS[name], seed)
