"""Two replicas: one leads, the other stands by. What may become of either, and what must not come of that."""

from __future__ import annotations

from functools import partial

import pytest

from elastic_operator.cluster.lease import LeaseTiming
from elastic_operator.cluster.objects import ANNOTATION_OPERATOR_NAMESPACE
from tests.kit.requests import Refusal, Request
from tests.simulate import server as kinds
from tests.virtual.deeds import (
    block,
    cut,
    edit,
    fault,
    freeze,
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
    says,
    settled,
    stop,
    thaw,
    writes,
)
from tests.virtual.line import Line
from tests.virtual.story import Row, Story, tell
from tests.virtual.world import ProcessWorld

TIMING = LeaseTiming()
SEEN_SECONDS = 0.2
"""What a latency and the poll of a story come to."""
POLL_SECONDS = 1.2 * TIMING.poll_seconds + SEEN_SECONDS
"""Whoever stands by looks that often at the latest."""
AFTER_A_DEATH = TIMING.lease_duration_seconds + 2 * POLL_SECONDS
"""The last renewal is seen one look late, and so is its end."""
BEAT_SECONDS = 5
"""So long before its loop stood still it may have beaten last."""
FIRST, SECOND = 0, 1

BEGIN: Story = (
    Row("the first leads", (nodes(2, 8), replica()), (leads(FIRST),), within=1),
    Row(
        "a job runs", (replica(), job(big=2)), (settled("toy", 2), no(leads(SECOND))), within=2, never=(writes(SECOND),)
    ),
    Row("it stays so", comes=(settled("toy", 2), leads(FIRST), lives(SECOND)), stays=120, never=(writes(SECOND),)),
)


def renews(request: Request) -> bool:
    """Whether it writes the lease."""
    return request.of_lease and request.writes


def refuse_renewals(line: Line, *, times: int | None = None) -> None:
    """The next `times` of them are; all, where no number is given."""
    line.faults.refusals.append(Refusal(500, where=renews, times=times))


def is_under_way(world: ProcessWorld) -> bool:
    """Whether the leader sent a write that was not answered yet."""
    return any(not entry.status for entry in world.replicas[FIRST].writes(since=world.row_began))


WRITE_UNDER_WAY: Story = (
    *BEGIN,
    Row(
        "a write is under way, and of pods it hears nothing any more",
        (fault(FIRST, unseen=of("pods"), delay=2.0), edit("toy", maxReplicas=6)),
        (is_under_way,),
        within=3,
    ),
)
WAKES_UP: Story = (
    Row("the job grows", comes=(settled("toy", 6),), within=3),
    Row("and once more", (edit("toy", maxReplicas=8),), (settled("toy", 8),), within=2),
    Row("it stays so", comes=(settled("toy", 8),), stays=30, never=(writes(FIRST),)),
    Row("the first wakes", (thaw(FIRST),), (says(FIRST, "standing by"),), within=3, never=(writes(FIRST),)),
    Row(
        "and stands by",
        comes=(says(FIRST, "leading as", times=1), says(SECOND, "leading as", times=1), leads(SECOND)),
        stays=120,
        never=(writes(FIRST),),
    ),
    Row("it leads again", (heal(FIRST), kill(SECOND)), (says(FIRST, "leading as", times=2),), within=AFTER_A_DEATH),
    Row(
        "and grows the job",
        (edit("toy", maxReplicas=9),),
        (settled("toy", 9), has_status("toy", restarts=0)),
        within=2,
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


STORIES: dict[str, Story] = {
    "a leader that is stopped while it stands down still hands over": (
        *BEGIN,
        Row(
            "its events are not answered",
            (fault(FIRST, unanswered=of("events")), edit("toy", maxReplicas=4)),
            (settled("toy", 4),),
            within=2,
            stays=1,
        ),
        Row(
            "it stands down",
            (another_installation_is_older,),
            (knows_the_older_one,),
            within=1,
            never=(says(FIRST, "lease released"),),
        ),
        Row("and is stopped", (stop(FIRST),), (no(lives(FIRST)), says(FIRST, "lease released")), within=6),
    ),
    "when the leader is killed the other goes on": (
        *BEGIN,
        Row(
            "the other leads",
            (kill(FIRST), edit("toy", maxReplicas=4)),
            (leads(SECOND),),
            at_least=TIMING.lease_duration_seconds - TIMING.renew_seconds,
            within=AFTER_A_DEATH,
            never=(writes(FIRST),),
        ),
        Row("the job grows once", comes=(settled("toy", 4), has_status("toy", resizes=1, restarts=0)), stays=60),
    ),
    "a leader that is stopped hands over before its lease ends": (
        *BEGIN,
        Row("it ends", (stop(FIRST),), (no(lives(FIRST)), says(FIRST, "lease released")), within=1),
        Row(
            "the other leads",
            comes=(leads(SECOND),),
            within=POLL_SECONDS,
            never=(writes(FIRST),),
        ),
        Row("the job grows", (edit("toy", maxReplicas=4),), (settled("toy", 4),), within=2, stays=60),
    ),
    "a frozen leader writes nothing when it is thawed": (
        *WRITE_UNDER_WAY,
        Row(
            "the other leads",
            (freeze(FIRST), fault(FIRST, delay=0.0)),
            (leads(SECOND),),
            within=AFTER_A_DEATH,
            never=(writes(FIRST),),
        ),
        *WAKES_UP,
    ),
    "a leader that is frozen for less than the lease goes on leading": (
        *BEGIN,
        Row("nothing happens", (freeze(FIRST),), stays=TIMING.renew_deadline_seconds - TIMING.renew_seconds - 1),
        Row(
            "it leads", (thaw(FIRST), edit("toy", maxReplicas=3)), (leads(FIRST), settled("toy", 3)), within=2, stays=60
        ),
        Row("nobody else did", comes=(says(SECOND, "leading as", times=0), says(FIRST, "leading as", times=1))),
    ),
    "a leader whose loop stands still for longer than its lease leads on": (
        *BEGIN,
        Row(
            "it holds the lease",
            (block(FIRST), edit("toy", maxReplicas=3)),
            comes=(leads(FIRST),),
            stays=2 * TIMING.lease_duration_seconds,
            never=(leads(SECOND), writes(FIRST)),
        ),
        Row("and goes on", (thaw(FIRST),), (leads(FIRST), settled("toy", 3)), within=2, stays=60),
        Row("nobody else did", comes=(says(SECOND, "leading as", times=0), says(FIRST, "leading as", times=1))),
    ),
    "a leader whose loop does not go on is followed": (
        *WRITE_UNDER_WAY,
        Row(
            "the other leads",
            (block(FIRST), fault(FIRST, delay=0.0)),
            (leads(SECOND), says(FIRST, "lease given up")),
            at_least=TIMING.stuck_seconds,
            within=TIMING.stuck_seconds + BEAT_SECONDS + TIMING.renew_seconds + AFTER_A_DEATH,
            never=(writes(FIRST),),
        ),
        *WAKES_UP,
    ),
    "a leader that loses its lease while its loop stands still hears of it before it writes": (
        *WRITE_UNDER_WAY,
        Row(
            "the other leads",
            (block(FIRST), fault(FIRST, delay=0.0), on(FIRST, refuse_renewals)),
            (leads(SECOND), says(FIRST, "lease lost")),
            within=AFTER_A_DEATH,
            never=(writes(FIRST),),
        ),
        *WAKES_UP,
    ),
    "a leader that hears nothing stops before anybody may take over": (
        *BEGIN,
        Row(
            "it leads no more",
            (fault(FIRST, swallow=True),),
            (no(leads(FIRST)),),
            within=TIMING.renew_deadline_seconds + SEEN_SECONDS,
            at_least=TIMING.renew_deadline_seconds - TIMING.renew_seconds - SEEN_SECONDS,
            never=(leads(SECOND),),
        ),
        Row(
            "the other leads",
            comes=(leads(SECOND),),
            within=AFTER_A_DEATH - TIMING.renew_deadline_seconds + TIMING.renew_seconds,
        ),
        Row(
            "the first stands by",
            (heal(FIRST), cut(FIRST)),
            (leads(SECOND),),
            stays=120,
            never=(writes(FIRST), leads(FIRST)),
        ),
    ),
    "one renewal that fails costs nothing": (
        *BEGIN,
        Row(
            "a renewal is refused",
            (on(FIRST, partial(refuse_renewals, times=1)),),
            (lambda world: world.replicas[FIRST].line.requests(since=world.row_began, where=renews),),
            within=TIMING.renew_seconds + SEEN_SECONDS,
        ),
        Row("it leads on", comes=(leads(FIRST),), stays=60, never=(leads(SECOND),)),
    ),
    "a lease that somebody deletes is made again by who leads": (
        *BEGIN,
        Row(
            "it is there again",
            (lambda world: world.server.remove("leases", world.server.all("leases")[0]),),
            (lambda world: world.watchman.holder() == "r1",),
            within=TIMING.renew_seconds + SEEN_SECONDS,
            never=(leads(SECOND),),
        ),
        Row("it leads on", comes=(leads(FIRST),), stays=60, never=(leads(SECOND),)),
    ),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", STORIES)
def test_whatever_becomes_of_one_the_other_goes_on(name: str, seed: int) -> None:
    tell(STORIES[name], seed)
