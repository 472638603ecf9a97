"""Which pods of a job were evicted for a foreign pod, although the job's status does not say so (203)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from elastic_api.pod_names import parse_pod_name
from elastic_api.status import JobStatus, PodStatus
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.read.foreign.reservation import CONDITION, Reservation
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.unwritten_evictions import unwritten_evictions
from tests.cluster_unit.build import pod
from tests.plan.jobs import make_pod

NOW = 1_800_000_000.0
CONTAINER = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
WORKER = PodStatus(name="toy-worker-0", uid="uid-worker-0", role="worker", node="n1", phase="Running")
MASTER = PodStatus(name="toy-master-0", uid="uid-master-0", role="master", node="n1", phase="Running")


def ledger_with(*victims: str, bound_to: str = "") -> Ledger:
    """The pod `owners/notebook`, for which these pods (uids) are evicted."""
    ledger = Ledger(job_of=lambda _: None, parse=parse_pod_name)
    message = msgspec.json.encode(Reservation("n1", NOW - 5, NOW + 30, victims=victims)).decode()
    spec: dict[str, Any] = {"containers": [CONTAINER], "schedulerName": "default-scheduler"}
    if bound_to:
        spec["nodeName"] = bound_to
    status = {
        "conditions": [{"type": CONDITION, "status": "True", "message": message}],
        "nominatedNodeName": "" if bound_to else "n1",
    }
    ledger.pod_changed(None, pod("notebook", namespace="owners", uid="n", phase="Pending", spec=spec, status=status))
    return ledger


def found(ledger: Ledger, *listed: PodStatus, pods: tuple[OwnPod, ...] = (make_pod("master-0"),)) -> dict[str, str]:
    return dict(unwritten_evictions(JobStatus(pods=list(listed or (MASTER, WORKER))), pods, ledger))


@pytest.mark.parametrize("bound_to", ["", "n1"])
def test_a_victim_that_is_gone_was_evicted_for_the_pod_whose_reservation_names_it(bound_to: str) -> None:
    assert found(ledger_with("uid-worker-0", bound_to=bound_to)) == {"uid-worker-0": "owners/notebook"}


def test_a_victim_that_is_being_deleted_counts_as_evicted() -> None:
    pods = (make_pod("master-0"), make_pod("worker-0", deleting_since=NOW))
    assert found(ledger_with("uid-worker-0"), pods=pods) == {"uid-worker-0": "owners/notebook"}


def test_a_victim_that_is_being_drained_was_not_evicted_for_the_foreign_pod() -> None:
    pods = (make_pod("master-0"), make_pod("worker-0", deleting_since=NOW, disrupted="evicted: node n1 is drained"))
    assert found(ledger_with("uid-worker-0"), pods=pods) == {}


def test_a_victim_that_still_runs_was_not_evicted() -> None:
    assert found(ledger_with("uid-worker-0"), pods=(make_pod("master-0"), make_pod("worker-0"))) == {}


def test_another_pod_that_is_lost_on_the_reserved_node_was_not_evicted() -> None:
    assert found(ledger_with("uid-of-another-pod")) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"uid": None},
        {"phase": "Terminating"},
        pytest.param({"phase": "Failed"}, id="it failed, and was deleted for that"),
        pytest.param({"role": "master"}, id="a master that has a successor"),
    ],
)
def test_an_eviction_that_the_status_has_is_not_found_again(change: dict[str, Any]) -> None:
    assert found(ledger_with("uid-worker-0"), MASTER, WORKER.model_copy(update=change)) == {}


def test_a_deleted_foreign_pod_explains_no_loss() -> None:
    ledger = ledger_with("uid-worker-0")
    [waiting] = ledger.waiting_foreign_pods()
    ledger.pod_changed(waiting, None)
    assert found(ledger) == {}
