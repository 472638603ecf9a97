"""The sentences that users read about a job that waits for new nodes or will request them."""

from __future__ import annotations

from elastic_api.status import rfc3339
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.facts.times import status_time


def why_waiting(entry: Entry, wanted: str, usable: str) -> str:
    """The sentence for a job that requests nodes, or that requests none because its pods would take room meant for
    others.
    """
    if not entry.requests_nodes:
        return (
            f"{wanted}; {usable}. New nodes are requested later: first, the jobs for which room is held get their"
            " pods. Pods that waited for new nodes now would take that room."
        )
    request = entry.demand.node_request if entry.demand.provisioning_pods else None
    ends_at = request.ends_at if request is not None else None
    until = f" until {rfc3339(status_time(ends_at))}" if ends_at is not None else ""
    return (
        f"{wanted}; {usable}. Its pods wait for the cluster's autoscaler to add nodes{until}. If it adds none,"
        " the operator deletes the pods and retries later."
    )


def with_time_of_request(entry: Entry, message: str, now: float) -> tuple[str, float | None]:
    """The sentence about the lacking room and, if new nodes are requested later, the time from which they are. Returns
    that time, too.
    """
    request = entry.demand.node_request
    if entry.admitted or request is None or request.begins_at <= now:
        return message, None
    time = rfc3339(status_time(request.begins_at))
    return f"{message} New nodes are requested from {time} on.", request.begins_at
