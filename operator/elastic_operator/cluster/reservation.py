"""A place kept for a foreign pod: the scheduler's own nomination, and beside it a condition that says it is ours.

`status.nominatedNodeName` makes kube-scheduler keep the room from pods of equal and lower priority (KEP-5278); whoever
sets it must clear it. The condition, written by the same request, says until when the pod has the place, and which
nodes did not work out: whoever leads next finds all of it there. Both stand in the status, which no user may write.
Up to 0.2 an annotation took the condition's place, and could be forged.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from elastic_operator.api.job import GROUP
from elastic_operator.api.status import rfc3339
from elastic_operator.cluster import objects
from elastic_operator.cluster.meta import Condition
from elastic_operator.cluster.pod import Pod
from elastic_operator.cluster.session import STRATEGIC_MERGE_PATCH, Session
from elastic_operator.plan.facts.times import doubled
from elastic_operator.plan.facts.useless_tries import MOST_REST_SECONDS, rest_seconds
from elastic_worker import contract

FIRST_SECONDS = 60.0
MOST_SECONDS = 3600.0
"""A node on which a reservation ran out is left alone for so long, twice as long each time."""
_MOST_TIMES = 10
"""From here on it is the same time again."""
MOST_AVOIDED = 16
"""So many nodes are remembered for one pod, those that failed last."""
MOST_CHARACTERS = 16_384
"""Of an annotation; three times what those names and numbers take. A longer one is not ours, and is not read."""
MOST_ANNOTATED_SECONDS = 600.0
"""An annotation of an older release reserves a node for no longer than this, once it has become a condition."""
CONDITION = f"{GROUP}/Reserved"
BACKWARDS_SECONDS = 60.0
"""A reservation from a later time than this ahead is from a clock that has been put back."""


class Avoided(msgspec.Struct, frozen=True):
    """A node on which a reservation of the pod ran out so many `times`; left alone `until` (epoch seconds)."""

    until: float
    times: int = 1


class Reservation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The node that is kept for a pod ("" = none), `since` and `until` when (epoch seconds), and nodes to avoid.

    Nothing is kept for the pod before it `rests_until`.
    """

    node: str = ""
    since: float = 0.0
    until: float = 0.0
    avoid: dict[str, Avoided] = {}
    rests_until: float = 0.0

    def holds(self, now: float) -> bool:
        """Whether it is in force."""
        return bool(self.node) and self.since - BACKWARDS_SECONDS <= now < self.until

    def has_run_out(self, now: float) -> bool:
        """Whether there is one that is not in force any more."""
        return bool(self.node) and not self.holds(now)

    def avoided(self, now: float) -> dict[str, float]:
        """The nodes that are to be left alone, with until when."""
        return {node: one.until for node, one in self.avoid.items() if now < one.until <= now + MOST_SECONDS}

    def rests(self, now: float) -> bool:
        """Whether nothing is to be kept for the pod now."""
        return now < self.rests_until <= now + MOST_REST_SECONDS

    def ran_out(self, now: float) -> Reservation:
        """What is left of it when it ran out: its node is avoided for a while, and after some of them all nodes are."""
        before = self.avoid.get(self.node)
        times = min(max(before.times, 0), _MOST_TIMES) + 1 if before else 1
        wait = doubled(FIRST_SECONDS, MOST_SECONDS, times)
        avoid = {**self.avoid, self.node: Avoided(now + wait, times)}
        latest = sorted(avoid, key=lambda node: avoid[node].until)[-MOST_AVOIDED:]
        in_vain = sum(min(max(one.times, 0), _MOST_TIMES) for one in avoid.values())
        rest = rest_seconds(in_vain)
        rests_until = now + rest if rest else 0.0
        return Reservation(avoid={node: avoid[node] for node in latest}, rests_until=rests_until)


def reservation_of(pod: Pod) -> Reservation:
    """The reservation in the pod's condition, unless somebody else has nominated the pod; none if it cannot be read.

    kube-scheduler takes a nomination away whenever it tries the pod in vain; the reservation stays, see `is_renewable`.
    """
    condition = _condition(pod)
    if condition is None:
        return _annotated(pod)
    said = _read(condition.message)
    return (
        said
        if pod.status.nominated_node_name in (said.node, "")
        else msgspec.structs.replace(said, node="", since=0.0, until=0.0)
    )


def is_renewable(pod: Pod, reservation: Reservation, now: float) -> bool:
    """Whether the reservation holds and is to be written again: its nomination is gone, or it is an annotation only."""
    return reservation.holds(now) and (not pod.status.nominated_node_name or _condition(pod) is None)


def _condition(pod: Pod) -> Condition | None:
    return next((one for one in pod.status.conditions or () if one.type == CONDITION), None)


def _annotated(pod: Pod) -> Reservation:
    """The reservation in an annotation of a release before 0.3. Anybody may have written it: it needs its nomination.

    Users cannot nominate. It is written down as a condition at once, and ignored from then on.
    """
    said = _read(pod.metadata.annotations.reserved)
    return said if said.node and pod.status.nominated_node_name == said.node else Reservation()


def _read(text: str) -> Reservation:
    if not text or len(text) > MOST_CHARACTERS:
        return Reservation()
    try:
        return msgspec.json.decode(text, type=Reservation)
    except (msgspec.DecodeError, RecursionError):
        return Reservation()


async def write(session: Session, pod: Pod, reservation: Reservation, now: float) -> Pod:
    """Nominate the pod for the node of the reservation, or take the nomination back where it has none.

    Raises:
        Conflict: the pod changed since, or is another one of that name.
        NotFound: it is gone.
        ClusterError: anything else.
    """
    meta, node = pod.metadata, reservation.node
    if _condition(pod) is None and meta.annotations.reserved:  # which may have been forged
        reservation = msgspec.structs.replace(reservation, until=min(reservation.until, now + MOST_ANNOTATED_SECONDS))
    condition = {
        "type": CONDITION,
        "status": "True" if node else "False",
        "reason": "NodeReserved" if node else "NoNodeReserved",
        "message": msgspec.json.encode(reservation).decode(),
        "lastTransitionTime": rfc3339(datetime.fromtimestamp(now, UTC)),
    }
    body: dict[str, Any] = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "status": {"nominatedNodeName": node or None, "conditions": [condition]},
    }
    if meta.annotations.reserved:
        body["metadata"]["annotations"] = {contract.ANNOTATION_RESERVED: None}
    path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}/status"
    return objects.decode(await session.patch(path, body, content_type=STRATEGIC_MERGE_PATCH), Pod)
