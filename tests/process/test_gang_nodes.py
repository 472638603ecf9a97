"""Pods of a gang take each other's places, and each that waits has one of its own (167)."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_operator.read.foreign.reservation import Reservation
from elastic_operator.settings import Settings
from tests.cluster_unit.build import node, owner
from tests.process.test_foreign_pods import NOW, World


class Gang(World):
    """Pods g0, g1 ... of one gang, and what is kept for each of them."""

    def waits(self, number: int, kept: str, *, nominated: str | None = None, since: float = NOW) -> None:
        """The pod waits, and that node is kept for it."""
        self._observe(number, Reservation(kept, since, since + 30), nominated=kept if nominated is None else nominated)

    def bound(self, number: int, node: str, kept: str) -> None:
        """kube-scheduler has bound the pod to that node; `kept` was kept for it."""
        self._observe(number, Reservation(kept, NOW, NOW + 30), nodeName=node)

    def gone(self, number: int) -> None:
        """The pod is deleted."""
        self.pods.observe_deleted(f"uid-g{number}")

    def kept(self, now: float = NOW) -> dict[str, str]:
        """The node that is kept for each waiting pod."""
        return {one.demand.name: one.reserved for one in self.foreign_pods.refresh(now)}

    def _observe(self, number: int, reservation: Reservation, **fields: Any) -> None:
        name, owners = f"g{number}", (owner("uid-job", kind="Job", name="g"),)
        self.pod(name, uid=f"uid-{name}", owners=owners, reservation=reservation, **fields)


def gang_of_three() -> Gang:
    """The nodes n1, n2 and n3 are kept for g1, g2 and g3."""
    world = Gang()
    world.nodes.observe(node("n3"))
    for number in (1, 2, 3):
        world.waits(number, f"n{number}")
    assert world.kept() == {"g1": "n1", "g2": "n2", "g3": "n3"}
    return world


def test_a_pod_whose_place_another_one_of_its_gang_took_has_the_place_of_that_one():
    world = gang_of_three()
    world.bound(1, "n2", kept="n1")
    assert world.kept() == {"g2": "n1", "g3": "n3"}


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
@pytest.mark.parametrize("seen_together", [True, False])
def test_in_whatever_order_that_is_seen_each_pod_has_a_place_of_its_own(order, seen_together):
    world, nodes = gang_of_three(), {1: "n2", 2: "n3"}
    for number in order:
        world.bound(number, nodes[number], kept=f"n{number}")
        if not seen_together:
            world.kept()
    assert world.kept() == {"g3": "n1"}


def test_a_pod_in_its_own_place_or_beside_its_gang_changes_nothing_for_the_others():
    world = gang_of_three()
    world.nodes.observe(node("n9"))
    world.bound(1, "n1", kept="n1")
    world.bound(2, "n9", kept="n2")
    assert world.kept() == {"g3": "n3"}
    world.waits(4, "n2")
    assert world.kept() == {"g3": "n3", "g4": "n2"}


def test_the_time_of_a_place_begins_anew_with_the_node():
    world, late = gang_of_three(), NOW + 29
    world.bound(1, "n2", kept="n1")
    assert world.kept(late)["g2"] == "n1"
    seconds = Settings().reclaim.reservation_seconds
    assert world.kept(late + seconds - 0.1)["g2"] == "n1"
    assert world.kept(late + seconds)["g2"] == ""


def test_a_node_that_was_kept_for_a_pod_after_another_one_had_left_it_is_its_own():
    world = gang_of_three()
    world.bound(1, "n2", kept="n1")
    world.kept()
    world.gone(1)
    world.waits(2, "n2", since=NOW + 5)
    assert world.kept(NOW + 6) == {"g2": "n2", "g3": "n3"}


def test_a_pod_without_its_nomination_is_nominated_again_for_the_place_that_it_has_now():
    world = gang_of_three()
    world.bound(1, "n2", kept="n1")
    world.waits(2, "n2", nominated="")
    world.waits(3, "", nominated="")
    world.kept()
    assert [(one.pod.metadata.name, one.reservation.node) for one in world.foreign_pods.renewable] == [("g2", "n1")]
