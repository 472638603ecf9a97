"""Random events of foreign pods: they are created, wait on a node that is reserved for them, and end."""

from __future__ import annotations

from tests.simulate import server as kinds
from tests.simulate.demand import Demand
from tests.simulate.facts import FLAVORS, ended, name_of, node_of, nominated_for, owner_of, terminating
from tests.simulate.policies import NAMESPACES, read_policies
from tests.simulate.preemptors import promised
from tests.simulate.world import World

MOST_FOREIGN = 10
CLASSES = ("", "", "", "", "patient", "polite", "urgent")
"""The PriorityClasses of foreign pods."""
BY_RIGHT = 0.7
"""How often a foreign pod comes to a team that has something left of its guarantee."""


def foreign_comes(world: World) -> str:
    """Somebody else's pod asks for GPUs, or for CPU alone."""
    foreign = [pod for pod in world.server.all(kinds.PODS) if not owner_of(pod)]
    if len(foreign) >= MOST_FOREIGN:
        return ""
    namespace, pool = _asks_where(world)
    gpus = world.rng.choice((0, 1, 1, 1, 1, 2))
    cpu, of_class = world.rng.choice((1, 1, 1, 20)), world.rng.choice(CLASSES)
    pod = world.add_foreign(namespace, gpus=gpus, pool=pool, cpu=cpu, of_class=of_class)
    what = f"{name_of(pod)} of {gpus} GPUs and {cpu} CPUs, {of_class or 'of no class'},"
    return f"{what} comes to {namespace}, pool {pool}"


def _asks_where(world: World) -> tuple[str, str]:
    """A namespace and a pool: often one of whose guarantee something is left."""
    rng, policies = world.rng, read_policies(world.server)
    places = [(namespace, flavor) for namespace in NAMESPACES for flavor in FLAVORS]
    used = {flavor: Demand(world.server, policies, flavor).held for flavor in FLAVORS}
    owed = [
        (namespace, flavor)
        for namespace, flavor in places
        if used[flavor].get(team := policies.team(namespace), 0) < policies.rule(team, flavor).guaranteed
    ]
    return rng.choice(owed if owed and rng.random() < BY_RIGHT else places)


def place_is_upset(world: World) -> str:
    """Something happens to a foreign pod that is nominated for a node, or to that node, or to its victims."""
    found = world.choose([pod for pod, _ in promised(world.server)])
    if found is None:
        return ""
    name = nominated_for(found)
    description = f"{name_of(found)}, nominated for {name}:"
    node = world.server.find(kinds.NODES, "", name)
    leaving = [pod for pod in world.server.all(kinds.PODS) if node_of(pod) == name and terminating(pod)]
    chance = world.rng.random()
    if chance < 0.3:
        world.server.delete_pod(found)
        return f"{description} it is deleted"
    if node is None:
        return ""
    if chance < 0.5 and len(world.server.all(kinds.NODES)) > 3:
        world.server.remove(kinds.NODES, node)
        return f"{description} the node goes"
    if chance < 0.7:
        world.server.update(kinds.NODES, node, spec={"unschedulable": True})
        return f"{description} the node is cordoned"
    if not leaving:
        return ""
    world.machines.stuck |= {pod["metadata"]["uid"] for pod in leaving}
    return f"{description} {', '.join(map(name_of, leaving))} will stick in Terminating"


def foreign_ends(world: World) -> str:
    """Somebody else's pod ends, or is deleted."""
    pod = world.choose([pod for pod in world.server.all(kinds.PODS) if not owner_of(pod)])
    if pod is None:
        return ""
    if node_of(pod) and not ended(pod) and world.rng.random() < 0.5:
        world.machines.end(pod, 0)
        return f"{name_of(pod)} ends"
    world.server.delete_pod(pod)
    return f"{name_of(pod)} is deleted"
