"""Which pods of a job were evicted for a foreign pod, although the job's status does not say so (203)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elastic_api.pod_names import parse_pod_name
from elastic_api.status import JobStatus, PodStatus
from elastic_operator.read.foreign.reservation import BACKWARDS_SECONDS, CONDITION, Reservation
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.unwritten_evictions import FOUND_SECONDS, unwritten_evictions
from tests.cluster_unit.build import pod
from tests.plan.jobs import make_pod

NOW = 1_800_000_000.0
CONTAINER = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
WORKER = PodStatus(name="toy-worker-0", uid="uid-worker-0", role="worker", node="n1", phase="Running")
MASTER = PodStatus(name="toy-master-0", uid="uid-master-0", role="master", node="n1", phase="Running")


def ledger_with(reservation: Reservation, *, bound_to: str = "") -> Ledger:
    """The pod `owners/notebook` with that reservation."""
    ledger = Ledger(job_of=lambda _: None, parse=parse_pod_name)
    message = json.dumps({"node": reservation.node, "since": reservation.since, "until": reservation.until})
    spec: dict[str, Any] = {"containers": [CONTAINER], "schedulerName": "default-scheduler"}
    if bound_to:
        spec["nodeName"] = bound_to
    status = {
        "conditions": [{"type": CONDITION, "status": "True", "message": message}],
        "nominatedNodeName": "" if bound_to else reservation.node,
    }
    ledger.pod_changed(None, pod("notebook", namespace="owners", uid="n", phase="Pending", spec=spec, status=status))
    return ledger


def found(ledger: Ledger, *listed: PodStatus, pods: tuple[Any, ...] = (make_pod("master-0"),), now: float = NOW):
    return dict(unwritten_evictions(JobStatus(pods=list(listed or (MASTER, WORKER))), pods, ledger, now))


RESERVED = Reservation("n1", since=NOW - 5, until=NOW + 30)


@pytest.mark.parametrize("bound_to", ["", "n1"])
def test_pod_whose_node_is_reserved_was_evicted_for_the_pod_that_has_the_reservation(bound_to: str) -> None:
    assert found(ledger_with(RESERVED, bound_to=bound_to)) == {"uid-worker-0": "owners/notebook"}


def test_pod_that_is_being_deleted_counts_as_evicted() -> None:
    pods = (make_pod("master-0"), make_pod("worker-0", deleting_since=NOW))
    assert found(ledger_with(RESERVED), pods=pods) == {"uid-worker-0": "owners/notebook"}


def test_present_pods_were_not_evicted() -> None:
    assert found(ledger_with(RESERVED), pods=(make_pod("master-0"), make_pod("worker-0"))) == {}


@pytest.mark.parametrize(
    "listed",
    [
        WORKER.model_copy(update={"node": "n2"}),
        WORKER.model_copy(update={"node": None}),
        WORKER.model_copy(update={"uid": None}),
        WORKER.model_copy(update={"phase": "Terminating"}),
        pytest.param(WORKER.model_copy(update={"phase": "Failed"}), id="it failed, and was deleted for that"),
        pytest.param(MASTER.model_copy(update={"uid": "older"}), id="a master that has a successor"),
    ],
)
def test_pod_on_another_node_or_with_a_written_end_was_not_evicted_unwritten(listed: PodStatus) -> None:
    assert found(ledger_with(RESERVED), MASTER, listed) == {}


@pytest.mark.parametrize(
    ("reservation", "counts"),
    [
        (Reservation("n1", since=NOW - 100, until=NOW - FOUND_SECONDS + 1), True),
        (Reservation("n1", since=NOW - 100, until=NOW - FOUND_SECONDS), False),
        pytest.param(Reservation("n1", since=NOW + 2, until=NOW + 30), True, id="the last leader's clock was ahead"),
        (Reservation("n1", since=NOW + BACKWARDS_SECONDS + 1, until=NOW + 90), False),
    ],
)
def test_old_reservation_explains_no_loss(reservation: Reservation, counts: bool) -> None:
    assert bool(found(ledger_with(reservation, bound_to="n1"))) is counts


def test_deleted_foreign_pod_explains_no_loss() -> None:
    ledger = ledger_with(RESERVED)
    [waiting] = ledger.waiting_foreign_pods()
    ledger.pod_changed(waiting, None)
    assert found(ledger) == {}
