"""The pods that take part in an Elastic job, as its master reads them from an annotation of its pod (51).

The number of a list has the key "wish", under which running masters of earlier releases read it. Each pass computes the
members and compares them with the annotation, so a restart of the operator loses nothing. A new list has a higher
number than the list before; the first list of a new master has the number 1.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from elastic_api.job import JobSpec
from elastic_operator.plan.facts.decisions import Membership, Slot
from elastic_operator.plan.job.observation import Observation, master_of

_MAX_NUMBER = 2**53
"""The highest number that the operator writes. Python could read a number of 4,300 digits, but not write it."""

MAX_NAMED_MEMBERS = 1000
"""A larger job lists members by uid alone: all annotations of a pod may have 256 KiB. Names only help people."""


def changed_membership(obs: Observation, now: float) -> Membership | None:
    """The new list for the master, if it has changed; `obs.members` are the pods that stay.

    If the old number cannot be read, the new number is the time in seconds, which is higher.
    """
    master = master_of(obs)
    if not obs.job.is_elastic or master is None or obs.finishing:
        return None
    written = _read(master.membership)
    wanted = _content(obs.spec, ((pod.name, pod.uid) for pod in obs.members))
    number = written.pop("wish", None)
    if written == wanted:
        return None
    number = number + 1 if isinstance(number, int) and 0 < number < _MAX_NUMBER else int(now)
    return Membership(master.name, master.uid, _text(number, wanted))


def first_membership(obs: Observation, release: Collection[str], slots: Sequence[Slot]) -> str:
    """The list for a new master: the present pods except the released ones (uids), plus the pods created with it."""
    if not obs.job.is_elastic:
        return ""
    remaining = [(pod.name, pod.uid) for pod in obs.members if pod.uid not in release]
    coming = [(slot.pod_name(obs.job.name), "") for slot in slots]
    return _text(1, _content(obs.spec, [*remaining, *coming]))


def _content(spec: JobSpec, members: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The annotation without its number. A member is a name and a uid, "" if the pod does not exist yet."""
    named = [{"name": name, "uid": uid} for name, uid in members]
    content: dict[str, Any] = {
        "members": named if len(named) <= MAX_NAMED_MEMBERS else [{"uid": member["uid"]} for member in named],
        "min": spec.min_replicas,
        "max": spec.max_replicas,
    }
    if spec.allowed_replicas:
        content["sizes"] = list(spec.sizes())
    elif spec.replica_step:
        content["step"] = spec.replica_step
    return content


def _text(number: int, content: dict[str, Any]) -> str:
    return json.dumps({"wish": number, **content}, separators=(",", ":"))


def _read(text: str) -> dict[str, Any]:
    """The annotation as the operator wrote it; empty if somebody else wrote it."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}
