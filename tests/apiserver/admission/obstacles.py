"""What keeps the API server from taking pods, as data: how it comes, what is told of it, how it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.api.jobs import make_container, make_template
from tests.apiserver.admission.place import Place
from tests.apiserver.admission.webhook import CLOSED, Judge
from tests.apiserver.faults.lab import elastic_job

GPU = "nvidia.com/gpu"
DENIAL = "this cluster is closed on Sundays"
SIDECAR = {"name": "mesh", "image": "local/none:1", "resources": {"requests": {"cpu": "250m"}}}

Remove = Callable[[], object]


def denied(_: dict[str, Any]) -> str:
    """No pod is taken."""
    return DENIAL


def with_sidecar(_: dict[str, Any]) -> list[dict[str, Any]]:
    """A container and a label more, as a service mesh adds them."""
    return [
        {"op": "add", "path": "/spec/containers/-", "value": SIDECAR},
        {"op": "add", "path": "/metadata/labels/mesh", "value": "on"},
    ]


def without_labels(_: dict[str, Any]) -> list[dict[str, Any]]:
    """No label stays, ours included."""
    return [{"op": "replace", "path": "/metadata/labels", "value": {}}]


JUDGES: dict[str, Judge] = {"deny": denied, "sidecar": with_sidecar, "strip": without_labels}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One obstacle.

    Attributes:
        name: Of the case.
        put: Puts it into a namespace, and returns what takes it away.
        job: The job that meets it, of `big` pods.
        meanwhile: How many pods it has as long as the obstacle is there.
        words: What the API server says.
        action: What the user can do.
    """

    name: str
    put: Callable[[Place], Remove]
    words: str
    action: str
    job: dict[str, Any]
    meanwhile: int = 0

    @property
    def big(self) -> int:
        """Pods without the obstacle."""
        size: int = self.job["spec"]["maxReplicas"]
        return size


def too_few_pods(place: Place) -> Remove:
    """A quota of two pods."""
    return place.put_quota(pods="2")


def too_few_gpus(place: Place) -> Remove:
    """A quota of one GPU."""
    return place.put_quota(**{f"requests.{GPU}": "1"})


def small_containers(place: Place) -> Remove:
    """At most one core per container."""
    return place.put("limitranges", {"limits": [{"type": "Container", "max": {"cpu": "1"}}]})


def restricted(place: Place) -> Remove:
    """The strictest level of Pod Security."""
    place.label(**{"pod-security.kubernetes.io/enforce": "restricted"})
    return lambda: place.label(**{"pod-security.kubernetes.io/enforce": None})


def denial(place: Place) -> Remove:
    """A webhook that says no."""
    return place.put_webhook(place.webhook.client_config("deny"))


def policy_denies(place: Place) -> Remove:
    """A ValidatingAdmissionPolicy that says no."""
    return place.put_policy(DENIAL)


def webhook_down(place: Place) -> Remove:
    """A webhook that must be asked and cannot be."""
    return place.put_webhook({"url": CLOSED, "caBundle": place.webhook.authority})


def no_account(place: Place) -> Remove:
    """Nothing: the service account that the template names comes later."""
    body = {"metadata": {"name": "trainer"}}
    return lambda: place.api.post(f"{place.path}/serviceaccounts", json=body).raise_for_status()


def using(**pod: Any) -> dict[str, Any]:
    """A template without GPUs, with fields of the pod."""
    return make_template(make_container(image="local/none:1"), **pod)


TWO_CORES = make_template(
    make_container(image="local/none:1", resources={"requests": {"cpu": 2}, "limits": {"cpu": 2}})
)

OBSTACLES = [
    Obstacle(
        "pod quota",
        too_few_pods,
        "exceeded quota: here, requested: pods=1, used: pods=2, limited: pods=2",
        "have the ResourceQuota raised",
        elastic_job(big=4, gpus=0),
        meanwhile=2,
    ),
    Obstacle(
        "GPU quota below the minimum",
        too_few_gpus,
        f"exceeded quota: here, requested: requests.{GPU}=1, used: requests.{GPU}=1, limited: requests.{GPU}=1",
        "have the ResourceQuota raised",
        elastic_job(small=2, big=2),
    ),
    Obstacle(
        "limit range",
        small_containers,
        "maximum cpu usage per Container is 1, but limit is 2",
        "have the LimitRange changed",
        elastic_job(big=2, template=TWO_CORES),
    ),
    Obstacle(
        "pod security",
        restricted,
        'violates PodSecurity "restricted:latest"',
        "Change the template",
        elastic_job(big=2, gpus=0),
    ),
    Obstacle("webhook says no", denial, DENIAL, "Ask who runs that webhook", elastic_job(big=2, gpus=0)),
    Obstacle(
        "admission policy says no",
        policy_denies,
        f"denied request: {DENIAL}",
        "Ask who wrote that admission policy",
        elastic_job(big=2, gpus=0),
    ),
    Obstacle(
        "webhook is down",
        webhook_down,
        'failed calling webhook "judge.example.com"',
        "Ask who runs that webhook",
        elastic_job(big=2, gpus=0),
    ),
    Obstacle(
        "no service account",
        no_account,
        'serviceaccount "trainer" not found',
        "",
        elastic_job(big=2, template=using(serviceAccountName="trainer")),
    ),
]
