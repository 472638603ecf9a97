"""One pod's part of a generation: the data that this pod needs. A group of n pods takes n messages of constant length.

It is sent as `{"part": {...}}`. Launchers of earlier releases are sent the whole group, and coordinators of earlier
releases send it (113): `read_part` reads both forms, `to_whole_group` answers such a coordinator.

A restarted coordinator puts the group together again from the parts of the pods that connect (`merge_reported`). Until
a pod connects, an unknown pod holds its place in the group (`Pod.is_known`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from elastic_worker.coordinator.model import UNKNOWN, Generation, Pod, known_fields, to_fields
from elastic_worker.protocol.orders import GenerationRecord


@dataclass(frozen=True)
class Part:
    """One pod's view of a generation: the number of `pods`, and the pod's own `place` (-1: it is not in the group).

    The pod's `processes` have the ranks from `first_rank` on. `host` is the address of the first pod, which serves the
    store: the master, except in a group `without_master` (125).
    """

    number: int
    epoch: int = 0
    membership_number: int = 0
    reason: str = "Start"
    failures: int = 0
    step: int = 0
    store_port: int = 0
    host: str = ""
    world_size: int = 0
    pods: int = 0
    place: int = -1
    first_rank: int = -1
    processes: int = 0
    without_master: bool = False

    @property
    def order(self) -> tuple[int, int]:
        """Return the key by which later generations are greater."""
        return self.epoch, self.number

    def to_message(self) -> GenerationRecord:
        """Encode the part as JSON."""
        return {"part": to_fields(vars(self))}


def part_of(group: Generation, uid: str) -> Part:
    """Return the part of the pod `uid`."""
    place, first_rank = group.places.get(uid, (-1, -1))
    return Part(
        number=group.number,
        epoch=group.epoch,
        membership_number=group.membership_number,
        reason=group.reason,
        failures=group.failures,
        step=group.step,
        store_port=group.store_port,
        host=group.pods[0].address if group.pods else "",
        world_size=group.world_size,
        pods=len(group.pods),
        place=place,
        first_rank=first_rank,
        processes=group.pods[place].processes if place >= 0 else 0,
        without_master=group.is_without_master,
    )


def read_part(message: Mapping[str, Any], uid: str) -> Part:
    """Decode the part of the pod `uid`, from a part or from the whole group.

    Raises AttributeError, KeyError or TypeError for anything else.
    """
    if "part" not in message:
        return part_of(Generation.from_message(message), uid)
    return Part(**known_fields(Part, message["part"]))


def to_whole_group(part: Part, pod: Pod) -> GenerationRecord:
    """Encode the group for a coordinator that knows no parts. The other pods get names that no real pod has."""
    return _with(_of_unknown(part), part, pod).to_message()


def merge_reported(group: Generation | None, reported: Mapping[str, Any] | None, pod: Pod) -> Generation | None:
    """Return the latest known group, given the part or whole that `pod` reports; `group` itself if that adds nothing.

    Raises AttributeError, KeyError or TypeError if `reported` is no group.
    """
    if not reported:
        return group
    if "part" in reported:
        part = read_part(reported, pod.uid)
        return _with(_of_unknown(part) if group is None or part.order > group.order else group, part, pod)
    order = reported.get("epoch", 0), reported["number"]
    if group is not None and (order < group.order or (order == group.order and all(p.is_known for p in group.pods))):
        return group
    return Generation.from_message(reported)


def _with(group: Generation, part: Part, pod: Pod) -> Generation:
    if part.order != group.order or not 0 <= part.place < len(group.pods) or group.pods[part.place].is_known:
        return group
    return replace(group, pods=(*group.pods[: part.place], pod, *group.pods[part.place + 1 :]))


def _of_unknown(part: Part) -> Generation:
    """Return the group of that part with unknown pods, the first of which may be known to be the master's."""
    generation = f"generation {part.number}"
    pods = [Pod(f"{UNKNOWN}{place}", f"pod {place} of {generation}", "", part.processes) for place in range(part.pods)]
    if not part.without_master:
        pods[:1] = [replace(pod, name=f"the master of {generation}", is_master=True) for pod in pods[:1]]
    kept = {each.name: getattr(part, each.name) for each in fields(Generation) if each.name != "pods"}
    return Generation(**kept, pods=tuple(pods))
