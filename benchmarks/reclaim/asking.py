"""Asks for GPUs and waits until the pods have them. The results are read from the log afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from benchmarks.live.audit import Write
from benchmarks.live.place import POLL_SECONDS, Body, Place, pods_of
from benchmarks.reclaim import scenario, stages
from benchmarks.reclaim.scenario import GANG, GPUS_PER_NODE, OWNER
from benchmarks.reclaim.stages import BIND, CREATE, Request

BATCH_JOBS = f"/apis/batch/v1/namespaces/{OWNER}/jobs"
TRY_SECONDS = 60.0
GANG_SECONDS = 300.0
"""A pod without a node after this time is not awaited any longer; the figures show it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Pods that were created together, by their names, and when the first request arrived."""

    names: frozenset[str]
    created: float


def ask_for_pods(place: Place, namespace: str, names: Sequence[str]) -> Asked:
    """Create plain pods of one GPU, all at once, in a quiet cluster; return when all have nodes, or after a while."""
    place.quiet()
    place.create_all([(pods_of(namespace), scenario.plain_pod(name)) for name in names])
    asked = Asked(frozenset(names), min(place.last_write(CREATE, name).received for name in names))
    wait_bound(place, asked.names.__contains__, since=asked.created, pods=len(names), seconds=TRY_SECONDS)
    return asked


def requests_of(place: Place, tries: Sequence[Asked]) -> list[Request]:
    """The requests of tries that were made one after the other: all writes until the next try belong to a try."""
    place.quiet()
    writes = place.audit.read()
    ends = [*(later.created for _, later in pairwise(tries)), float("inf")]
    return [
        stages.request(
            writes,
            created=asked.created,
            until=end,
            asks=asked.names.__contains__,
            pods=len(asked.names),
            gpus=len(asked.names),
        )
        for asked, end in zip(tries, ends, strict=True)
    ]


def ask_for_gang(
    place: Place,
    pods: int,
    told: Callable[[int], None],
    *,
    name: str = GANG,
    make_room: Callable[[], None] = lambda: None,
) -> Request:
    """Create a Job of `pods` pods of a whole node each, and follow it to its last node; `told` hears how many have one.

    The controller names the pods, so their names are known by the Job's name only. `make_room` is called once the Job
    exists.
    """
    place.quiet()
    body: Body = scenario.gang(pods, name=name)
    place.create(BATCH_JOBS, body)
    created = place.last_write("create jobs", name).received
    make_room()

    def is_of_gang(pod: str) -> bool:
        return pod.startswith(f"{name}-")

    wait_bound(place, is_of_gang, since=created, pods=pods, seconds=GANG_SECONDS, told=told)
    place.quiet()
    return stages.request(place.audit.read(), created=created, asks=is_of_gang, pods=pods, gpus=pods * GPUS_PER_NODE)


def wait_bound(
    place: Place,
    asks: Callable[[str], bool],
    *,
    since: float,
    pods: int,
    seconds: float,
    pause: float = POLL_SECONDS,
    told: Callable[[int], None] = lambda _bound: None,
) -> bool:
    """Wait until that many of the pods selected by `asks` have nodes; False if they do not within `seconds`."""
    end = time.monotonic() + seconds
    while (
        bound := len({write.name for write in _newer(place, since) if write.what == BIND and asks(write.name)})
    ) < pods:
        told(bound)
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def _newer(place: Place, since: float) -> Iterator[Write]:
    return takewhile(lambda write: write.done >= since, reversed(place.audit.read()))
