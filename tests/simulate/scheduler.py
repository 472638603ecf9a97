"""kube-scheduler, one step at a time: order by priority and age, nominations, preemption, and its messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.simulate.facts import (
    Amounts,
    Body,
    allocatable,
    ended,
    fits,
    is_open,
    is_ready,
    name_of,
    node_of,
    nominated_for,
    pinned_to,
    pod_priority,
    preempts,
    requests_of,
    reservation_in,
    suits,
    terminating,
    total,
)
from tests.simulate.server import NODES, PODS, Server

SELF = "default-scheduler"


class Scheduler:
    """Places pods. A pod that fits nowhere does not hold up those behind it, unless it is nominated for a node.

    Pods in `never` (by uid) it places nowhere, whatever room there is, as where a claim of theirs is in use. Pods in
    `unseen` (by uid) it has not got to yet.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.never: set[str] = set()
        self.unseen: set[str] = set()
        self.overtook = False
        """Whether in the last step a pod was bound in the room of one that is pinned there and waits."""

    def step(self) -> None:
        """Everybody who waits is tried once, but for pods that are unseen."""
        self.overtook = False
        waiting = [
            p
            for p in self.server.all(PODS)
            if not node_of(p) and not ended(p) and not terminating(p) and p["spec"].get("schedulerName", SELF) == SELF
            if p["metadata"]["uid"] not in self.unseen
        ]
        if not waiting:
            return
        held = self._held()
        had_room = {pod["metadata"]["uid"] for pod in waiting if pinned_to(pod) and self._place(pod, held)}
        for pod in sorted(waiting, key=lambda p: -pod_priority(p)):
            node = self._place(pod, held)
            if node is None:
                self._cannot_place(pod, held)
                self.overtook |= pod["metadata"]["uid"] in had_room
                continue
            held.setdefault(name_of(node), []).append(requests_of(pod))
            status = {name: value for name, value in pod["status"].items() if name != "nominatedNodeName"}
            others = [one for one in status.get("conditions", ()) if one["type"] != "PodScheduled"]
            bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.server.clock.text()}
            status["conditions"] = [bound, *others]
            self.server.update(PODS, pod, spec={**pod["spec"], "nodeName": name_of(node)}, status=status)

    def _held(self) -> dict[str, list[Amounts]]:
        held: dict[str, list[Amounts]] = {}
        for pod in self.server.all(PODS):
            if node_of(pod) and not ended(pod):
                held.setdefault(node_of(pod), []).append(requests_of(pod))
        return held

    def _place(self, pod: Body, held: dict[str, list[Amounts]]) -> Body | None:
        return None if pod["metadata"]["uid"] in self.never else next(self._places(pod, held), None)

    def _places(self, pod: Body, held: dict[str, list[Amounts]]) -> Iterator[Body]:
        """Where it fits: the node that it is nominated for before all others."""
        first, promised = nominated_for(pod), self._promised(pod)
        for node in sorted(self.server.all(NODES), key=lambda n: (name_of(n) != first, name_of(n))):
            there = [*held.get(name_of(node), ()), *promised.get(name_of(node), ())]
            if self._may_go_to(pod, node) and fits(pod, node, there):
                yield node

    def _promised(self, pod: Body) -> dict[str, list[Amounts]]:
        """By node, what others of no lower priority are nominated for."""
        found: dict[str, list[Amounts]] = {}
        for other in self.server.all(PODS):
            node = nominated_for(other)
            if node and not node_of(other) and not terminating(other):
                is_other = other["metadata"]["uid"] != pod["metadata"]["uid"]
                if is_other and pod_priority(other) >= pod_priority(pod):
                    found.setdefault(node, []).append(requests_of(other))
        return found

    def _may_go_to(self, pod: Body, node: Body) -> bool:
        return is_open(node) and pinned_to(pod) in ("", name_of(node)) and suits(pod, node)

    # -- pods that fit nowhere ---------------------------------------------------------------------------------------

    def _cannot_place(self, pod: Body, held: dict[str, list[Amounts]]) -> None:
        status = dict(pod["status"])
        message = self._why(pod, held)
        known = next((one for one in status.get("conditions", ()) if one["type"] == "PodScheduled"), None)
        if known is None or known.get("message") != message:
            others = [one for one in status.get("conditions", ()) if one["type"] != "PodScheduled"]
            status["conditions"] = [self._no_place(message, known), *others]
        if known and preempts(pod) and not self._waits_for_victims(pod):  # at the second try at the earliest
            node = self._preempt(pod)
            if node:
                status["nominatedNodeName"] = node
            elif not reservation_in(pod):
                status.pop("nominatedNodeName", None)
        if status != pod["status"]:
            self.server.update(PODS, pod, status=status)

    def _why(self, pod: Body, held: dict[str, list[Amounts]]) -> str:
        """In kube-scheduler's words."""
        nodes, promised = self.server.all(NODES), self._promised(pod)
        used = {name: [*held.get(name, ()), *promised.get(name, ())] for name in map(name_of, nodes)}
        reasons = Counter(reason for node in nodes for reason in self._against(pod, node, used[name_of(node)]))
        counts = sorted(f"{count} {reason}" for reason, count in reasons.items())
        return f"0/{len(nodes)} nodes are available: {', '.join(counts)}."

    def _against(self, pod: Body, node: Body, used: list[Amounts]) -> list[str]:
        if not is_ready(node):
            return ["node(s) had untolerated taint(s)"]
        if node["spec"].get("unschedulable"):
            return ["node(s) were unschedulable"]
        if not self._may_go_to(pod, node):
            return ["node(s) didn't match Pod's node affinity/selector"]
        taken, has = total(used), allocatable(node)
        lacking = [n for n, amount in requests_of(pod).items() if taken.get(n, 0) + amount > has.get(n, 0)]
        return [f"Insufficient {name}" for name in lacking]

    def _no_place(self, message: str, known: Any) -> dict[str, Any]:
        return {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": known["lastTransitionTime"] if known else self.server.clock.text(),
        }

    # -- preemption --------------------------------------------------------------------------------------------------

    def _waits_for_victims(self, pod: Body) -> bool:
        """Whether pods of lower priority are on their way out on the node that it is nominated for."""
        there = (p for p in self.server.all(PODS) if node_of(p) and node_of(p) == nominated_for(pod))
        return any(terminating(p) and pod_priority(p) < pod_priority(pod) and not ended(p) for p in there)

    def _preempt(self, pod: Body) -> str:
        """Delete the pods of lower priority that are in its way where the fewest are; the node, "" if none will do."""
        ways = []
        for node in self.server.all(NODES):
            victims = self._victims(pod, node) if self._may_go_to(pod, node) else None
            if victims:
                ways.append((len(victims), name_of(node), victims))
        if not ways:
            return ""
        _, name, victims = min(ways, key=lambda way: way[:2])
        for victim in victims:
            reason = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
            conditions = [*victim["status"].get("conditions", ()), reason]
            updated = self.server.update(PODS, victim, status={**victim["status"], "conditions": conditions})
            self.server.delete_pod(updated)
        return name

    def _victims(self, pod: Body, node: Body) -> Sequence[Body] | None:
        """The victims without which the pod fits; None if it does not even fit without all of lower priority."""
        here = [p for p in self.server.all(PODS) if node_of(p) == name_of(node) and not ended(p)]
        lower = [p for p in here if pod_priority(p) < pod_priority(pod) and not terminating(p)]
        held = [requests_of(p) for p in here if p not in lower] + self._promised(pod).get(name_of(node), [])
        if not fits(pod, node, held):
            return None
        victims = []
        for other in sorted(lower, key=lambda p: -pod_priority(p)):
            if fits(pod, node, [*held, requests_of(other)]):
                held.append(requests_of(other))
            else:
                victims.append(other)
        return victims
