"""The reservation of a place for a foreign pod: kube-scheduler's own nomination, and a condition which says that the
operator made it.

`status.nominatedNodeName` makes kube-scheduler keep the room from pods of equal and lower priority (KEP-5278); whoever
sets the field must clear it (41). The condition is part of the same write. It says until when the pod has the place,
and on which nodes earlier reservations ran out, so that a new leader finds everything there (45). Both fields are in
the status, which no user may write.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec

from elastic_api.job import GROUP
from elastic_api.status import rfc3339
from elastic_operator.attempts import NEVER_FAILED, Attempts
from elastic_operator.cluster.meta import find_condition
from elastic_operator.cluster.pod import Pod
from elastic_operator.plan.facts.waits import MAX_FUTILE_SECONDS, futile_backoff_seconds

FIRST_AVOIDED_SECONDS = 60.0
MAX_AVOIDED_SECONDS = 3600.0
"""How long a node on which a reservation ran out is avoided: at first, and doubled each time up to the longest."""
_MAX_TIMES = 10
"""After this many reservations ran out on a node, the time does not grow any more."""
MAX_AVOIDED = 16
"""The most nodes that are remembered for one pod; the earliest nodes are forgotten first."""
MAX_VICTIMS = 10_000
"""The most victims that a reservation names: more than two of the largest jobs have pods. Kubernetes does not limit the
message of a pod's condition, but etcd takes no request over 1.5 MiB. A reservation of this many victims has 0.4 MB.
"""
MAX_CHARACTERS = 1_048_576
"""A longer text is not read: the operator writes none."""
CONDITION = f"{GROUP}/Reserved"
BACKWARDS_SECONDS = 60.0
"""A reservation that begins more than this in the future was written before the clock was set back."""


class Reservation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The node that is kept for a pod ("" = none), `since` and `until` when (epoch seconds), and the nodes to avoid:
    those on which a reservation of the pod ran out.

    `victims` are the pods (uids) that make room for the pod (203); the first `MAX_VICTIMS` of them are written. No node
    is reserved for the pod before `backoff_until` (139).
    """

    node: str = ""
    since: float = 0.0
    until: float = 0.0
    avoid: Annotated[dict[str, Attempts], msgspec.Meta(max_length=MAX_AVOIDED)] = {}
    backoff_until: float = msgspec.field(name="rests_until", default=0.0)
    """The conditions of pods have this time by its older name."""
    victims: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_VICTIMS)] = ()

    def is_in_force(self, now: float) -> bool:
        return bool(self.node) and self.since - BACKWARDS_SECONDS <= now < self.until

    def has_run_out(self, now: float) -> bool:
        """Whether a node is reserved and the reservation is not in force any more."""
        return bool(self.node) and not self.is_in_force(now)

    def avoided(self, now: float) -> dict[str, float]:
        """The nodes to avoid now, and until when."""
        times = {node: failed.until for node, failed in self.avoid.items()}
        return {node: until for node, until in times.items() if now < until <= now + MAX_AVOIDED_SECONDS}

    def is_in_backoff(self, now: float) -> bool:
        """Whether the pod is in back-off: no node is reserved for it now."""
        return now < self.backoff_until <= now + MAX_FUTILE_SECONDS

    def ran_out(self, now: float) -> Reservation:
        """The reservation after it ran out: its node is avoided for a while, and after several of these all nodes are
        (139).
        """
        before = Attempts(_believed(self.avoid.get(self.node, NEVER_FAILED).times))
        avoid = {**self.avoid, self.node: before.failed(now, FIRST_AVOIDED_SECONDS, MAX_AVOIDED_SECONDS)}
        latest = sorted(avoid, key=lambda node: avoid[node].until)[-MAX_AVOIDED:]
        expired = sum(_believed(avoided.times) for avoided in avoid.values())
        backoff = futile_backoff_seconds(expired)
        backoff_until = now + backoff if backoff else 0.0
        return Reservation(avoid={node: avoid[node] for node in latest}, backoff_until=backoff_until)


def _believed(times: int) -> int:
    """The number, cut to 0 and `_MAX_TIMES`, whatever is written."""
    return min(max(times, 0), _MAX_TIMES)


def reservation_of(pod: Pod) -> Reservation:
    """The reservation in the pod's condition; an empty one if somebody else has nominated the pod, or if it cannot be
    read.

    kube-scheduler removes a nomination after each failed try; the reservation stays, see `is_renewable`.
    """
    condition = find_condition(pod.status.conditions, CONDITION)
    found = _read(condition.message) if condition is not None else Reservation()
    return (
        found
        if pod.status.nominated_node_name in (found.node, "")
        else msgspec.structs.replace(found, node="", since=0.0, until=0.0, victims=())
    )


def condition_of(reservation: Reservation, now: float) -> dict[str, str]:
    """The condition that shows this reservation, as `reservation_of` reads it; `now` is epoch seconds."""
    written = msgspec.structs.replace(reservation, victims=reservation.victims[:MAX_VICTIMS])
    return {
        "type": CONDITION,
        "status": "True" if reservation.node else "False",
        "reason": "NodeReserved" if reservation.node else "NoNodeReserved",
        "message": msgspec.json.encode(written).decode(),
        "lastTransitionTime": rfc3339(datetime.fromtimestamp(now, UTC)),
    }


def is_renewable(pod: Pod, reservation: Reservation, now: float) -> bool:
    """Whether the reservation must be written again: it is in force, but its nomination was removed."""
    return reservation.is_in_force(now) and not pod.status.nominated_node_name


def _read(text: str) -> Reservation:
    if not text or len(text) > MAX_CHARACTERS:
        return Reservation()
    try:
        return msgspec.json.decode(text, type=Reservation)
    except (msgspec.DecodeError, RecursionError):
        return Reservation()
