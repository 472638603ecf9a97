"""Makes the shape of a job from its spec: finds the flavor that all its pods can use, and limits them to its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from elastic_api.elastic import requested_template
from elastic_api.job import JobSpec
from elastic_api.ports import declared_ports, master_port
from elastic_operator.plan.facts.allocation_inputs import AllocationSettings
from elastic_operator.plan.facts.pod_shape import VolumeFacts, shape_of
from elastic_operator.plan.facts.requirements import JobShape, PodShape
from elastic_operator.plan.facts.team import Flavor
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER


def shape_of_spec(
    spec: JobSpec, uid: str, *, settings: AllocationSettings, volumes: VolumeFacts, lowest_priority: int
) -> JobShape:
    """The shapes of the pods of the job with that spec and uid, with all that the operator adds to the templates.

    `volumes` are the facts on the `claims_of` the spec.
    """
    of_master, of_worker = (requested_template(spec, role) for role in (ROLE_MASTER, ROLE_WORKER))
    master = worker = shape_of(of_master, gpu_resources=settings.gpu_resources, volumes=volumes)
    if of_worker != of_master:
        worker = shape_of(of_worker, gpu_resources=settings.gpu_resources, volumes=volumes)
    port = master_port(uid, spec)
    if ours := {("", "TCP", number) for number in declared_ports(port, ROLE_MASTER, is_elastic=spec.is_elastic)}:
        master = replace(master, host_ports=master.host_ports | ours)
    return job_shape(master, worker, flavors=settings.flavors, lowest_priority=lowest_priority)


def claims_of(spec: JobSpec) -> frozenset[str]:
    """The volume claims, in the job's namespace, that the templates of the spec name."""
    templates = (spec.template_of(role) for role in (ROLE_MASTER, ROLE_WORKER))
    volumes = (volume for template in templates for volume in template["spec"].get("volumes") or ())
    return frozenset(v["persistentVolumeClaim"]["claimName"] for v in volumes if v.get("persistentVolumeClaim"))


def job_shape(master: PodShape, worker: PodShape, *, flavors: Sequence[Flavor], lowest_priority: int = 0) -> JobShape:
    """The shapes of a job's pods. Pods with GPUs are limited to the nodes of the one flavor that suits all of them."""
    with_gpus = [shape for shape in (master, worker) if shape.gpus]
    if not with_gpus:
        return JobShape(master, worker, "", "", lowest_priority)
    counted = {name for flavor in flavors for name in flavor.resources}
    requested = {name for name in counted if any(shape.requests.get(name) for shape in with_gpus)}
    counting = [flavor for flavor in flavors if requested <= set(flavor.resources)]
    selectors = [shape.node_selector for shape in with_gpus]  # a selector may exclude the nodes of a flavor
    suitable = [
        flavor
        for flavor in counting
        if all(one.get(key, value) == value for one in selectors for key, value in flavor.node_selector.items())
    ]
    if len(suitable) != 1:
        problem = _problem(sorted(requested), suitable or counting, bool(suitable))
        return JobShape(master, worker, "", problem, lowest_priority)
    flavor = suitable[0]
    kept = _kept_to(master, flavor)
    return JobShape(kept, kept if worker is master else _kept_to(worker, flavor), flavor.name, "", lowest_priority)


def _kept_to(shape: PodShape, flavor: Flavor) -> PodShape:
    if not shape.gpus or flavor.node_selector.items() <= shape.node_selector.items():
        return shape
    return replace(shape, node_selector={**shape.node_selector, **flavor.node_selector})


def _problem(requested: Sequence[str], flavors: Sequence[Flavor], suits: bool) -> str:
    """Why the flavor is unclear: several flavors suit, or (not `suits`) no flavor with the resources suits."""
    resources = " and ".join(requested)
    choices = "; ".join(f"{_labels(flavor.node_selector)} for {flavor.name}" for flavor in flavors)
    if suits:
        return (
            f"{resources} is a resource of several flavors ({', '.join(f.name for f in flavors)}). Add one of these to"
            f" nodeSelector in the pod template: {choices}."
        )
    if flavors:
        return (
            f"nodeSelector of the pod templates excludes every flavor that has {resources}, or the master's and the"
            f" workers' have none in common. It must agree with one of: {choices}."
        )
    return (
        f"No flavor has {resources} together. Ask in resources.limits of all pods for GPUs of one of the flavors in"
        " the operator's settings only."
    )


def _labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in sorted(labels.items())) or "nothing"
