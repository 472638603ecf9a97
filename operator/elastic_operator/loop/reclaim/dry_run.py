"""Asks the API server by dry runs whether it would accept a job's planned pods (139).

One pod of each template is tried; if only the master declares ports of its node, one pod of each role. For
ResourceQuotas, all pods are also tried as one pod with the sum of their requests. The requests of the namespace's
leaving pods are subtracted from the sum, because a quota counts these pods until they are deleted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from elastic_api.elastic import requested_template
from elastic_api.job import JobSpec
from elastic_api.ports import master_port
from elastic_api.template import limits_of, main_container, requests_of
from elastic_operator.build.names import service_name
from elastic_operator.build.pod import build_pod
from elastic_operator.build.request import BuildSettings
from elastic_operator.cluster import objects, pod_requests
from elastic_operator.cluster.errors import ApiError, ClusterError, refuses_pod
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.stores import Stores
from elastic_operator.loop.writes.create import raise_refusal
from elastic_operator.plan.facts.decisions import NewPods
from elastic_operator.plan.facts.job import Job
from elastic_worker import contract

NO_ADDRESS = "192.0.2.1"
"""The address in tried pods that stands for a Service which does not exist yet. Nobody uses this address (RFC 5737)."""
_QUOTA = "exceeded quota"
_PODS = re.compile(r"requested: (?:count/)?pods=\d+, used: (?:count/)?pods=(\d+), limited: (?:count/)?pods=(\d+)$")

Amounts = Counter[str]


@dataclass(frozen=True, slots=True)
class DryRunQuestion:
    """A question: whether the pods `creates` of the job would be accepted after `besides`, pods of other jobs of the
    namespace.

    `leaving` finds the pods of the namespace that are to be deleted or are being deleted.
    """

    job: Job
    creates: NewPods
    besides: tuple[tuple[Job, Counter[str]], ...] = ()
    """Other jobs, each with the number of pods of each role that the job is still to get."""
    leaving: Callable[[], Iterable[objects.Pod]] = tuple
    needed: bool = True
    """Whether the job lacks its minimum without the pods for which others would be evicted."""


class DryRunner:
    """Asks by dry runs; creates nothing."""

    def __init__(self, session: Session, stores: Stores, build: BuildSettings) -> None:
        self._session, self._stores, self._build = session, stores, build

    async def ask(self, question: DryRunQuestion) -> None:
        """Ask about all pods of the question. Raises PodRefused, and ClusterError if there was no answer."""
        job, new, leaving = question.job, question.creates, tuple[objects.Pod, ...]()
        spec = job.spec
        assert spec is not None, "pods are planned from a spec that could be read"
        address, port = self._meeting_point(job, spec)
        same = spec.template_of(contract.ROLE_MASTER) is spec.template_of(contract.ROLE_WORKER)
        common = same and port == contract.MASTER_PORT  # else only the master declares ports of its node (122)
        for slot in {common or slot.role: slot for slot in new.slots}.values():
            manifest = build_pod(job, spec, new, slot, service_ip=address, port=port, settings=self._build)
            try:
                await pod_requests.try_pod(self._session, manifest)
            except ClusterError as error:
                explained = tuple(question.leaving()) if _is_about_quota(error) else ()
                if not explained:
                    raise_refusal(error, slot.role, manifest, spec.template_of(slot.role))
                    raise
                leaving = explained
        if leaving or len(new.slots) > 1 or question.besides:
            await self._ask_for_all(question, slot.role, manifest, leaving)

    def _meeting_point(self, job: Job, spec: JobSpec) -> tuple[str, int]:
        """The address and port of the job's Service, or of the one that would be created for it."""
        service = self._stores.services.named(service_name(job.name), job.namespace)
        if service is None:
            return NO_ADDRESS, master_port(job.uid, spec)
        return service.spec.cluster_ip, service.port

    async def _ask_for_all(
        self, question: DryRunQuestion, role: str, manifest: dict[str, Any], leaving: Sequence[objects.Pod]
    ) -> None:
        """Try all pods as one pod, without the requests of the leaving pods. If that pod is refused because a single
        pod may not be so large (LimitRange, webhooks), the refusal does not count.
        """
        requests, limits, count = _asked_in_all(question)
        for pod in leaving:
            spec = {"spec": msgspec.to_builtins(pod.spec)}
            requests.subtract(requests_of(spec))
            limits.subtract(limits_of(spec))
        try:
            await pod_requests.try_pod(self._session, summed_pod(manifest, requests, limits))
        except ApiError as error:
            if not _is_about_quota(error):
                if refuses_pod(error):
                    return
                raise
            if leaving and _has_room_for(count - len(leaving), error):
                return
            if not leaving and (leaving := tuple(question.leaving())):
                await self._ask_for_all(question, role, manifest, leaving)
                return
            raise_refusal(error, role, manifest, manifest)
            raise


def _is_about_quota(error: ClusterError) -> bool:
    return isinstance(error, ApiError) and _QUOTA in error.message


def _has_room_for(more: int, error: ApiError) -> bool:
    """Whether the quota refuses only by its number of pods, and allows `more` pods beside the ones that it counts
    now.
    """
    found = _PODS.search(error.message)
    return found is not None and int(found[1]) + more <= int(found[2])


def _asked_in_all(question: DryRunQuestion) -> tuple[Amounts, Amounts, int]:
    """The requests, limits and number of all these pods."""
    requests, limits, count = Amounts(), Amounts(), 0
    for job, roles in ((question.job, question.creates.roles), *question.besides):
        for role, number in roles.items():
            assert job.spec is not None, "pods are planned from a spec that could be read"
            template = requested_template(job.spec, role)
            requests.update({name: n * number for name, n in requests_of(template).items()})
            limits.update({name: n * number for name, n in limits_of(template).items()})
            count += number
    return requests, limits, count


def summed_pod(manifest: Mapping[str, Any], requests: Mapping[str, int], limits: Mapping[str, int]) -> dict[str, Any]:
    """A pod with one container that has all these requests. A limit is never below its request; for GPUs the two are
    equal.
    """
    asked = {name: max(0, n) for name, n in requests.items()}
    most = {name: max(n, asked.get(name, 0)) for name, n in limits.items()}
    most |= {name: n for name, n in asked.items() if "/" in name or name.startswith("hugepages-")}
    resources = {
        kind: {name: _quantity(name, n) for name, n in of.items()}
        for kind, of in (("requests", asked), ("limits", most))
    }
    spec = {name: part for name, part in manifest["spec"].items() if name not in ("initContainers", "resources")}
    return {**manifest, "spec": {**spec, "containers": [{**main_container(manifest), "resources": resources}]}}


def _quantity(resource: str, amount: int) -> str:
    if resource != "cpu":
        return str(amount)
    return f"{amount}m" if amount % 1000 else str(amount // 1000)
