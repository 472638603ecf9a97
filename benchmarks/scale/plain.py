"""A plain client in the operator's place: it only writes the given objects, without decisions and watches.

It uses the operator's account, since no other account may create pods of a job.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from benchmarks.live.place import OPERATOR, Body, Place
from benchmarks.scale.fill import COLLECTIONS, JOBS, PODS, REQUESTS_AT_ONCE, Curve, until_ready
from benchmarks.scale.scenario import Scenario
from elastic_worker.contract import LABEL_JOB_NAME

AS_OPERATOR = {"Impersonate-User": OPERATOR}
OF_SERVER = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "deletionTimestamp")
CLUSTER_OF_SERVICE = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


@dataclass(slots=True)
class Objects:
    """The objects of one job except itself, by collection and body, the pods last; and its status."""

    status: Body
    others: list[tuple[str, Body]] = field(default_factory=list)
    pods: list[tuple[str, Body]] = field(default_factory=list)


def recorded(place: Place) -> dict[str, Objects]:
    """The objects of each existing job, as their writer sent them."""
    found = {job["metadata"]["name"]: Objects(job["status"]) for job in place.items(JOBS)}
    for name, path in COLLECTIONS.items():
        for body in place.items(path):
            job = body["metadata"].get("labels", {}).get(LABEL_JOB_NAME)
            if job in found:
                (found[job].pods if path == PODS else found[job].others).append((path, _as_sent(name, body)))
    return found


def _as_sent(collection: str, body: Body) -> Body:
    """The object without the additions of the API server and the scheduler."""
    sent = copy.deepcopy(body)
    sent.pop("status", None)
    for key in OF_SERVER:
        sent["metadata"].pop(key, None)
    if collection == "services" and sent["spec"].get("clusterIP") != "None":
        for key in CLUSTER_OF_SERVICE:
            sent["spec"].pop(key, None)
    if collection == "pods":
        sent["spec"].pop("nodeName", None)
        sent["spec"].pop("priority", None)
        sent["spec"].pop("preemptionPolicy", None)
    return sent


def same_objects(place: Place, plan: Scenario, objects: dict[str, Objects]) -> Curve:
    """Create each job, its objects, its pods, and one status, as fast as possible. Everything stays."""

    def write(name: str) -> None:
        uid = place.create(JOBS, plan.job(name))["metadata"]["uid"]
        mine = objects[name]
        for path, body in (*mine.others, *mine.pods):
            for owner in body["metadata"].get("ownerReferences", ()):
                owner["uid"] = uid
            place.create(path, body, headers=AS_OPERATOR)
        place.merge(f"{JOBS}/{name}/status", {"status": mine.status}, headers=AS_OPERATOR)

    return _measured(place, plan, list(objects), write)


def pods_only(place: Place, plan: Scenario, objects: dict[str, Objects]) -> Curve:
    """Create the pods alone, without an owner. The first of each job's pods counts as the job's own arrival."""

    def write(name: str) -> None:
        for path, body in objects[name].pods:
            place.create(path, of_nobody(body))

    return _measured(place, plan, list(objects), write)


def _measured(place: Place, plan: Scenario, jobs: list[str], write: Callable[[str], None]) -> Curve:
    place.quiet()
    since = place.now()
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        list(pool.map(write, jobs))
    return until_ready(place, jobs, len(jobs) * plan.size, since=since)


def of_nobody(body: Body) -> Body:
    """The pod without its owner: other accounts may not create pods that claim to be a job's."""
    meta = {"name": body["metadata"]["name"]}
    spec = {key: value for key, value in body["spec"].items() if key != "priorityClassName"}
    return {"metadata": meta, "spec": spec}
