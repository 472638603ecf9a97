"""Whatever stands anywhere in a spec or an annotation: it is refused, or planning and building cope with it."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given

from elastic_api.invalid import InvalidSpecError
from elastic_api.parse import parse_spec
from elastic_api.pod_names import parse_pod_name
from elastic_api.status import JobStatus
from elastic_api.template import fingerprint, nproc_of
from elastic_operator.cluster import objects
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.pod import PodAnnotations
from elastic_operator.cluster.store import Store
from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.node import Node
from elastic_operator.plan.job.demand import demand_of
from elastic_operator.plan.job.observe import observe
from elastic_operator.plan.job.reconcile import reconcile
from elastic_operator.quarantine import Quarantine
from elastic_operator.read.foreign.foreign_pods import ForeignPods
from elastic_operator.read.foreign.nomination_backoffs import NominationBackoffs
from elastic_operator.read.foreign.reservation import reservation_of
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.shapes import Shapes
from elastic_operator.settings import Settings
from elastic_worker import contract
from tests.api.anything import FULL, ODD, places, replaced
from tests.apiserver.input.strategies import HOSTILE, spoilt
from tests.build.objects import make_pod
from tests.cluster_unit.build import bound_claim, owner, pod, stored_job, volume
from tests.plan.jobs import START, make_job

SETTINGS = Settings()
ALLOCATABLE = {"nvidia.com/gpu": 8, "cpu": 64_000, "memory": 2**40, "pods": 110}
NODES = tuple(Node(name, allocatable=ALLOCATABLE, labels={"a": "b", "gpus": "8"}) for name in ("n1", "n2"))
GPU = "nvidia.com/gpu"
BY_DEFAULT = {"schedulerName": "default-scheduler"}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
LACKING = {"conditions": [{**UNSCHEDULABLE, "message": f"0/2 nodes are available: 2 Insufficient {GPU}."}]}
CLAIMS: Store[objects.PersistentVolumeClaim] = Store()
VOLUMES: Store[objects.PersistentVolume] = Store()
CLAIMS.observe(bound_claim("c", volume="v"))
VOLUMES.observe(volume("v"))
ROLES = (contract.ROLE_MASTER, contract.ROLE_WORKER)


def live(body: dict[str, Any], pods: tuple = (), **status: Any) -> None:
    """A pass with that one job and those pods of it: all that is made of its spec, its new pods included."""
    with suppress(InvalidSpecError):
        spec = parse_spec(body)
        prints = {role: fingerprint(spec, role) for role in ROLES}
        job = make_job(pods, spec=spec, status=JobStatus(**status), fingerprints=prints)
        shapes = Shapes(SETTINGS, claims=CLAIMS, volumes=VOLUMES, classes=Store()).shape_of(job)
        seen = observe(job, START)
        demand = demand_of(seen, shapes)
        grant = allocate(AllocationInputs(now=START, nodes=NODES, jobs=(demand,)))[job.uid]
        plan = reconcile(seen, grant, now=START)
        assert plan.status.conditions
        for role in ROLES:
            assert nproc_of(spec, role) >= 1
            assert min(shapes.master.requests.values()) >= 0
            assert make_pod(spec, role=role)["spec"]["containers"]


def test_the_job_with_everything_in_it_is_valid_and_gets_its_pods():
    assert parse_spec(FULL).nproc_per_node == 2
    live(FULL)


@pytest.mark.parametrize("place", places(FULL["spec"]), ids=lambda place: ".".join(map(str, place)) or "spec")
def test_any_json_at_any_place_is_refused_or_can_be_planned_and_built(place: tuple):
    for value in ODD:
        live({**FULL, "spec": replaced(FULL["spec"], place, value)})


@given(spoilt(FULL["spec"]).flatmap(spoilt).flatmap(spoilt))
def test_a_spec_that_is_spoilt_in_three_places_is_refused_or_can_be_planned_and_built(spec: Any):
    live({**FULL, "spec": spec})


RESERVATION = {"node": "n1", "since": 1.0, "until": 2.0, "avoid": {"n1": {"until": 0.0, "times": 1}}}
MEMBERSHIP = {"wish": 1, "members": [{"name": "toy-master-0", "uid": "u"}], "min": 1, "max": 2}
WRONG = [None, True, 0.5, "", "x", [], {}, {"a": None}, 2000, 1e300, -(10**300)]
TEXTS = {
    "of a user": HOSTILE,
    "of digits": ["9" * 200_000, f"{'9' * 5000}:1", "1" * 20 + ":" + "1" * 20],
    "of brackets": ["[" * 200_000, '{"x":' + "[" * 5000, '{"a":' * 40_000],
    "like a reservation": [json.dumps(replaced(RESERVATION, at, new)) for at in places(RESERVATION) for new in WRONG],
    "like a membership": [json.dumps(replaced(MEMBERSHIP, at, new)) for at in places(MEMBERSHIP) for new in WRONG],
    "like a membership with a number of most digits": ['{"wish":' + "9" * 4300 + "}"],
}


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS.keys())
def test_whatever_annotations_say_pods_are_counted_and_their_jobs_go_on(texts: list[str]):
    same = {contract.ANNOTATION_TEMPLATE: fingerprint(parse_spec(FULL), contract.ROLE_MASTER)}
    for text in texts:
        live_annotated(dict.fromkeys(PodAnnotations.__struct_encode_fields__, text) | same)


def live_annotated(annotations: dict[str, str]) -> None:
    """A job whose master, and a plain pod that waits for GPUs, bear these annotations, come and go."""
    meta = {"labels": {contract.LABEL_INCARNATION: "1"}, "annotations": annotations, "owners": (owner("job-uid"),)}
    own = pod("toy-master-0", namespace="team-a", node="n1", gpus=1, **meta)
    waiting = pod("plain", gpus=1, phase="Pending", annotations=annotations, spec=BY_DEFAULT, status=LACKING)
    ledger = Ledger(job_of={"job-uid": stored_job("toy", namespace="team-a")}.get, parse=parse_pod_name)
    for one in (own, waiting):
        ledger.pod_changed(None, one)
    assert [one.name for one in ledger.own_pods("job-uid")] == ["toy-master-0"]
    assert ledger.with_use(Node("n1", {})).used.requests[GPU] == 1
    live(FULL, ledger.own_pods("job-uid"), incarnation=1, master_epoch=1)
    nodes: Store[objects.Node] = Store()
    requests = ForeignPods(
        ledger,
        SETTINGS,
        nodes=nodes,
        clock=ServerClock(),
        volumes=lambda *_: {},
        quarantine=Quarantine(),
        backoffs=NominationBackoffs(lambda: START),
    )
    assert [request.demand.name for request in requests.refresh(START)] == ["plain"]
    reserved = reservation_of(waiting)
    assert reserved.ran_out(START).avoid[reserved.node].until > START
    for one in (own, waiting):
        ledger.pod_changed(one, None)
    assert not ledger.with_use(Node("n1", {})).used.requests
