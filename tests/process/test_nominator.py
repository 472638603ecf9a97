"""A foreign pod is nominated before any pod is evicted for it, and whatever goes wrong about it is its own."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from elastic_operator.cluster.errors import ApiError, Unreachable
from elastic_operator.cluster.store import Store
from elastic_operator.loop.reclaim.nominator import Nominator
from elastic_operator.metrics import Metrics
from elastic_operator.plan.facts.decisions import Event, Nomination
from elastic_operator.read.foreign.nomination_backoffs import NominationBackoffs
from elastic_operator.read.foreign.reservation import (
    CONDITION,
    MAX_CHARACTERS,
    MAX_VICTIMS,
    Reservation,
    reservation_of,
)
from elastic_operator.settings import Settings
from tests.cluster_unit.build import pod, pod_dict
from tests.process import test_foreign_pods as gang
from tests.process.test_foreign_pods import World
from tests.process.test_gang_nodes import gang_of_three

NOW = 1_000.0
NODE = "n1"


class Answers:
    """A session whose writes are answered so; `writes` are those it was asked for."""

    def __init__(self, answer: object) -> None:
        self.answer, self.writes, self.bodies = answer, list[str](), list[dict[str, Any]]()

    async def patch(self, path: str, body: dict[str, Any], **_: object) -> Any:
        self.writes.append(path)
        self.bodies.append(body)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class ApiServer(Answers):
    """A session that answers with the pod as it has been written."""

    def __init__(self) -> None:
        super().__init__(None)

    async def patch(self, path: str, body: dict[str, Any], **rest: object) -> Any:
        self.answer = pod_dict("owner", phase="Pending", gpus=1, rv=2, status=body["status"])
        return await super().patch(path, body, **rest)


def nominator_of(
    session: Answers, pods: Store[Any], metrics: Metrics, told: list[Event], now: float = NOW
) -> Nominator:
    """A nominator for these pods; `told` gets its events."""
    return Nominator(
        session,  # type: ignore[arg-type] # as much of one as is used
        pods,
        NominationBackoffs(lambda: now),
        keeps_seconds=60.0,
        grace_ceiling=lambda _: 30,
        events=SimpleNamespace(record=lambda _subject, event: told.append(event)),  # type: ignore[arg-type]
        metrics=metrics,
        now=lambda: now,
        on_change=lambda: None,
    )


def nominator(session: Answers, *, reserved: float | None = None) -> tuple[Nominator, Metrics, list[Event]]:
    """It knows one foreign pod, whose reservation of another node ran out then; the list has its events."""
    pods, told, metrics = Store[Any](), list[Event](), Metrics()
    conditions = []
    if reserved is not None:
        before = Reservation("n2", reserved - 60.0, reserved)
        conditions = [{"type": CONDITION, "status": "True", "message": msgspec.json.encode(before).decode()}]
    pods.observe(waiting := pod("owner", phase="Pending", gpus=1, status={"conditions": conditions}))
    made = nominator_of(session, pods, metrics, told)
    expired: list[Any] = [SimpleNamespace(pod=waiting, reservation=reservation_of(waiting))] if conditions else []
    made.take([Nomination("uid-owner", "a", "owner", NODE, evicts_from={"victim": "a/victim"})], expired=expired)
    return made, metrics, told


def reasons(told: list[Event]) -> list[str]:
    return [event.reason for event in told]


def reserved_by(session: Answers) -> Reservation:
    """The reservation that was written last."""
    (condition,) = session.bodies[-1]["status"]["conditions"]
    return msgspec.json.decode(condition["message"], type=Reservation)


async def may_go(made: Nominator) -> bool:
    """Whether the victim job may release its pods."""
    gate = made.begin_for("victim")
    assert gate is not None
    return await gate()


async def test_pods_go_once_the_preemptor_is_nominated() -> None:
    session = Answers(pod_dict("owner", phase="Pending", gpus=1, rv=2))
    made, _, told = nominator(session)
    assert await may_go(made)
    assert session.writes == ["/api/v1/namespaces/a/pods/owner/status"]
    assert reasons(told) == ["QuotaReclaimed"]
    assert made.backoffs.backoff("uid-owner") is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Unreachable("no answer"), "it has just changed"),
        (ApiError("not now", status=500, reason="InternalError"), "it cannot be nominated: "),
    ],
    ids=["no answer", "refused"],
)
async def test_no_pod_is_evicted_for_a_preemptor_that_cannot_be_nominated(answer: Exception, why: str) -> None:
    made, metrics, told = nominator(Answers(answer))
    assert not await may_go(made)
    until, said = made.backoffs.backoff("uid-owner") or (0.0, "")
    assert until > NOW
    assert said.startswith(why)
    assert (told, errors(metrics)) == ([], 0)


async def test_an_error_about_a_preemptor_is_not_that_of_the_job_that_makes_way() -> None:
    made, metrics, _ = nominator(Answers({"metadata": "odd"}))
    assert not await may_go(made)
    assert made.backoffs.backoff("uid-owner") is not None
    assert errors(metrics) == 1


async def test_the_end_of_a_reservation_is_told_once_however_often_the_next_one_is_refused() -> None:
    session = Answers(Unreachable("no answer"))
    made, metrics, told = nominator(session, reserved=NOW - 100.0)
    for _ in range(3):
        assert not await may_go(made)
    assert told == []
    session.answer = pod_dict("owner", phase="Pending", gpus=1, rv=2)
    assert await may_go(made)
    assert reasons(told) == ["ReservationExpired", "QuotaReclaimed"]
    assert metrics.reservations_expired._value.get() == 1


async def test_a_prolonged_reservation_that_moves_to_another_node_has_not_run_out() -> None:
    """Its written end is over, but the pods on its node are still leaving (145). Then another pod takes the node."""
    world = World()
    world.clear("n2")
    world.pod(nominated="n2", reservation=Reservation("n2", gang.NOW - 60, gang.NOW - 30))
    assert world.look(gang.NOW).reserved == "n2"
    session, told = Answers(pod_dict("p", namespace="team", uid="u", rv=1000)), list[Event]()
    made = nominator_of(session, world.pods, Metrics(), told, gang.NOW)
    made.take([Nomination("u", "team", "p", "n1", reserved="n2")], expired=world.foreign_pods.expired)
    await settled(made)
    assert reasons(told) == ["QuotaReclaimed"]
    assert (reserved_by(session).node, reserved_by(session).avoid) == ("n1", {})


async def test_the_end_of_a_place_that_was_moved_within_its_gang_is_that_of_its_present_node() -> None:
    """g2 keeps its nomination for n2, where its gang mate runs, and has had the mate's place n1 since then (167)."""
    world, late = gang_of_three(), gang.NOW + Settings().reclaim.reservation_seconds
    world.bound(1, "n2", kept="n1")
    assert world.kept()["g2"] == "n1"
    assert world.kept(late)["g2"] == ""
    session, told = Answers(pod_dict("g2", namespace="team", uid="uid-g2", rv=1000)), list[Event]()
    made = nominator_of(session, world.pods, Metrics(), told, late)
    made.take([], expired=[waiting for waiting in world.foreign_pods.expired if waiting.pod.metadata.name == "g2"])
    await settled(made)
    assert [event.message.split(" before")[0] for event in told] == ["kube-scheduler did not bind the pod to n1"]
    assert reserved_by(session).avoid.keys() == {"n1"}


async def test_a_nomination_is_not_renewed_for_a_node_that_the_pod_is_about_to_leave() -> None:
    """Another pod has taken n2. A renewal under way would keep the pod from being nominated for n1 (45)."""
    world = World()
    world.pod(nominated="", reservation=Reservation("n2", gang.NOW, gang.NOW + 30))
    assert world.look(gang.NOW).reserved == "n2"
    session, told = Answers(pod_dict("p", namespace="team", uid="u", rv=1000)), list[Event]()
    made = nominator_of(session, world.pods, Metrics(), told, gang.NOW)
    nomination = Nomination("u", "team", "p", "n1", evicts_from={"victim": "a/victim"}, reserved="n2")
    made.take([nomination], renewable=world.foreign_pods.renewable)
    assert await may_go(made)
    assert reserved_by(session).node == "n1"


async def test_the_nominations_of_all_pods_of_a_gang_begin_with_the_first_one() -> None:
    """Else kube-scheduler binds a pod without a node to the first free one, and another node must be cleared (214)."""
    session, pods = Answers(pod_dict("p0", phase="Pending", gpus=1, rv=2)), Store[Any]()
    for number in range(4):
        pods.observe(pod(f"p{number}", phase="Pending", gpus=1))
    made = nominator_of(session, pods, Metrics(), [])
    gangs = ("x/gang", "x/gang", "x/other", "")
    made.take(
        [
            Nomination(f"uid-p{number}", "a", f"p{number}", f"n{number}", evicts_from={f"v{number}": ""}, gang=gang)
            for number, gang in enumerate(gangs)
        ]
    )
    assert made.begin_for("v0") is not None
    await settled(made)
    assert session.writes == [f"/api/v1/namespaces/a/pods/p{number}/status" for number in (0, 1)]


@pytest.mark.parametrize(("victims", "named"), [(500, 500), (5_000, 5_000), (MAX_VICTIMS + 1, MAX_VICTIMS)])
async def test_a_reservation_whose_victims_are_a_whole_job_is_read_back(victims: int, named: int) -> None:
    pods, uids = Store[Any](), tuple(str(uuid.UUID(int=number)) for number in range(victims))
    pods.observe(pod("owner", phase="Pending", gpus=1))
    made = nominator_of(session := ApiServer(), pods, Metrics(), [])
    made.take([Nomination("uid-owner", "a", "owner", NODE, victims=uids, evicts_from={"victim": "a/victim"})])
    assert await may_go(made)
    reserved = reservation_of(pods.get("uid-owner"))
    assert (reserved.node, reserved.victims) == (NODE, uids[:named])
    (condition,) = session.bodies[-1]["status"]["conditions"]
    assert len(condition["message"]) < MAX_CHARACTERS / 2


async def settled(made: Nominator) -> None:
    """All writes under way are over."""
    await asyncio.gather(*(write.task for write in made._writing.values()))


def errors(metrics: Metrics) -> float:
    """Errors of the operator's own about pods."""
    return metrics.internal_errors.labels("pod")._value.get()


@pytest.mark.parametrize("kind", ["expired", "renewable"])
async def test_a_refused_withdrawal_or_renewal_is_not_repeated_in_the_next_pass(kind: str) -> None:
    """The end of each try wakes the loop, so without a wait the tries would follow each other at once."""
    world, is_over = World(), kind == "expired"
    world.pod(nominated="", reservation=Reservation("n2", gang.NOW - 60, gang.NOW + (-30 if is_over else 30)))
    world.look(gang.NOW)
    session = Answers(ApiError("a policy forbids it", status=500, reason="InternalError"))
    made, waiting = nominator_of(session, world.pods, Metrics(), [], gang.NOW), getattr(world.foreign_pods, kind)
    assert waiting
    for _ in range(3):
        made.take([], **{kind: waiting})
        await settled(made)
    assert len(session.writes) == 1
