"""Which foreign pods GPUs are taken back for, and what is read off them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from elastic_api.pod_names import parse_pod_name
from elastic_operator.attempts import Attempts
from elastic_operator.cluster import objects
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.store import Store
from elastic_operator.plan.allocation.fit import misfit
from elastic_operator.plan.facts.decisions import Nomination
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.plan.facts.node import Node
from elastic_operator.plan.facts.waits import FIRST_FUTILE_SECONDS, MAX_FUTILE_SECONDS
from elastic_operator.quarantine import Quarantine
from elastic_operator.read.foreign.foreign_pods import MAX_PROLONGED_SECONDS, ForeignPods
from elastic_operator.read.foreign.nomination_backoffs import PodBackoff
from elastic_operator.read.foreign.reservation import (
    CONDITION,
    FIRST_AVOIDED_SECONDS,
    MAX_AVOIDED,
    MAX_AVOIDED_SECONDS,
    MAX_CHARACTERS,
    MAX_VICTIMS,
    Reservation,
    reservation_of,
)
from elastic_operator.read.ledger import Ledger
from elastic_operator.settings import Settings
from tests.cluster_unit.build import node, pod

NOW = 1_800_000_000.0
GPU = "nvidia.com/gpu"
NO_GPU = f"0/2 nodes are available: 2 Insufficient {GPU}. preemption: none."
CONTAINER = {"name": "main", "resources": {"requests": {GPU: "1", "cpu": "1"}, "limits": {GPU: "1"}}}


@dataclass(slots=True)
class World:
    """Two nodes, and the pods that a test puts there."""

    nodes: Store[objects.Node] = field(default_factory=Store)
    pods: Store[objects.Pod] = field(default_factory=Store)
    volumes: dict[str, Any] = field(default_factory=dict)
    backoff: dict[str, PodBackoff] = field(default_factory=dict)
    revision: int = 100

    def __post_init__(self) -> None:
        for name in ("n1", "n2"):
            self.nodes.observe(node(name))
        ledger = Ledger(job_of=lambda _: None, parse=parse_pod_name)
        self.pods.subscribe(ledger.pod_changed)
        self.foreign_pods = ForeignPods(
            ledger,
            Settings(),
            nodes=self.nodes,
            clock=ServerClock(),
            volumes=lambda *_: self.volumes,
            quarantine=Quarantine(),
            backoffs=SimpleNamespace(backoff=self.backoff.get),
        )

    foreign_pods: ForeignPods = field(init=False)

    def pod(
        self,
        name: str = "p",
        *,
        uid: str = "u",
        owners: tuple[dict[str, Any], ...] = (),
        said: str = NO_GPU,
        nominated: str = "",
        reservation: Reservation | str = "",
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> objects.Pod:
        """A plain pod that kube-scheduler said this of, as it is from now on."""
        self.revision += 1
        conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}]
        if reservation:
            told = reservation if isinstance(reservation, str) else _json(reservation)
            conditions.append({"type": CONDITION, "status": "True", "message": told})
        found = pod(
            name,
            namespace="team",
            uid=uid,
            rv=self.revision,
            owners=owners,
            phase="Pending",
            spec={"containers": [CONTAINER], "schedulerName": "default-scheduler", "priority": 0, **spec},
            status={"conditions": conditions, "nominatedNodeName": nominated},
            labels=labels or {},
        )
        self.pods.observe(found)
        return found

    def clear(self, *nodes: str) -> None:
        """Pods are about to be evicted from these nodes."""
        nominations = [Nomination("v", "team", "v", node, evicts_from={"job": "a/job"}) for node in nodes]
        self.foreign_pods.note_served(nominations, frozenset(), frozenset(), NOW)

    def look(self, now: float = NOW) -> ForeignPod:
        """What is read of it."""
        (pod,) = self.foreign_pods.refresh(now)
        return pod


def _json(reservation: Reservation) -> str:
    avoid = {name: {"until": one.until, "times": one.times} for name, one in reservation.avoid.items()}
    return json.dumps(
        {"node": reservation.node, "since": reservation.since, "until": reservation.until, "avoid": avoid}
    )


def may_go_to(pod: ForeignPod) -> list[str]:
    """The nodes that its shape allows."""
    return [name for name in ("n1", "n2") if not misfit(pod.demand.shape.master, Node(name, {}))]


def test_a_pod_that_lacks_gpus_is_a_pending_pod():
    world = World()
    world.pod(nodeSelector={"zone": "z"}, preemptionPolicy="Never", priority=7)
    pod = world.look()
    demand, shape = pod.demand, pod.demand.shape.master
    assert (demand.uid, demand.namespace, demand.name, demand.sizes) == ("u", "team", "p", (1,))
    assert (shape.gpus, shape.node_selector) == (1, {"zone": "z"})
    assert (demand.priority, pod.preempts, pod.unplannable, pod.promised_node) == (7, False, "", "")


@pytest.mark.parametrize(
    "said",
    [
        f"0/2 nodes are available: 2 Insufficient {GPU}.",
        f"0/2 nodes are available: 1 Insufficient {GPU}, 1 node(s) were unschedulable. preemption: none.",
        f"0/2 nodes are available: 1 Insufficient {GPU}.shared, 1 Insufficient {GPU}. preemption: none.",
        f"Insufficient {GPU}",
    ],
)
def test_the_scheduler_names_a_lack_of_gpus_anywhere_in_its_message(said: str):
    world = World()
    world.pod(said=said)
    assert world.foreign_pods.refresh(NOW)


NOT_ASKED_FOR: dict[str, dict[str, Any]] = {
    "it lacks cpu": {"said": "0/2 nodes are available: 2 Insufficient cpu."},
    "it lacks a resource whose name begins like a GPU": {
        "said": f"0/2 nodes are available: 2 Insufficient {GPU}.shared."
    },
    "it lacks a resource whose name goes on": {
        "said": f"0/2 nodes are available: 2 Insufficient {GPU}-a, 1 Insufficient cpu."
    },
    "its claim is not bound": {"said": "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."},
    "nobody looked at it yet": {"said": ""},
    "another scheduler's": {"schedulerName": "other"},
    "it is gated": {"schedulingGates": [{"name": "wait"}]},
    "Kueue admits it": {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
    "it is bound": {"nodeName": "n1"},
    "it asks for no gpu": {"containers": [{"name": "main"}]},
}


@pytest.mark.parametrize("why", NOT_ASKED_FOR)
def test_for_others_nothing_is_asked(why: str):
    world = World()
    world.pod(**NOT_ASKED_FOR[why])
    assert not world.foreign_pods.refresh(NOW)


UNPLANNABLE: dict[str, dict[str, Any]] = {
    "required podAntiAffinity": {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "x"}]}}
    },
    "DoNotSchedule": {"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
    "resourceClaims": {"resourceClaims": [{"name": "c"}]},
    "claimed per pod": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
    "not bound": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
}


@pytest.mark.parametrize("why", UNPLANNABLE)
def test_a_pod_whose_place_cannot_be_known_has_the_reason(why: str):
    world = World()
    world.pod(**UNPLANNABLE[why])
    assert why in world.look().unplannable


def test_a_volume_that_every_node_reaches_is_no_obstacle():
    world = World(volumes={"c": "bound"})
    world.pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    assert world.look().unplannable == ""


def test_a_reservation_names_its_node_until_its_time_is_over():
    world = World()
    world.pod(nominated="n2", reservation=Reservation("n2", NOW - 1, NOW + 30))
    pod = world.look()
    assert (pod.reserved, pod.nominated, may_go_to(pod)) == ("n2", "", ["n1", "n2"])
    assert (world.foreign_pods.expired, world.foreign_pods.again_at_epoch) == ((), NOW + 30)
    late = world.look(NOW + 30)
    assert (late.reserved, may_go_to(late)) == ("", ["n1"])
    assert [waiting.pod.metadata.uid for waiting in world.foreign_pods.expired] == ["u"]


def test_a_pod_for_which_gpus_are_free_is_helped_no_more_once_its_reservation_has_run_out():
    world = World()
    reservation = Reservation("n2", NOW - 1, NOW + 30)
    world.pod(nominated="n2", reservation=reservation, said="0/2 nodes are available: 2 Insufficient cpu.")
    assert world.look().reserved == "n2"
    assert world.foreign_pods.refresh(NOW + 30) == ()
    assert [waiting.pod.metadata.uid for waiting in world.foreign_pods.expired] == ["u"]


def test_a_node_that_did_not_work_out_is_left_alone_for_longer_each_time():
    once = Reservation("n2", NOW, NOW + 30).ran_out(NOW + 30)
    twice = Reservation("n2", NOW, NOW, once.avoid).ran_out(NOW + 100)
    assert once.avoid == {"n2": Attempts(1, NOW + 30 + FIRST_AVOIDED_SECONDS)}
    assert twice.avoid == {"n2": Attempts(2, NOW + 100 + 2 * FIRST_AVOIDED_SECONDS)}
    world = World()
    world.pod(reservation=once)
    pod, later = world.look(NOW + 31), world.look(NOW + 31 + FIRST_AVOIDED_SECONDS)
    assert (may_go_to(pod), may_go_to(later)) == (["n1"], ["n1", "n2"])


def test_after_three_nodes_in_vain_the_pod_rests_for_longer_each_time_and_then_is_tried_again():
    first = Reservation("n1", NOW, NOW).ran_out(NOW)
    second = msgspec.structs.replace(first, node="n2").ran_out(NOW)
    third = msgspec.structs.replace(second, node="n3").ran_out(NOW)
    fourth = msgspec.structs.replace(third, node="n3").ran_out(NOW)
    found = [one.backoff_until for one in (first, second, third, fourth)]
    assert found == [0.0, 0.0, NOW + FIRST_FUTILE_SECONDS, NOW + 2 * FIRST_FUTILE_SECONDS]
    world = World()
    world.pod(reservation=msgspec.json.encode(third).decode())
    pod, later = world.look(NOW + FIRST_FUTILE_SECONDS - 1), world.look(NOW + FIRST_FUTILE_SECONDS)
    assert (bool(pod.unplannable), later.unplannable) == (True, "")


def test_a_pod_whose_third_node_has_just_run_out_rests_before_that_is_written_down():
    avoid = {name: Attempts(1, NOW - 1) for name in ("n3", "n4")}
    world = World()
    world.pod(reservation=Reservation("n1", NOW - 60, NOW - 30, avoid), nominated="n1")
    assert world.look().unplannable


def test_no_pod_rests_for_longer_than_a_day_whatever_is_written():
    world = World()
    world.pod(reservation=msgspec.json.encode(Reservation(backoff_until=NOW + 2 * MAX_FUTILE_SECONDS)).decode())
    assert not world.look().unplannable


@pytest.mark.parametrize("times", [2000, 2**20, -(10**400)], ids=["many", "more", "below all numbers"])
def test_failed_node_is_avoided_for_at_most_an_hour(times: int):
    said = f'{{"node": "n1", "since": 1, "until": 2, "avoid": {{"n1": {{"until": 0, "times": {times}}}}}}}'
    reserved = reservation_of(World().pod(nominated="n1", reservation=said))
    assert NOW < reserved.ran_out(NOW).avoid["n1"].until <= NOW + MAX_AVOIDED_SECONDS


def test_the_longest_reservation_that_the_operator_writes_can_be_read():
    nodes = [f"{number:0253}" for number in range(MAX_AVOIDED + 1)]
    reserved = Reservation(nodes[-1], NOW, NOW + 1e-3, {node: Attempts(2**31, NOW - 1e-3) for node in nodes[:-1]})
    assert reservation_of(World().pod(nominated=nodes[-1], reservation=reserved)) == reserved


def test_every_alternative_of_its_affinity_is_kept_from_a_node_to_avoid():
    terms = [{"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}, {"matchFields": []}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    world = World()
    world.pod(affinity={"nodeAffinity": required}, reservation=Reservation("n2", NOW, NOW + 30).ran_out(NOW + 30))
    assert may_go_to(world.look(NOW + 31)) == ["n1"]


def test_a_nomination_of_somebody_else_is_left_to_them():
    world = World()
    for ours in ("", Reservation("n2", NOW, NOW + 30)):
        world.pod(nominated="n1", reservation=ours)
        pod = world.look()
        assert (pod.nominated, pod.reserved) == ("n1", "")


def test_a_nomination_for_a_node_that_is_gone_counts_for_nothing():
    world = World()
    world.pod(nominated="gone")
    assert not world.look().promised_node


MANY_NODES = {f"n{number}": {"times": 1, "until": 0} for number in range(MAX_AVOIDED + 1)}
UNREADABLE = {
    "no JSON": "no JSON",
    "a list": "[]",
    "a number for a node": '{"node": 5}',
    "a word for a time": '{"node": "n1", "until": "soon"}',
    "null": "null",
    "nested deeper than programs like to follow": '{"x":' + "[" * 5000,
    "longer than the operator writes": '{"node": "n1", "x": "' + "x" * MAX_CHARACTERS + '"}',
    "more victims than the operator names": json.dumps({"node": "n1", "victims": [""] * (MAX_VICTIMS + 1)}),
    "more nodes to avoid than the operator names": json.dumps({"node": "n1", "avoid": MANY_NODES}),
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_reservation_that_cannot_be_read_says_nothing(text: str):
    world = World()
    pod = world.pod(nominated="n1", reservation=text)
    assert reservation_of(pod) == Reservation()
    assert world.look().nominated == "n1"


def test_a_reservation_from_a_clock_that_was_put_back_has_run_out():
    world = World()
    world.pod(nominated="n1", reservation=Reservation("n1", NOW + 3600, NOW + 3630))
    assert not world.look().reserved
    assert len(world.foreign_pods.expired) == 1


def test_a_nomination_that_kube_scheduler_took_away_is_no_end_of_the_reservation():
    world = World()
    world.pod(nominated="", reservation=Reservation("n1", NOW, NOW + 30))
    assert world.look().reserved == "n1"
    assert len(world.foreign_pods.renewable) == 1
    world.pod(nominated="n1", reservation=Reservation("n1", NOW, NOW + 30))
    world.look()
    assert world.foreign_pods.renewable == ()


WAITS_FOR_ROOM = {
    "no other pod waits": ({}, False, 0),
    "another pod waits for room": ({}, True, 1),
    "it may evict by itself": ({"priority": 5}, False, 1),
    "it is above others and evicts nobody": ({"priority": 5, "preemptionPolicy": "Never"}, False, 0),
}


@pytest.mark.parametrize(("spec", "rival", "renewed"), WAITS_FOR_ROOM.values(), ids=WAITS_FOR_ROOM.keys())
def test_while_its_room_is_not_free_a_pod_is_nominated_again_only_if_somebody_could_take_it(spec, rival, renewed):
    """kube-scheduler takes the nomination away at each try in vain, and 250 pods were nominated 1,540 times."""
    world = World()
    world.clear("n1")
    world.pod(reservation=Reservation("n1", NOW, NOW + 30), **spec)
    if rival:
        world.pods.observe(pod("other", namespace="team", uid="v", phase="Pending", spec={"containers": [CONTAINER]}))
    world.foreign_pods.refresh(NOW)
    assert len(world.foreign_pods.renewable) == renewed
    world.clear()
    world.foreign_pods.refresh(NOW)
    assert len(world.foreign_pods.renewable) == 1


def test_a_pod_that_could_not_be_nominated_is_let_alone_for_a_while():
    world = World(backoff={"u": PodBackoff(NOW + 30, "it cannot be nominated: forbidden")})
    world.pod()
    assert world.look().unplannable == "it cannot be nominated: forbidden"
    assert world.foreign_pods.again_at_epoch == NOW + 30
    world.backoff.clear()
    assert world.look().unplannable == ""


def test_what_the_scheduler_promised_is_kept_though_the_pod_could_not_be_nominated_by_us():
    world = World(backoff={"u": PodBackoff(NOW + 30, "it cannot be nominated: no quorum")})
    world.pod(nominated="n1")
    pod = world.look()
    assert (pod.reserved, pod.promised_node, pod.unplannable) == ("", "n1", "")


BINDS_WITHOUT_US: dict[str, dict[str, Any]] = {
    "another scheduler's": {"schedulerName": "other"},
    "Kueue admits it": {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
    "its place cannot be known": UNPLANNABLE["required podAntiAffinity"],
}


@pytest.mark.parametrize("why", BINDS_WITHOUT_US)
def test_a_nominated_pod_keeps_its_room_though_the_operator_would_make_none_for_it(why: str):
    """Its scheduler has preempted pods for it. A pod that the operator created in that room would be preempted, too."""
    world = World()
    world.pod(nominated="n1", **BINDS_WITHOUT_US[why])
    assert world.look().nominated == "n1"


def test_what_did_not_change_is_the_same_pending_pod():
    world = World()
    world.pod()
    first = world.foreign_pods.refresh(NOW)
    assert world.foreign_pods.refresh(NOW + 5) is first
    world.pod(said=f"0/3 nodes are available: 3 Insufficient {GPU}.")
    assert world.foreign_pods.refresh(NOW + 6) is first
    world.pod(priority=5)
    assert world.foreign_pods.refresh(NOW + 7) is not first


def test_pods_of_a_gang_that_is_not_served_stay_the_same_objects_when_another_one_joins_it():
    world, job = World(), {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "of-job", "controller": True}
    seen = list[dict[str, ForeignPod]]()
    for at, name in enumerate("abc"):
        world.pod(name, uid=name, owners=(job,))
        seen.append({pod.uid: pod for pod in world.foreign_pods.refresh(NOW + 0.1 * at)})
    assert not any(pod.gang or pod.demand.bar.until < NOW for pod in seen[1].values())
    assert seen[2].keys() == {"a", "b", "c"}
    assert all(seen[2][uid] is pod for uid, pod in seen[1].items())


def test_the_time_of_a_reservation_begins_when_the_evicted_pods_are_removed():
    world = World()
    world.clear("n1")
    world.pod(nominated="n1", reservation=Reservation("n1", NOW - 1, NOW + 30))
    assert world.look(NOW).reserved == "n1"
    world.clear()
    gone = NOW + 29.6
    assert world.look(gone).reserved == "n1"
    assert world.look(gone + Settings().reclaim.reservation_seconds - 0.1).reserved == "n1"
    assert world.look(gone + Settings().reclaim.reservation_seconds).reserved == ""


def test_those_who_never_go_keep_no_place_for_others():
    world = World()
    world.clear("n1")
    world.pod(nominated="n1", reservation=Reservation("n1", NOW, NOW + 30))
    times = [NOW + seconds for seconds in range(0, 700, 20)]
    held = [bool(world.look(now).reserved) for now in times]
    assert held == [now < NOW + MAX_PROLONGED_SECONDS for now in times]


def test_the_back_off_of_a_reservation_is_written_with_the_key_of_older_releases():
    assert msgspec.json.encode(Reservation(backoff_until=5.0)) == b'{"rests_until":5.0}'
