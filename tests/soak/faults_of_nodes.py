"""Faults of real nodes and of fake ones: off, cut off, frozen, drained, parts of them killed, GPUs sick, gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from devcluster.faults import NodeFaults
from tests.cluster.lab import wait
from tests.simulate import server as kinds
from tests.simulate.facts import GPU, POOL, name_of
from tests.soak.site import GPUS
from tests.soak.stage import Deeds, Stage

OUR_PODS = "--pod-selector=elastic-pytorch.dev/job-name=toy"


def part_killed(program: str) -> Deeds:
    """A program of a node is killed, and started again later."""

    def fault(stage: Stage, dice: Random) -> Iterator[str]:
        name = dice.choice(stage.site.nodes)
        part = stage.site.cluster.part(f"{name}/{program}")
        part.kill()
        try:
            yield f"{name}: {program} is killed"
        finally:
            part.restart()
        stage.site.wait_node(name)

    return fault


def _done_to_a_node(told: str, harm: Callable[[NodeFaults], None], mend: Callable[[NodeFaults], None]) -> Deeds:
    """To any of them; it is undone later, and waited for."""

    def fault(stage: Stage, dice: Random) -> Iterator[str]:
        name = dice.choice(stage.site.nodes)
        node = stage.site.cluster.node(name)
        harm(node)
        try:
            yield f"{name}{told}"
        finally:
            mend(node)
        stage.site.wait_node(name)

    return fault


node_killed = _done_to_a_node(" is switched off", NodeFaults.kill, NodeFaults.restart)
node_cut_off = _done_to_a_node(" is cut off", NodeFaults.cut_off, NodeFaults.heal)
node_frozen = _done_to_a_node(" is frozen", NodeFaults.freeze, NodeFaults.thaw)
lookups_unanswered = _done_to_a_node(": look-ups get no answer", NodeFaults.silence_dns, NodeFaults.refuse_dns)


def nodes_parted(stage: Stage, dice: Random) -> Iterator[str]:  # noqa: ARG001 - as the others
    """The two do not reach each other; both reach the API server."""
    first, second = stage.site.nodes
    node = stage.site.cluster.node(first)
    node.part_from(second)
    try:
        yield f"{first} and {second} do not reach each other"
    finally:
        node.join(second)


def node_drained(stage: Stage, dice: Random) -> Iterator[str]:
    """`kubectl drain` of the trainings' pods, and uncordoned later."""
    name = dice.choice(stage.site.nodes)
    options = (OUR_PODS, "--force", "--delete-emptydir-data", "--timeout=90s")
    try:
        stage.site.lab.kubectl("drain", name, *options)
        yield f"{name} is drained of trainings"
    finally:
        stage.site.lab.kubectl("uncordon", name)


def disk_full(stage: Stage, dice: Random) -> Iterator[str]:
    """kubelet evicts the pods there, and takes none until there is room again."""
    name = dice.choice(stage.site.nodes)
    node = stage.site.cluster.node(name)
    node.fill_disk()
    try:
        yield f"{name}: the disk is full"
    finally:
        node.free_disk()
    wait(f"{name} to take pods", lambda: not _taints(stage, name))


def _taints(stage: Stage, node: str) -> list[str]:
    spec = stage.site.lab.get(f"/api/v1/nodes/{node}")["spec"]
    return [taint["key"] for taint in spec.get("taints", [])]


def gpu_sick(stage: Stage, dice: Random) -> Iterator[str]:
    """One of a node's GPUs."""
    name, gpu = dice.choice(stage.site.nodes), dice.randrange(GPUS)
    node = stage.site.cluster.node(name)
    node.set_sick([gpu])
    try:
        yield f"{name}: GPU {gpu} is sick"
    finally:
        node.set_sick([])
    stage.site.wait_node(name)


# -- fake nodes ------------------------------------------------------------------------------------------------------


def fake_node_gone(stage: Stage, dice: Random) -> Iterator[str]:
    """It is taken out of the cluster; another one of its kind comes later."""
    node = dice.choice(stage.world.server.all(kinds.NODES))
    stage.world.server.remove(kinds.NODES, node)
    yield f"fake node {name_of(node)} goes"
    gpus = int(node["status"].get("capacity", {}).get(GPU, 0))
    stage.world.add_node(gpus, node["metadata"]["labels"][POOL])


def fake_node_cordoned(stage: Stage, dice: Random) -> Iterator[str]:
    """Its pods stay, no new ones come."""
    node = dice.choice(stage.world.server.all(kinds.NODES))
    stage.site.lab.kubectl("cordon", name_of(node))
    yield f"fake node {name_of(node)} is cordoned"
    stage.site.lab.kubectl("uncordon", name_of(node))


def fake_node_not_ready(stage: Stage, dice: Random) -> Iterator[str]:  # noqa: ARG001 - as the others
    """kwok stands still: the leases of all fake nodes run out."""
    part = stage.site.cluster.part("kwok")
    part.freeze()
    try:
        yield "kwok is frozen"
    finally:
        part.thaw()
