"""One pod's part of a generation: all that it is told of it, so that a group of n pods costs n words of one length.

It travels as `{"part": {...}}`. Launchers of earlier releases are told the whole group, and coordinators of earlier
releases tell it (113): `taken` reads both, `as_whole` says to such a coordinator what of the group is known here.

A coordinator that starts anew puts the group together again from the parts of the pods that dial in (`remembered`). The
places of the others are held by pods of which nothing else is known (`Pod.is_known`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from elastic_worker.coordinator.model import UNKNOWN, Generation, Pod, known_fields


@dataclass(frozen=True)
class Part:
    """What a pod needs of a generation: `pods` of them make it, this one is at `place` (-1: it is not in it).

    Its `processes` have the ranks from `first_rank` on. `host` is the address of the first pod, which serves the store;
    it is the master's, but of a group that goes on `without_master` (125).
    """

    number: int
    epoch: int = 0
    wish: int = 0
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
        """What makes one generation later than another."""
        return self.epoch, self.number

    def to_message(self) -> dict[str, Any]:
        """As JSON."""
        return {"part": dict(vars(self))}


def part_of(group: Generation, uid: str) -> Part:
    """That of the pod `uid`."""
    place, first_rank = group.places.get(uid, (-1, -1))
    return Part(
        number=group.number,
        epoch=group.epoch,
        wish=group.wish,
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


def taken(message: Mapping[str, Any], uid: str) -> Part:
    """The part of the pod `uid`, from one or from the whole group. Raises AttributeError, KeyError, TypeError."""
    if "part" not in message:
        return part_of(Generation.from_message(message), uid)
    return Part(**known_fields(Part, message["part"]))


def as_whole(part: Part, pod: Pod) -> dict[str, Any]:
    """The group for a coordinator that knows no parts: the other pods under names that nobody has."""
    return _with(_of_unknown(part), part, pod).to_message()


def remembered(group: Generation | None, told: Mapping[str, Any] | None, pod: Pod) -> Generation | None:
    """The latest group that is known, when `pod` brings what it was told of one; `group` itself if that is nothing new.

    Raises AttributeError, KeyError, TypeError for what is no group.
    """
    if not told:
        return group
    if "part" in told:
        part = taken(told, pod.uid)
        return _with(_of_unknown(part) if group is None or part.order > group.order else group, part, pod)
    order = told.get("epoch", 0), told["number"]
    if group is not None and (order < group.order or (order == group.order and all(p.is_known for p in group.pods))):
        return group
    return Generation.from_message(told)


def _with(group: Generation, part: Part, pod: Pod) -> Generation:
    if part.order != group.order or not 0 <= part.place < len(group.pods) or group.pods[part.place].is_known:
        return group
    return replace(group, pods=(*group.pods[: part.place], pod, *group.pods[part.place + 1 :]))


def _of_unknown(part: Part) -> Generation:
    """The group of that part: of its pods no more is known than whether the first one is the master's."""
    of = f"of generation {part.number}"
    pods = [Pod(f"{UNKNOWN}{place}", f"pod {place} {of}", "", part.processes) for place in range(part.pods)]
    if not part.without_master:
        pods[:1] = [replace(pod, name=f"the master {of}", is_master=True) for pod in pods[:1]]
    kept = {each.name: getattr(part, each.name) for each in fields(Generation) if each.name != "pods"}
    return Generation(**kept, pods=tuple(pods))
