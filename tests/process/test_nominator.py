"""A foreign pod is nominated before any pod is evicted for it, and whatever goes wrong about it is its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from elastic_operator.cluster.errors import ApiError, Unreachable
from elastic_operator.cluster.store import Store
from elastic_operator.loop.reclaim.nominator import Nominator
from elastic_operator.metrics import Metrics
from elastic_operator.plan.facts.decisions import Nomination
from elastic_operator.read.foreign.reservation import CONDITION, Reservation
from tests.cluster_unit.build import pod, pod_dict

NOW = 1_000.0
NODE = "n1"


class Answers:
    """A session whose writes are answered so; `writes` are those it was asked for."""

    def __init__(self, answer: object) -> None:
        self.answer, self.writes = answer, list[str]()

    async def patch(self, path: str, _body: object, **_: object) -> Any:
        self.writes.append(path)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def nominator(session: Answers, *, reserved: float | None = None) -> tuple[Nominator, Metrics, list[str]]:
    """It knows one foreign pod, whose reservation of another node ran out then; the list has its events' reasons."""
    pods, told, metrics = Store[Any](), list[str](), Metrics()
    conditions = []
    if reserved is not None:
        before = Reservation("n2", reserved - 60.0, reserved)
        conditions = [{"type": CONDITION, "status": "True", "message": msgspec.json.encode(before).decode()}]
    pods.observe(pod("owner", phase="Pending", gpus=1, status={"conditions": conditions}))
    events = SimpleNamespace(record=lambda _subject, event: told.append(event.reason))
    made = Nominator(
        session,  # type: ignore[arg-type] # as much of one as is used
        pods,
        keeps_seconds=60.0,
        grace_ceiling=lambda _: 30,
        events=events,  # type: ignore[arg-type]
        metrics=metrics,
        now=lambda: NOW,
        on_change=lambda: None,
    )
    made.plan([Nomination("uid-owner", "a", "owner", NODE, evicts_from={"victim": "a/victim"})])
    return made, metrics, told


async def may_go(made: Nominator) -> bool:
    """Whether the victim job may release its pods."""
    gate = made.steps_before("victim")
    assert gate is not None
    return await gate()


async def test_pods_go_once_the_preemptor_is_nominated() -> None:
    session = Answers(pod_dict("owner", phase="Pending", gpus=1, rv=2))
    made, _, told = nominator(session)
    assert await may_go(made)
    assert (session.writes, told) == (["/api/v1/namespaces/a/pods/owner/status"], ["QuotaReclaimed"])
    assert made.backoff("uid-owner") is None


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
    until, said = made.backoff("uid-owner") or (0.0, "")
    assert until > NOW
    assert said.startswith(why)
    assert (told, errors(metrics)) == ([], 0)


async def test_an_error_about_a_preemptor_is_not_that_of_the_job_that_makes_way() -> None:
    made, metrics, _ = nominator(Answers({"metadata": "odd"}))
    assert not await may_go(made)
    assert made.backoff("uid-owner") is not None
    assert errors(metrics) == 1


async def test_the_end_of_a_reservation_is_told_once_however_often_the_next_one_is_refused() -> None:
    session = Answers(Unreachable("no answer"))
    made, metrics, told = nominator(session, reserved=NOW - 100.0)
    for _ in range(3):
        assert not await may_go(made)
    assert told == []
    session.answer = pod_dict("owner", phase="Pending", gpus=1, rv=2)
    assert await may_go(made)
    assert told == ["ReservationExpired", "QuotaReclaimed"]
    assert metrics.reservations_expired._value.get() == 1


def errors(metrics: Metrics) -> float:
    """Errors of the operator's own about pods."""
    return metrics.internal_errors.labels("pod")._value.get()
