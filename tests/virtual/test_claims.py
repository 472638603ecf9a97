"""Whatever became of its job, a live pod is a claim that can be preempted: who is entitled to its GPUs gets them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.requests import makes_a_pod
from tests.simulate import server as kinds
from tests.virtual.deeds import (
    HOME,
    condition,
    edit,
    end,
    heal,
    job,
    kill,
    leads,
    manifest,
    nodes,
    refuse,
    replica,
    settled,
)
from tests.virtual.story import Deed, Fact, Row, Story, tell
from tests.virtual.world import ProcessWorld

OWNER = "red"
GPUS = 8


def team(name: str, guaranteed: int) -> Deed:
    """A team of the namespace of that name, which may borrow without end."""
    spec = {"namespaces": [name], "flavors": [{"name": "a", "guaranteed": guaranteed}]}
    return lambda world: world.server.create(kinds.POLICIES, {"metadata": {"name": name}, "spec": spec})


def owner_comes(world: ProcessWorld) -> None:
    """A job of the team that is guaranteed everything asks for everything."""
    body = manifest("owner", small=GPUS, big=GPUS)
    body["metadata"]["namespace"] = OWNER
    world.server.create(kinds.JOBS, body)


def deleted_with_a_finalizer(name: str) -> Deed:
    """Somebody deletes the job, whose object stays, and so do its pods."""

    def do(world: ProcessWorld) -> None:
        now = world.moments.text()
        world.server.relabel(kinds.JOBS, world.job(name) or {}, finalizers=["a.example/b"], deletionTimestamp=now)

    return do


def has_pods(count: int, name: str = "toy") -> Fact:
    """So many pods of the job stay."""
    return lambda world: len(world.pods(name)) == count


def holds(gpus: int) -> Fact:
    """So many pods of the team that owns nothing have not ended."""

    def look(world: ProcessWorld) -> bool:
        pods = [pod for pod in world.server.all(kinds.PODS) if pod["metadata"]["namespace"] == HOME]
        return sum(pod["status"]["phase"] in ("Pending", "Running") for pod in pods) == gpus

    return look


def borrows(gpus: int = GPUS, **spec: Any) -> Row:
    """A job of the team that is guaranteed nothing runs on so many GPUs."""
    deeds = (nodes(1, GPUS), team(OWNER, GPUS), team(HOME, 0), replica(), job(**{"big": gpus, **spec}))
    return Row("a job borrows", deeds, (settled("toy", gpus),))


def its_owner_gets_all(*before: Deed) -> Row:
    """Within the grace of a pod and some passes."""
    comes = (settled("owner", GPUS), holds(0))
    return Row("the owner asks for its own", (*before, owner_comes), comes, within=30, stays=150)


ANOTHER_LEADER = Row("another one leads", (kill(0), replica()), (leads(1),), within=30)
INVALID = edit("toy", runtime={"mode": "Nonesuch"})
FUTURE = edit("toy", fromTheFuture={"a": 1}, maxReplicas=GPUS)
STORIES: dict[str, Story] = {
    "its spec cannot be read any more": (
        borrows(),
        Row("an edit", (INVALID,), (condition("toy", "Ready", "InvalidSpec", "runtime.mode"), has_pods(8)), stays=150),
        its_owner_gets_all(),
    ),
    "its spec cannot be read any more, and the one who could read it is gone": (
        borrows(),
        Row("an edit", (INVALID,), (condition("toy", "Ready", "InvalidSpec"),)),
        ANOTHER_LEADER,
        Row("it is left to run", comes=(has_pods(8),), stays=150),
        its_owner_gets_all(),
    ),
    "a field of a later release is in its spec": (
        borrows(4),
        Row("it grows all the same", (FUTURE,), (settled("toy", 8), condition("toy", "Ready", "Running"))),
        Row("it is said", comes=(condition("toy", "FieldsIgnored", "NoSuchField", "spec.fromTheFuture"),)),
        ANOTHER_LEADER,
        its_owner_gets_all(),
    ),
    "it is deleted and kept by a finalizer": (
        borrows(),
        Row("deleted", (deleted_with_a_finalizer("toy"),), (has_pods(8),), stays=150),
        its_owner_gets_all(),
    ),
    "it is deleted and kept by a finalizer, and its spec cannot be read": (
        borrows(),
        Row("an edit", (INVALID, deleted_with_a_finalizer("toy")), (has_pods(8),)),
        ANOTHER_LEADER,
        its_owner_gets_all(),
    ),
    "it has ended and its pods are to stay": (
        borrows(cleanPodPolicy="None"),
        Row(
            "its master ends", (end(0, "toy-master-0"),), (condition("toy", "Ready", "Succeeded"), holds(7)), stays=150
        ),
        its_owner_gets_all(),
    ),
    "the API server refuses more of its pods": (
        borrows(4),
        Row(
            "it is to grow",
            (refuse(422, where=makes_a_pod), edit("toy", maxReplicas=GPUS)),
            (condition("toy", "Ready", "InvalidSpec"), has_pods(4)),
            within=30,
        ),
        its_owner_gets_all(heal()),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_borrower_gives_back_what_it_borrowed_whatever_becomes_of_its_job(name: str) -> None:
    tell(STORIES[name], 1)


def test_an_unreadable_job_gives_up_no_more_pods_than_needed_and_creates_none() -> None:
    def one_of_the_owners(world: ProcessWorld) -> None:
        body = manifest("owner", small=3, big=3)
        body["metadata"]["namespace"] = OWNER
        world.server.create(kinds.JOBS, body)

    def deleted(world: ProcessWorld) -> None:
        world.server.remove(kinds.JOBS, world.job("owner") or {})

    story = (
        borrows(),
        Row("an edit", (INVALID,), (condition("toy", "Ready", "InvalidSpec"),)),
        Row("some is asked for", (one_of_the_owners,), (settled("owner", 3), has_pods(5)), within=30, stays=150),
        Row("it is idle again", (deleted,), (has_pods(5),), stays=150),
        Row("the spec is mended", (edit("toy", runtime={"mode": "Torchrun"}),), (settled("toy", 8),)),
    )
    tell(story, 1)


def test_a_job_that_cannot_be_read_ends_when_its_master_does() -> None:
    story = (
        borrows(2),
        Row("an edit", (INVALID,), (condition("toy", "Ready", "InvalidSpec"),)),
        ANOTHER_LEADER,
        Row("its master ends", (end(0, "toy-master-0"),), (condition("toy", "Succeeded", "Succeeded"),)),
        Row("its pods go", comes=(holds(0),), within=90),
    )
    tell(story, 1)


def test_a_field_of_a_later_release_keeps_a_job_from_starting() -> None:
    story = (
        Row("a job comes", (nodes(1, 2), replica(), job(big=2, fromTheFuture=1)), ()),
        Row("it waits", comes=(condition("toy", "Ready", "InvalidSpec", "spec.fromTheFuture"), has_pods(0)), stays=30),
        Row("it is mended", (_without("fromTheFuture"),), (settled("toy", 2),)),
    )
    tell(story, 1)


def _without(field: str) -> Deed:
    def do(world: ProcessWorld) -> None:
        body = world.job("toy") or {}
        world.server.edit(kinds.JOBS, body, {key: value for key, value in body["spec"].items() if key != field})

    return do
