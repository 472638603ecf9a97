"""Jobs of which each waits for something: a back-off, a deadline, a node that may come back. One only trains."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import Any

from elastic_operator.plan.facts.waits import MAX_BACKOFF_SECONDS
from tests.api.jobs import make_job, with_gpus
from tests.apiserver.faults.lab import MERGE, World, now
from tests.apiserver.jobs_api import accepted
from tests.apiserver.operators import eventually

POOLS = ("trains", "back-off", "deadline", "lost", "cut-off")
LOSSES = ("lost", "cut-off")
"""What ends by the loss of a node."""
DEADLINE_SECONDS = 18
LOSS_SECONDS = 9
EARLY_SECONDS = 3
"""Times have whole seconds, and how far a clock stepped is known to a second."""
LATE_SECONDS = 20
POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Look:
    """What there is: uids of pods by name, statuses of jobs by name."""

    pods: Mapping[str, str]
    jobs: Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class Wait:
    """What takes so long, is due between these moments (epoch seconds on the real clock), how it is seen, and when it
    `came`.
    """

    seconds: float
    first: float
    last: float
    seen: Callable[[Look], bool]
    came: float | None = None


@dataclass(slots=True)
class Waits:
    """The jobs, each with two nodes of one GPU for itself."""

    world: World
    found: dict[str, Wait] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    """Nodes that are not Ready, with since when."""
    trains: list[str] = field(default_factory=list)
    """The pods (uids) of the job that only trains."""

    def begin(self, *losing: str) -> None:
        """All run and wait for something; the one that backs off failed last, and just now."""
        self._set_up_nodes()
        self._start("trains")
        self._runs("trains")
        self.trains = self._uids("trains")
        self._start("back-off", recovery={"maxFailuresWithoutProgress": 100})
        self._fail(1)
        self._fail(2)
        self._start("deadline", activeDeadlineSeconds=DEADLINE_SECONDS)
        self._start("lost", recovery={"nodeLossSeconds": LOSS_SECONDS})
        self._start("cut-off", recovery={"nodeLossSeconds": LOSS_SECONDS})
        self._fail(3)
        self._wait_for_the_deadline()
        for pool in losing:
            self._wait_for_a_node(pool)
        self._fail(4)
        self._wait_for_a_new_try()

    def allow(self, step: float) -> None:
        """What a step may cost until now: waits that come early, or whose longest time begins now."""
        for name, wait in self.found.items():
            if name not in LOSSES:
                wait.first = wait.first if step < 0 else -inf
                wait.last = max(wait.last, time.time() + (wait.seconds if step < 0 else 0))

    def edit(self) -> None:
        """A change that the operator answers with a write at once."""
        accepted(self.world.jobs.patch("back-off", {"spec": {"recovery": {"maxFailuresWithoutProgress": 99}}}))

    def lose_another_node(self) -> None:
        """One that was Ready until now, whatever the clock says."""
        self._wait_for_a_node("cut-off")

    def watch(self) -> None:
        """Until everything came, or is late."""
        last = max(wait.last for wait in self.found.values()) + LATE_SECONDS
        while any(wait.came is None for wait in self.found.values()) and time.time() < last:
            self._say_that_nodes_are_lost()
            look = self.look()
            for wait in self.found.values():
                if wait.came is None and wait.seen(look):
                    wait.came = time.time()
            time.sleep(POLL_SECONDS)

    def amiss(self) -> dict[str, float]:
        """What came too early or too late, and by how many seconds: negative if early, infinite if it never came, or
        if the job that only trains has lost its pod.
        """
        off = {
            name: round((wait.came or inf) - wait.first, 1)
            for name, wait in self.found.items()
            if not wait.first - EARLY_SECONDS <= (wait.came or inf) <= wait.last + LATE_SECONDS
        }
        return off | ({} if self._uids("trains") == self.trains else {"trains": inf})

    def look(self) -> Look:
        """What there is now."""
        jobs = self.world.api.get(self.world.jobs.path).raise_for_status().json()["items"]
        return Look(
            {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.world.pods()},
            {job["metadata"]["name"]: job.get("status", {}) for job in jobs},
        )

    def _set_up_nodes(self) -> None:
        for node, pool in zip(self.world.kubelets.nodes, POOLS * 2, strict=True):
            self._change_node(node, {"metadata": {"labels": {"pool": pool}}})

    def _change_node(self, node: str, change: dict[str, Any], *, of: str = "") -> None:
        self.world.api.patch(f"/api/v1/nodes/{node}{of}", headers=MERGE, json=change).raise_for_status()

    def _start(self, name: str, **spec: Any) -> None:
        pod = {"containers": [with_gpus(1, image="local/none:1")], "nodeSelector": {"pool": name}}
        fields = {"maxReplicas": 1, "template": {"spec": pod}, **spec}
        accepted(self.world.jobs.create(make_job(name, **fields)))

    def _fail(self, attempt: int) -> None:
        self._runs("back-off")
        self.world.end("back-off-master-0", 1)
        self._eventually("its failure", lambda: self._retry().get("attempt") == attempt)

    def _retry(self) -> dict[str, Any]:
        retry: dict[str, Any] = self.world.status("back-off").get("retry", {})
        return retry

    def _wait_for_a_new_try(self) -> None:
        due = self._retry()["notBefore"]
        self._eventually("the failed pod to go", lambda: not self.world.pods("back-off"))
        self._expect("back-off", due, 0, lambda look: "back-off-master-0" in look.pods, longest=MAX_BACKOFF_SECONDS)

    def _wait_for_the_deadline(self) -> None:
        began = self._runs("deadline")["activeSince"]
        self._expect("deadline", began, DEADLINE_SECONDS, lambda look: "completionTime" in look.jobs["deadline"])

    def _wait_for_a_node(self, pool: str) -> None:
        self._runs(pool)
        [pod] = self.world.pods(pool)
        began, name, uid = now(), pod["metadata"]["name"], pod["metadata"]["uid"]
        self._lose(pod["spec"]["nodeName"], began)
        self._expect(pool, began, LOSS_SECONDS, lambda look: look.pods.get(name, uid) != uid)

    def _lose(self, node: str, since: str) -> None:
        self.world.kubelets.nodes.remove(node)
        self.lost[node] = since
        self._say_that_nodes_are_lost()

    def _say_that_nodes_are_lost(self) -> None:
        """Again and again: of a node that says nothing the node controller says something, with a time of its own."""
        for node, since in self.lost.items():
            times = {"lastTransitionTime": since, "lastHeartbeatTime": now()}
            conditions = [{"type": "Ready", "status": "False", "reason": "Test", **times}]
            self._change_node(node, {"status": {"conditions": conditions}}, of="/status")

    def _runs(self, name: str) -> dict[str, Any]:
        self._eventually(f"{name} to run", lambda: self.world.settled(name, 1))
        return self.world.status(name)

    def _uids(self, job: str) -> list[str]:
        return [pod["metadata"]["uid"] for pod in self.world.pods(job)]

    def _expect(
        self, what: str, began: str, seconds: float, seen: Callable[[Look], bool], longest: float = 0.0
    ) -> None:
        due = datetime.fromisoformat(began).timestamp() + seconds
        self.found[what] = Wait(longest or seconds, due, due, seen)

    def _eventually(self, what: str, look: Callable[[], object]) -> None:
        eventually(what, look, report=self.world.report)
