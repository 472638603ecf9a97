"""What a pod template asks of a node, and what makes it unpinnable."""

from __future__ import annotations

import gc

import pytest

from elastic_operator.plan.allocation.fit import AVOIDED, misfit
from elastic_operator.plan.allocation.journal import Journal
from elastic_operator.plan.allocation.node_board import NodeBoard
from elastic_operator.plan.facts.pod_shape import excluding_nodes, shape_of
from elastic_operator.plan.facts.requirements import Toleration
from tests.plan.allocate.world import GPU, make_node, make_shape


def read(claims=None, **pod):
    spec = {"containers": [{"name": "pytorch", "resources": {"limits": {GPU: 2, "cpu": "500m"}}}], **pod}
    return shape_of({"spec": spec}, gpu_resources=(GPU,), volumes=claims or {})


def test_requests_are_the_limits_where_only_those_are_given_and_one_pod():
    shape = read()
    assert (shape.requests, shape.gpus) == ({GPU: 2, "cpu": 500, "pods": 1}, 2)


def test_selector_affinity_and_tolerations_are_read():
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    shape = read(
        nodeSelector={"gpu": "h100"},
        affinity={"nodeAffinity": required},
        tolerations=[{"key": "k", "value": "v"}, {"operator": "Exists", "effect": "NoSchedule"}],
    )
    assert shape.node_selector == {"gpu": "h100"}
    assert shape.affinity == tuple(terms)
    assert shape.tolerations == (Toleration("k", "Equal", "v"), Toleration("", "Exists", "", "NoSchedule"))
    assert shape.pinnable


ZONE = {"key": "zone", "operator": "In", "values": ["a"]}


@pytest.mark.parametrize("terms", [(), ({"matchExpressions": [ZONE]},), ({"matchExpressions": [ZONE]}, {}), ({},)])
def test_avoided_nodes_are_excluded_beside_the_own_rules(terms):
    own = make_shape(affinity=terms)
    avoiding = excluding_nodes(own, ["n1"])
    for name in ("n1", "n2"):
        node = make_node(name, labels={"zone": "a"})
        assert misfit(avoiding, node) == (misfit(own, node) or ("" if name == "n2" else AVOIDED))


def test_jobs_that_avoid_different_nodes_share_what_is_known_about_all_other_nodes():
    nodes = [make_node(f"n{i:03}") for i in range(200)]
    board = NodeBoard(nodes, (GPU,), Journal())
    shapes = [excluding_nodes(make_shape(), [f"n{i:03}", "gone"]) for i in range(50)]
    found = [board.requirements(shape) for shape in [make_shape(), *shapes]]
    lists = {id(one): one for requirements in found for one in referents(requirements, 200)}
    assert sum(len(one) for one in lists.values()) == 2 * 200
    for i, requirements in enumerate(found[1:]):
        assert list(requirements.nodes) == [n for n in range(200) if n != i]
        assert len(requirements.nodes) == 199
        assert i not in requirements.node_set
        assert requirements.node_set & {i, i + 1} == {i + 1}


def test_equal_shapes_share_their_requirements_in_whatever_order_they_were_written():
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    terms = {"matchExpressions": [zone], "matchFields": []}

    def shape(order, **more):
        affinity = ({key: terms[key] for key in order(terms)},)
        labels = {"gpu": "h100", "zone": "a"}
        return make_shape(node_selector={key: labels[key] for key in order(labels)}, affinity=affinity, **more)

    board = NodeBoard((make_node(),), (GPU,), Journal())
    requirements = board.requirements(shape(list))
    assert board.requirements(shape(reversed)) is requirements
    reasons = [shape(list, pinnable=False, unpinned_because=f"claim {i} is not bound") for i in range(2)]
    unpinnable = [board.requirements(one) for one in reasons]
    assert unpinnable[0] is unpinnable[1] is not requirements


def test_a_board_forgets_the_requirements_of_old_shapes():
    board = NodeBoard((make_node(),), (GPU,), Journal())
    first = board.requirements(make_shape(1))
    for cpu in range(2, 10_002):
        board.requirements(make_shape(1, cpu=cpu))
    assert board.requirements(make_shape(1)) is not first


def referents(requirements, at_least):
    """The collections of nodes that the requirements keep alive, themselves or by a part."""
    parts = [part for held in (requirements.nodes, requirements.node_set) for part in (held, *gc.get_referents(held))]
    return [part for part in parts if isinstance(part, tuple | frozenset) and len(part) >= at_least - 1]


def test_host_ports_of_containers_and_sidecars_are_read_but_not_those_of_init_containers():
    port = {"containerPort": 80, "hostPort": 8080, "hostIP": "0.0.0.0"}
    side = {"name": "s", "restartPolicy": "Always", "ports": [{"hostPort": 9, "protocol": "UDP", "hostIP": "10.0.0.1"}]}
    once = {"name": "o", "ports": [{"hostPort": 7}]}
    shape = read(containers=[{"name": "c", "ports": [port, {"containerPort": 81}]}], initContainers=[side, once])
    assert shape.host_ports == {("", "TCP", 8080), ("10.0.0.1", "UDP", 9)}


def test_with_host_network_container_ports_are_the_nodes():
    shape = read(hostNetwork=True, containers=[{"name": "c", "ports": [{"containerPort": 80}]}])
    assert shape.host_ports == {("", "TCP", 80)}


REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
CLAIM = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


@pytest.mark.parametrize(
    ("pod", "volumes", "because"),
    [
        ({"schedulerName": "kai"}, {}, "schedulerName is kai"),
        ({"nodeName": "n1"}, {}, "nodeName is set to n1"),
        ({"affinity": {"podAffinity": REQUIRED}}, {}, "it has required podAffinity"),
        ({"affinity": {"podAntiAffinity": REQUIRED}}, {}, "it has required podAntiAffinity"),
        (
            {"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
            {},
            "it has a DoNotSchedule topologySpreadConstraint on zone",
        ),
        ({"resourceClaims": [{"name": "gpu"}]}, {}, "it has resourceClaims"),
        ({"volumes": CLAIM}, {}, "PersistentVolumeClaim data is not bound"),
        ({"volumes": CLAIM}, {"data": "unbound"}, "PersistentVolumeClaim data is not bound"),
        (
            {"volumes": CLAIM},
            {"data": "zonal"},
            "the volume of PersistentVolumeClaim data is reachable from some nodes only",
        ),
        (
            {"volumes": [{"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
            {},
            "its volume tmp is claimed per pod",
        ),
    ],
)
def test_what_the_planner_cannot_foresee_is_not_pinned(pod, volumes, because):
    shape = read(volumes, **pod)
    assert (shape.pinnable, shape.unpinned_because) == (False, because)


@pytest.mark.parametrize(
    ("pod", "volumes"),
    [
        ({"schedulerName": "default-scheduler"}, {}),
        ({"affinity": {"podAntiAffinity": PREFERRED, "nodeAffinity": None}}, {}),
        ({"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}, {}),
        ({"volumes": CLAIM}, {"data": "bound"}),
        ({"volumes": [{"name": "tmp", "emptyDir": {}}]}, {}),
    ],
)
def test_what_the_planner_can_foresee_is_pinned(pod, volumes):
    assert read(volumes, **pod).pinnable
