"""Faults of real nodes and of fake ones: off, cut off, frozen, drained, parts of them killed, GPUs sick, gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from devcluster.faults import NodeFaults, PartFaults
from tests.cluster.lab import wait
from tests.simulate import server as kinds
from tests.simulate.facts import GPU, POOL, name_of
from tests.soak.site import GPUS
from tests.soak.stage import Deeds, Stage, for_a_while

OUR_PODS = "--pod-selector=elastic-pytorch.dev/job-name=toy"


def part_killed(program: str) -> Deeds:
    """A program of a node is killed, and started again later."""

    def choose(stage: Stage, rng: Random) -> tuple[str, PartFaults]:
        name = rng.choice(stage.site.nodes)
        return name, stage.site.cluster.part(f"{name}/{program}")

    return for_a_while(
        choose,
        lambda one: f"{one[0]}: {program} is killed",
        lambda one: one[1].kill(),
        lambda one: one[1].restart(),
        lambda stage, one: stage.site.wait_node(one[0]),
    )


def _any(stage: Stage, rng: Random) -> NodeFaults:
    return stage.site.cluster.node(rng.choice(stage.site.nodes))


def _is_ready(stage: Stage, node: NodeFaults) -> None:
    stage.site.wait_node(node.name)


def _takes_pods(stage: Stage, node: NodeFaults) -> None:
    """kubelet evicts the pods of a full disk, and takes none until there is room again."""
    path = f"/api/v1/nodes/{node.name}"
    wait(f"{node.name} to take pods", lambda: not stage.site.lab.get(path)["spec"].get("taints"))


def _done_to_a_node(
    told: str,
    harm: Callable[[NodeFaults], None],
    mend: Callable[[NodeFaults], None],
    then: Callable[[Stage, NodeFaults], None] = _is_ready,
) -> Deeds:
    return for_a_while(_any, lambda node: f"{node.name}{told}", harm, mend, then)


node_killed = _done_to_a_node(" is switched off", NodeFaults.kill, NodeFaults.restart)
node_cut_off = _done_to_a_node(" is cut off", NodeFaults.cut_off, NodeFaults.heal)
node_frozen = _done_to_a_node(" is frozen", NodeFaults.freeze, NodeFaults.thaw)
lookups_unanswered = _done_to_a_node(": look-ups get no answer", NodeFaults.silence_dns, NodeFaults.refuse_dns)
disk_full = _done_to_a_node(": the disk is full", NodeFaults.fill_disk, NodeFaults.free_disk, _takes_pods)
gpu_sick = for_a_while(
    lambda stage, rng: (_any(stage, rng), rng.randrange(GPUS)),
    lambda one: f"{one[0].name}: GPU {one[1]} is sick",
    lambda one: one[0].set_sick([one[1]]),
    lambda one: one[0].set_sick([]),
    lambda stage, one: _is_ready(stage, one[0]),
)
nodes_parted = for_a_while(
    lambda stage, _: (stage.site.cluster.node(stage.site.nodes[0]), stage.site.nodes[1]),
    lambda pair: f"{pair[0].name} and {pair[1]} do not reach each other",
    lambda pair: pair[0].part_from(pair[1]),
    lambda pair: pair[0].join(pair[1]),
    lambda *_: None,
)


def node_drained(stage: Stage, rng: Random) -> Iterator[str]:
    """`kubectl drain` of the trainings' pods, and uncordoned later."""
    name = rng.choice(stage.site.nodes)
    options = (OUR_PODS, "--force", "--delete-emptydir-data", "--timeout=90s")
    try:
        stage.site.lab.kubectl("drain", name, *options)
        yield f"{name} is drained of trainings"
    finally:
        stage.site.lab.kubectl("uncordon", name)


# -- fake nodes ------------------------------------------------------------------------------------------------------


def fake_node_gone(stage: Stage, rng: Random) -> Iterator[str]:
    """It is taken out of the cluster; another one of its kind comes later."""
    node = rng.choice(stage.world.server.all(kinds.NODES))
    stage.world.server.remove(kinds.NODES, node)
    yield f"fake node {name_of(node)} goes"
    gpus = int(node["status"].get("capacity", {}).get(GPU, 0))
    stage.world.add_node(gpus, node["metadata"]["labels"][POOL])


def fake_node_cordoned(stage: Stage, rng: Random) -> Iterator[str]:
    """Its pods stay, no new ones come."""
    node = rng.choice(stage.world.server.all(kinds.NODES))
    stage.site.lab.kubectl("cordon", name_of(node))
    yield f"fake node {name_of(node)} is cordoned"
    stage.site.lab.kubectl("uncordon", name_of(node))
