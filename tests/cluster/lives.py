"""A job's life: what is done to the job, and what its status and its pods must come to, in a book kept beside.

Every deed is written into the book as it is done. A life is `settled` when the cluster says what the book says; the
counters (restarts, resizes, failures, the history, pods made) are exact: a decision carried out twice, or half, shows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from elastic_operator.api.job import PLURAL
from tests.cluster.lab import Object, Team, is_alive
from tests.cluster.templates import command, job

END = "/end"
UNTIL_TOLD = f"""
order={END}/$HOSTNAME.$ELASTIC_INCARNATION
until [ -e $order ]; do sleep 0.5; done
exit $(cat $order)
"""
"""A pod that ends when it is told, with the exit code that it is told."""


@dataclass(slots=True)
class Life:
    """One job, on pods of so many `gpus`. `made` counts its pods by incarnation; `left` are ended ones that stay."""

    team: Team
    name: str
    gpus: int = 0
    uid: str = ""
    phase: str = ""
    size: int = 0
    most: int = 0
    left: int = 0
    incarnation: int = 1
    restarts: int = 0
    resizes: int = 0
    failures: int = 0
    history: list[tuple[str, int, int]] = field(default_factory=list)
    made: Counter[int] = field(default_factory=Counter)

    # -- deeds -------------------------------------------------------------------------------------------------------

    def starts(self, size: int, *, orders: Path | None = None, **spec: object) -> Self:
        """The job is applied, to run on 1 to `size` pods; with a folder for `orders`, they end when they are told."""
        made = job(self.name, min=1, max=size, template=self._template(orders), **spec)
        return self.applied(made, size)

    def applied(self, manifest: Object, size: int) -> Self:
        """The job is applied as it is, to run on `size` pods."""
        self.team.apply(manifest)
        self.uid = self.team.job(self.name)["metadata"]["uid"]  # type: ignore[index]
        self.phase, self.size, self.most = "Running", size, size
        self._changed("Started", 0, size)
        self._makes(size)
        return self

    def scales(self, size: int) -> Self:
        """kubectl scale. More pods than the present ones were told of at their start are all new ones."""
        self.team.scale(self.name, size)
        before, self.size = self.size, size
        self.resizes += 1
        self._changed("ScaledUp" if size > before else "ScaledDown", before, size)
        if size > self.most:
            self.most = size
            self._all_new()
        else:
            self._makes(max(0, size - before))
        return self

    def loses_worker(self, *options: str) -> Self:
        """Somebody deletes the first worker."""
        worker = next(pod for pod in self.team.pods(self.name) if pod.startswith("worker"))
        self.team.delete_pod(f"{self.name}-{worker}", *options)
        self._lost_one()
        self._makes(1)
        return self

    def loses_master(self) -> Self:
        """Somebody deletes the master by force."""
        self.team.delete_pod(f"{self.name}-master-0", "--force", "--grace-period=0")
        self._lost_one()
        self._all_new()
        return self

    def rests(self) -> Self:
        """The job is suspended."""
        self.team.edit(self.name, suspend=True)
        self.phase = "Suspended"
        self._changed("Suspended", self.size, 0)
        self.incarnation += 1
        return self

    def wakes(self) -> Self:
        """The job goes on."""
        self.team.edit(self.name, suspend=False)
        self.phase = "Running"
        self._changed("Started", 0, self.size)
        self._makes(self.size)
        return self

    def succeeds(self, orders: Path) -> Self:
        """All pods end well, the workers first."""
        for pod in reversed(self.team.pods(self.name)):
            self._order(orders, pod, exit_code=0)
        self.phase, self.left = "Succeeded", self.size
        return self

    def fails(self, orders: Path, *, for_good: bool = False) -> Self:
        """The master ends badly."""
        self._order(orders, "master-0", exit_code=3)
        self.restarts += 1
        self.failures += 1
        if for_good:
            self.phase, self.left = "Failed", 1
        else:
            self._all_new()
        return self

    def ends(self) -> Self:
        """The job is deleted."""
        self.team.kubectl("delete", PLURAL, self.name, "--wait=false")
        self.phase = "gone"
        return self

    # -- the book ----------------------------------------------------------------------------------------------------

    def settled(self) -> bool:
        """Whether the cluster says what the book says."""
        return self.told() == self.expected()

    def expected(self) -> Object:
        """What the book says."""
        if self.phase == "gone":
            return {"phase": "gone", "pods": 0}
        live = self.size if self.phase == "Running" else 0
        return {
            "phase": self.phase,
            "seen": True,
            "replicas": live,
            "ready": live,
            "pods": live + self.left,
            "incarnation": self.incarnation,
            "restarts": self.restarts,
            "resizes": self.resizes,
            "failures": self.failures,
            "history": self.history,
        }

    def told(self) -> Object:
        """What the cluster says of it."""
        found = self.team.job(self.name)
        owned = self._pods()
        if found is None:
            return {"phase": "gone", "pods": len(owned)}
        status = found.get("status") or {}
        reasons = {c["type"]: c["reason"] for c in status.get("conditions", [])}
        return {
            "phase": reasons.get("Ready", ""),
            "seen": status.get("observedGeneration") == found["metadata"]["generation"],
            "replicas": status.get("replicas", 0),
            "ready": sum(map(is_alive, owned)),
            "pods": len(owned),
            "incarnation": status.get("incarnation", 0),
            "restarts": status.get("restarts", 0),
            "resizes": status.get("resizes", 0),
            "failures": status.get("failures", 0),
            "history": [(c["reason"], c["from"], c["to"]) for c in status.get("history", [])],
        }

    def _pods(self) -> list[Object]:
        items = self.team.lab.get(f"/api/v1/namespaces/{self.team.name}/pods")["items"]
        return [p for p in items if any(o["uid"] == self.uid for o in p["metadata"].get("ownerReferences", []))]

    def _template(self, orders: Path | None) -> Object:
        if orders is None:
            return command(gpus=self.gpus)
        volumes = [{"name": "orders", "hostPath": {"path": str(orders)}}]
        mounts = [{"name": "orders", "mountPath": END}]
        return command(UNTIL_TOLD, gpus=self.gpus, volumeMounts=mounts, pod={"volumes": volumes})

    def _order(self, orders: Path, pod: str, *, exit_code: int) -> None:
        """Written beside, then named: the pod reads it whole."""
        unfinished = orders / "unfinished"
        unfinished.write_text(f"{exit_code}\n")
        unfinished.rename(orders / f"{self.name}-{pod}.{self.incarnation}")

    def _changed(self, reason: str, before: int, after: int) -> None:
        self.history.insert(0, (reason, before, after))

    def _lost_one(self) -> None:
        self.restarts += 1
        self._changed("PodLost", self.size, self.size - 1)

    def _all_new(self) -> None:
        self.incarnation += 1
        self._makes(self.size)

    def _makes(self, pods: int) -> None:
        self.made += Counter({self.incarnation: pods})
