"""A pod is lost among many: how long until its successor is created, by the operator and by a bare client."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.live.errors import BenchError
from benchmarks.live.place import Place
from benchmarks.react.latencies import CREATE, DELETE, Reaction
from benchmarks.react.tries import answer
from benchmarks.scale.fill import PODS
from benchmarks.scale.plain import Objects, of_nobody
from benchmarks.scale.scenario import NAMESPACE

ANSWER_SECONDS = 60.0


def by_operator(place: Place, jobs: Sequence[str]) -> list[Reaction]:
    """One worker of each of these jobs goes, one after the other: losses in a row are answered with patience."""
    gone = partial(place.delete_pod, NAMESPACE)
    return [answer(place, DELETE, f"{job}-worker-0", gone, job=job) for job in jobs]


def by_bare_client(place: Place, objects: dict[str, Objects], jobs: Sequence[str]) -> list[Reaction]:
    """The same with pods of nobody, for which a client watches that posts each deleted pod again, and no more."""
    version = place.get(PODS)["metadata"]["resourceVersion"]
    query = {"watch": "true", "resourceVersion": version}
    found = []
    with place.http.stream("GET", PODS, params=query, timeout=ANSWER_SECONDS) as events:
        lines = events.iter_lines()
        for job in jobs:
            bodies = {body["metadata"]["name"]: of_nobody(body) for _, body in objects[job].pods}
            pod = max(bodies)
            place.quiet()
            place.delete_pod(NAMESPACE, pod)
            place.create(PODS, bodies[_next_deleted(lines)])
            found.append(Reaction(place.last_write(DELETE, pod), place.last_write(CREATE, pod)))
    return found


def _next_deleted(lines: Iterator[str]) -> str:
    for line in lines:
        event = json.loads(line)
        if event["type"] == "DELETED":
            name: str = event["object"]["metadata"]["name"]
            return name
    raise BenchError("the API server has ended the bare client's watch")
