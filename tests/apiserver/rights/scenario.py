"""A day of the operator in which it does everything that it ever does: what it asks for then is what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.apiserver.faults.lab import World, elastic_job, put_status
from tests.apiserver.faults.proxy import Filter, Proxy, Request
from tests.apiserver.operators import LEASE, Operator, eventually
from tests.apiserver.policies_api import Policies, quota
from tests.apiserver.reclaim.lab import Notebooks

ADDRESS = "10.9.0.8"
MARK = "rights-test-looks-away"


@dataclass(slots=True)
class Blind(Filter):
    """Keeps news of the objects whose text contains one of these words from the operator."""

    words: list[bytes] = field(default_factory=list)

    def body(self, request: Request, data: bytes) -> bytes:
        """An event of a watch, or nothing in its place."""
        return b"" if request.watches and any(word in data for word in self.words) else data


@dataclass(slots=True)
class Day:
    """Where it takes place: `world` has the jobs, `notebooks` the plain pods of a team to which GPUs are guaranteed."""

    world: World
    notebooks: Notebooks
    policies: Policies
    watcher: Proxy
    start: Callable[[], Operator]
    blind: Blind = field(default_factory=Blind)

    def live(self) -> None:
        """All of it."""
        self.watcher.filter = self.blind
        self.world.api.delete(LEASE)
        self.policies.create("jobs", namespaces=[self.world.jobs.namespace], flavors=quota(2))
        self.policies.create("owner", namespaces=[self.notebooks.namespace], flavors=quota(4))
        first = self.start()
        self.a_plain_job()
        self.a_name_that_is_taken()
        self.a_service_that_is_taken()
        self.a_job_that_changed_unseen()
        self.a_job_suspended_twice()
        self.an_elastic_job_that_gives_way()
        self.a_job_that_is_deleted_when_it_ends()
        self.policies.wait_condition("jobs", "Ready", "True", "InForce")
        second = self.start()
        first.stop()
        eventually("another leader", lambda: second.leads, report=second.text)

    def a_plain_job(self) -> None:
        """A pod fails, so its log is read; a new master comes with another address."""
        self.world.start(elastic_job("toy", small=1, big=1))
        self.world.wait_settled("toy", 1)
        self.world.end("toy-master-0", 1)
        eventually("another try", lambda: self.world.status().get("failures") == 1, report=self.world.report)
        self.world.wait_settled("toy", 1)
        [master] = self.world.pods("toy")
        put_status(self.world.api, master, {"podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]})
        eventually("the new address", lambda: ADDRESS in self._slice())

    def a_name_that_is_taken(self) -> None:
        """By a pod that the operator has not heard of when it makes its own."""
        path, name = self.world.pods_path, "toy-worker-0"
        self.blind.words = [f'"name":"{name}"'.encode()]
        container = {"name": "main", "image": "local/none:1"}
        body = {"metadata": {"name": name}, "spec": {"containers": [container], "schedulerName": "nobody"}}
        self.world.api.post(path, json=body).raise_for_status()
        self.world.jobs.patch("toy", {"spec": {"maxReplicas": 2}})
        eventually("a look at whose it is", lambda: self._asked("GET", f"{path}/{name}"))
        self.blind.words = []
        self.world.delete_pod(name)
        self.world.wait_settled("toy", 2)

    def a_service_that_is_taken(self) -> None:
        """Somebody else has the names of a job's Service and of its EndpointSlice."""
        name, services = "taken-master", self.world.pods_path.removesuffix("pods") + "services"
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{self.world.jobs.namespace}/endpointslices"
        meta = {"name": name}
        service = {"metadata": meta, "spec": {"ports": [{"port": 1}], "selector": {"app": "another"}}}
        self.world.api.post(services, json=service).raise_for_status()
        empty = {"metadata": meta, "addressType": "IPv4", "endpoints": [], "ports": []}
        self.world.api.post(slices, json=empty).raise_for_status()
        self.world.start(elastic_job("taken", small=1, big=1))
        for path in (services, slices):
            eventually(f"a look at whose {path} it is", lambda path=path: self._asked("GET", f"{path}/{name}"))
            self.world.api.delete(f"{path}/{name}").raise_for_status()
        self.world.wait_settled("taken", 1)
        self.world.delete_job("taken")
        eventually("its end", lambda: not self.world.pods("taken"))

    def a_job_that_changed_unseen(self) -> None:
        """Its status is written on a state that is no more."""
        self.blind.words = [MARK.encode()]
        self.world.jobs.patch("toy", {"metadata": {"labels": {MARK: ""}}})
        self.world.end("toy-worker-0", 1)
        eventually("a look at the job", lambda: self._asked("GET", f"{self.world.jobs.path}/toy"))
        self.blind.words = []
        self.world.wait_settled("toy", 2)

    def a_job_suspended_twice(self) -> None:
        """The second time the same event is told again."""
        for suspend in (True, False, True, False):
            self.world.jobs.patch("toy", {"spec": {"suspend": suspend}})
            self.world.wait_settled("toy", 0 if suspend else 2)
        self.world.delete_job("toy")
        eventually("its end", lambda: not self.world.pods())

    def an_elastic_job_that_gives_way(self) -> None:
        """It has a Secret, its master is told who takes part, and a foreign pod gets one of its GPUs."""
        job = elastic_job("quick", small=1, big=8)
        job["spec"]["runtime"] = {"mode": "Elastic"}
        job["spec"]["elasticity"]["checkpointPath"] = "/checkpoints"
        self.world.start(job)
        self.world.wait_settled("quick", 8)
        self.notebooks.create()
        self.notebooks.wait_bound()
        self.world.wait_settled("quick", 7)
        self.notebooks.delete()
        self.world.delete_job("quick")
        eventually("its end", lambda: not self.world.pods())

    def a_job_that_is_deleted_when_it_ends(self) -> None:
        """Because it says so."""
        self.world.start(elastic_job("short", small=1, big=1, ttlSecondsAfterFinished=0))
        self.world.wait_settled("short", 1)
        self.world.end("short-master-0", 0)
        eventually("its end", lambda: self.world.api.get(f"{self.world.jobs.path}/short").status_code == 404)

    def _slice(self) -> str:
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.world.jobs.namespace}/endpointslices"
        return self.world.api.get(path).text

    def _asked(self, method: str, path: str) -> bool:
        return any(e.request.method == method and e.request.path == path for e in list(self.watcher.log))
