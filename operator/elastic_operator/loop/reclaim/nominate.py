"""Writes into a foreign pod the name of the node that is kept for it: a reservation (`read.foreign.reservation`)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from elastic_api.status import rfc3339
from elastic_operator.cluster import objects
from elastic_operator.cluster.pod import Pod
from elastic_operator.cluster.session import STRATEGIC_MERGE_PATCH, Session
from elastic_operator.read.foreign.reservation import CONDITION, MAX_ANNOTATED_SECONDS, Reservation, is_annotated
from elastic_worker import contract


async def nominate(session: Session, pod: Pod, reservation: Reservation, now: float) -> Pod:
    """Nominate the pod for the node of the reservation, or withdraw the nomination if there is no node.

    Raises:
        Conflict: the pod has changed, or another pod has its name now.
        NotFound: the pod is deleted.
        ClusterError: anything else.
    """
    meta, node = pod.metadata, reservation.node
    if is_annotated(pod) and meta.annotations.reserved:  # which may have been forged
        reservation = msgspec.structs.replace(reservation, until=min(reservation.until, now + MAX_ANNOTATED_SECONDS))
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
    answer = await session.patch(path, body, content_type=STRATEGIC_MERGE_PATCH, before_delete=bool(node))
    return objects.decode(answer, Pod)
