"""The hostile team of a soak as the cluster knows it: its namespace, its policy, its rights, what must hold of it."""

from __future__ import annotations

from random import Random

from tests.simulate import server as kinds
from tests.simulate.base_world import BaseWorld
from tests.simulate.facts import FLAVORS, Body, flavor_of, gpus_of, is_over, owner_of, staying
from tests.simulate.violation import require
from tests.soak.fake_nodes import Ends
from tests.soak.mirror import LiveServer, Photo

HOSTILE = "hostile"
"""Its namespace, its policy, its user, and the sort of its acts."""
LIMIT = 6
"""GPUs of each flavor that it may use; its policy is never edited."""
POLICY = {
    "flavors": [{"name": each, "guaranteed": 0, "borrowing": {"weight": 0, "limit": LIMIT}} for each in FLAVORS],
    "namespaces": [HOSTILE],
}
AS_TENANT = {"Impersonate-User": HOSTILE, "Impersonate-Group": "system:authenticated"}
"""Its credentials: the user is bound to `edit` in the namespace."""


class Tenant(BaseWorld):
    """The team in its namespace, which is all that its `server` shows. `kubelets` say how its pods end."""

    def __init__(self, server: LiveServer, kubelets: Ends) -> None:
        super().__init__(server, Random(0))
        self.kubelets = kubelets

    def new_name(self, kind: str) -> str:
        """A name that nothing in the cluster has had yet."""
        return super().new_name(f"{HOSTILE}-{kind}")

    def jobs(self) -> list[Body]:
        """Its jobs, the oldest first."""
        found: list[Body] = self.server.all(kinds.JOBS)
        return found

    def pods(self, job: Body | None) -> list[Body]:
        """Pods of the job that stay; None: plain ones."""
        owners = [job["metadata"]["uid"]] if job else [None]
        pods = filter(staying, self.server.all(kinds.PODS))
        return [pod for pod in pods if (owner_of(pod) or {"uid": None})["uid"] in owners]

    def borrower(self) -> Body | None:
        """A job that has pods and is not over."""
        return self.choose([job for job in self.jobs() if not is_over(job) and self.pods(job)])


def keeps_its_limit(photo: Photo) -> None:
    """At any moment its jobs have no more GPUs than its limit, which was never another one."""
    own = [pod for pod in photo.all(kinds.PODS) if pod["metadata"]["namespace"] == HOSTILE and owner_of(pod)]
    for flavor in FLAVORS:
        used = sum(gpus_of(pod) for pod in own if staying(pod) and flavor_of(pod) == flavor)
        require(used <= LIMIT, f"the hostile team has {used} GPUs of {flavor}, its limit is {LIMIT}")
