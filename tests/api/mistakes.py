"""Wrong and right jobs, as data. The definition lets the API server store them all: to it a template is opaque.

Each mistake has the three things that the user must be told: the field, what stands there ("" where nothing does), and
what to write instead. The table is fed to the operator's rules and to those of the chart, which are CEL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elastic_api import elastic
from elastic_worker import contract
from tests.api.anything import nested
from tests.api.jobs import make_container, make_job, make_template, with_gpus

TEMPLATE = "spec.template"
POD = f"{TEMPLATE}.spec"
MAIN = f"{POD}.containers[0]"
GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A wrong job and what must be said of it."""

    job: dict[str, Any]
    field: str
    value: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}={self.value}"


def in_template(template: Any, field: str, value: str, remedy: str) -> Mistake:
    """A mistake of the template as a whole."""
    return Mistake(make_job(template=template), f"{TEMPLATE}{field}", value, remedy)


def in_pod(field: str, value: str, remedy: str, **pod: Any) -> Mistake:
    """A mistake among the fields `pod` of the pod's spec; "" as `field` is their one name."""
    return Mistake(make_job(template=make_template(**pod)), f"{POD}.{field or next(iter(pod))}", value, remedy)


def in_main(field: str, value: str, remedy: str, **main: Any) -> Mistake:
    """A mistake among the fields `main` of the main container; "" as `field` is their one name."""
    job = make_job(template=make_template(make_container(**main)))
    return Mistake(job, f"{MAIN}.{field or next(iter(main))}", value, remedy)


def in_limits(resource: str, quantity: Any, value: str, remedy: str) -> Mistake:
    """A mistake in what the main container asks of one resource."""
    step = f"[{resource}]" if "." in resource or "/" in resource else f".{resource}"
    return in_main(f"resources.limits{step}", value, remedy, resources={"limits": {resource: quantity}})


def in_elastic_pod(field: str, value: str, remedy: str, **pod: Any) -> Mistake:
    """A mistake among the fields `pod` of a pod's spec that is one in Elastic mode only."""
    job = make_job(template=make_template(**pod), runtime={"mode": "Elastic"})
    return Mistake(job, f"{POD}.{field}", value, remedy)


def in_elastic_main(field: str, value: str, remedy: str, **main: Any) -> Mistake:
    """A mistake among the fields `main` of the main container that is one in Elastic mode only."""
    return in_elastic_pod(f"containers[0].{field}", value, remedy, containers=[make_container(**main)])


def requiring(key: str, operator: str) -> dict[str, Any]:
    """Affinity that demands something of a node's label."""
    terms = [{"matchExpressions": [{"key": key, "operator": operator}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def claiming(**source: Any) -> dict[str, Any]:
    """A volume of an existing claim, as `source` names it."""
    return {"name": "data", "persistentVolumeClaim": source}


def with_env(*names: str) -> dict[str, Any]:
    """The main container, setting these variables."""
    return make_container(env=[{"name": name, "value": "1"} for name in names])


def in_role(role: str, field: str, value: str, remedy: str, template: dict[str, Any]) -> Mistake:
    """A mistake in the template of one role."""
    return Mistake(make_job(**{role: {"template": template}}), f"spec.{role}.template.spec.{field}", value, remedy)


TOO_DEEP = "must not be nested deeper than 64 levels"
ABSENT = "must be absent: there is no such field; check its spelling and its indentation"
STRING = "must be a string; put a number or a truth value in quotes"
UNIQUE = "must be different from the other containers' names"
NUMBER = "must be a number with an optional suffix, such as 1, 500m or 16Gi"
PROGRAM = "must be the script and its arguments (as in [train.py, --lr, '0.1']), or command the program to run"
RESERVED = "must not be set here, remove it: the operator sets it, because"
RESOURCE = "must be one of cpu, memory, ephemeral-storage, hugepages-SIZE, or a name with a domain"
NO_GPUS = "must ask for GPUs: the master trains too, and the workers have"
NEVER = "must be Never or absent: the operator itself replaces pods"
LIMIT = "must stand in limits"
GPU_REQUEST = f"resources.requests[{GPU}]"
EXPRESSION = (
    "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]"
)
ONE, TWO = {GPU: 1}, {GPU: "2"}
LOG = {"name": "log", "image": "i:1"}
WITHOUT_GPUS, WITH_GPUS = {"template": make_template()}, {"template": make_template(with_gpus(2))}

OURS = "must be different: in Elastic mode the operator adds one of that name"
ELSEWHERE = "must be another folder: in Elastic mode the operator mounts its own there"
INJECT = make_container(name="elastic-pytorch-inject")
WITH_NPROC = [{"name": "ELASTIC_NPROC", "value": "2"}]
WITH_TOKEN = [{"name": "ELASTIC_WARM", "value": "0"}, {"name": "ELASTIC_TOKEN", "value": "x"}]

ELASTIC_MISTAKES = [
    in_elastic_pod("volumes[0].name", "'elastic-runtime'", OURS, volumes=[{"name": "elastic-runtime"}]),
    in_elastic_pod("volumes[1].name", "'elastic-wish'", OURS, volumes=[{"name": "a"}, {"name": "elastic-wish"}]),
    in_elastic_pod("volumes[0].name", "'elastic-scratch'", OURS, volumes=[{"name": "elastic-scratch"}]),
    in_elastic_pod(
        "initContainers[0].name",
        "'elastic-pytorch-inject'",
        OURS,
        initContainers=[INJECT],
    ),
    in_elastic_main(
        "env[0].name", "'ELASTIC_NPROC'", "must not be set here, write spec.nprocPerNode instead", env=WITH_NPROC
    ),
    in_elastic_main("env[1].name", "'ELASTIC_TOKEN'", "must not be set here, remove it", env=WITH_TOKEN),
    in_elastic_pod(
        "containers[0].env[0].name",
        "'ELASTIC_ALIGN_SECONDS'",
        "must not be set here, write spec.elasticity.alignTimeoutSeconds instead",
        containers=[with_env(*sorted(elastic.RESERVED_ENV))],
    ),
    in_elastic_pod("containers[1].name", "'elastic-pytorch-inject'", OURS, containers=[make_container(), INJECT]),
    *(
        in_elastic_main(
            "volumeMounts[0].mountPath", f"'{path}'", ELSEWHERE, volumeMounts=[{"name": "a", "mountPath": path}]
        )
        for path in ("/elastic-pytorch", "/etc/elastic-pytorch/", "/var/run/elastic-pytorch")
    ),
]

MISTAKES = [
    *ELASTIC_MISTAKES,
    in_template({}, ".spec", "", "must be present"),
    in_template({"spec": None}, ".spec", "null", "must be a mapping"),
    in_template({"spec": {}}, ".spec.containers", "", "must be present"),
    in_template({"spec": {"containers": []}}, ".spec.containers", "a list", "must have at least 1 entries"),
    in_template({"spec": {"containers": None}}, ".spec.containers", "null", "must be a list"),
    in_template({"spec": {"containers": {}}}, ".spec.containers", "a mapping", "must be a list"),
    in_template({"spec": {"containers": ["x"]}}, ".spec.containers[0]", "'x'", "must be a mapping"),
    in_template({**make_template(), "containers": []}, ".containers", "a list", ABSENT),
    in_template({**make_template(), "metadata": {"lables": {"a": "b"}}}, ".metadata.lables", "a mapping", ABSENT),
    in_template({**make_template(), "metadata": {"labels": {"a": 1}}}, ".metadata.labels.a", "1", STRING),
    in_main("", "", "must be present", name=None),
    in_main("", "''", "must not be empty", name=""),
    in_main("", "", "must be present", image=None),
    in_main("args[1]", "0.1", STRING, args=["--lr", 0.1]),
    in_main("command[0]", "1", STRING, command=[1]),
    in_main("", "", PROGRAM, args=None),
    in_main("", "", PROGRAM, args=[]),
    in_main("workingDir", "5", STRING, workingDir=5),
    in_main("env[0].value", "true", STRING, env=[{"name": "A", "value": True}]),
    in_main("env[0].name", "", "must be present", env=[{"value": "1"}]),
    in_main("env", "a mapping", "must be a list", env={"A": "1"}),
    in_main("env[0].name", "'WORLD_SIZE'", RESERVED, env=[{"name": "WORLD_SIZE", "value": "8"}]),
    in_main("env[1].name", "'PET_NNODES'", RESERVED, env=[{"name": "A"}, {"name": "PET_NNODES", "value": "8"}]),
    in_main("env[0].name", "'PET_RDZV_ID'", RESERVED, env=[{"name": "PET_RDZV_ID", "value": "mine"}]),
    in_main("env[0].name", "'PET_RDZV_ANYTHING'", f"{RESERVED} it is how", env=[{"name": "PET_RDZV_ANYTHING"}]),
    in_pod(
        "containers[0].env[1].name",
        "'MASTER_ADDR'",
        f"{RESERVED} it is how the pods find their master",
        containers=[with_env("MINE", *contract.RESERVED_ENV)],
    ),
    in_pod("containers[1].args", "", PROGRAM, containers=[LOG, make_container(args=[])]),
    in_main("ports[0].containerPort", "'80'", "must be an integer", ports=[{"containerPort": "80"}]),
    in_main("volumeMounts[0].mountPath", "", "must be present", volumeMounts=[{"name": "data"}]),
    in_pod("", "'Always'", NEVER, restartPolicy="Always"),
    in_pod("", "'OnFailure'", NEVER, restartPolicy="OnFailure"),
    in_role("master", "restartPolicy", "'Always'", NEVER, make_template(restartPolicy="Always")),
    in_role("worker", "containers[0].args", "", PROGRAM, make_template(make_container(args=None))),
    in_pod("nodeSelector.zone", "null", STRING, nodeSelector={"zone": None}),
    in_pod("nodeSelector[example.com/zone]", "1", STRING, nodeSelector={"example.com/zone": 1}),
    in_pod("", "-1", "must be at least 0", terminationGracePeriodSeconds=-1),
    in_pod("", "'30'", "must be an integer", terminationGracePeriodSeconds="30"),
    in_pod("", "1.1805916207174113e+21", "must be an integer", terminationGracePeriodSeconds=float(2**70)),
    in_pod("", "'false'", "must be true or false", enableServiceLinks="false"),
    in_pod("overhead.cpu", "'much'", NUMBER, overhead={"cpu": "much"}),
    in_pod("affinity.nodeAffinity", "a list", "must be a mapping", affinity={"nodeAffinity": []}),
    in_pod("volumes[0].persistentVolumeClaim.claimName", "", "must be present", volumes=[claiming(readOnly=True)]),
    in_pod("volumes[0].persistentVolumeClaim.claimName", "''", "must not be empty", volumes=[claiming(claimName="")]),
    in_pod("imagePullSecrets[0].name", "a list", STRING, imagePullSecrets=[{"name": ["registry"]}]),
    in_pod(f"{EXPRESSION}.operator", "'Inn'", "must be 'In', 'NotIn', 'Exists'", affinity=requiring("a", "Inn")),
    in_pod("containers[1].name", "'pytorch'", UNIQUE, containers=[make_container(), make_container()]),
    in_pod("initContainers[0].name", "'pytorch'", UNIQUE, initContainers=[make_container()]),
    in_limits("memory", "16gb", "'16gb'", NUMBER),
    in_limits("cpu", None, "null", NUMBER),
    in_limits("cpu", -1, "-1", "must be 0 or more"),
    in_limits("memory", "1e100", "'1e100'", "must be smaller: no node has this much"),
    in_limits("cpu", "NaN", "'NaN'", NUMBER),
    in_limits("gpu", 1, "1", RESOURCE),
    in_main("resources.requests[x.y]", "'1'", RESOURCE, resources={"requests": {"x.y": "1", "cpu": "1"}}),
    in_pod(
        "containers[1].resources.limits.g",
        "1",
        RESOURCE,
        containers=[make_container(), LOG | {"resources": {"limits": {"g": 1}}}],
    ),
    in_pod(
        "initContainers[0].resources.limits.g",
        "1",
        RESOURCE,
        initContainers=[LOG | {"resources": {"limits": {"g": 1}}}],
    ),
    in_limits("example.com/fpga", "1.5", "'1.5'", "must be a whole number"),
    in_limits(GPU, "500m", "'500m'", "must be a whole number"),
    in_limits(GPU, 2**60, "1152921504606846976", "must be at most 1024: it counts the GPUs of one pod"),
    in_pod(
        f"resources.limits[{GPU}]", "0", "must stand in the resources of a container", resources={"limits": {GPU: 0}}
    ),
    in_main(GPU_REQUEST, "1", LIMIT, resources={"requests": ONE}),
    in_main(GPU_REQUEST, "'1'", LIMIT, resources={"requests": {GPU: "1"}, "limits": {"cpu": 1}}),
    in_main(GPU_REQUEST, "1", "must equal the limit, 2; or remove", resources={"requests": ONE, "limits": TWO}),
    Mistake(make_job(worker={"template": make_template(with_gpus(4))}), TEMPLATE, "", f"{NO_GPUS} 4"),
    Mistake(
        make_job(master=WITHOUT_GPUS, template=WITH_GPUS["template"]), "spec.master.template", "", f"{NO_GPUS} 2 each"
    ),
    Mistake(make_job(master=WITHOUT_GPUS, worker=WITH_GPUS), "spec.master.template", "", f"{NO_GPUS} 2 each"),
    Mistake(
        make_job(master=WITHOUT_GPUS, template=make_template(with_gpus("many"))),
        f"{MAIN}.resources.limits[{GPU}]",
        "'many'",
        NUMBER,
    ),
    Mistake(make_job(worker={"template": {}}), "spec.worker.template.spec", "", "must be present"),
    Mistake(make_job(template=make_template(x=nested({}, 65))), "spec", "", TOO_DEEP),
    Mistake(make_job(template=make_template(x=nested({}, 200))), "spec", "", TOO_DEEP),
]

RIGHT = {
    "the least": make_job(),
    "never restarts": make_job(template=make_template(restartPolicy="Never")),
    "fields that are null": make_job(
        template=make_template(
            {**make_container(), "env": None, "resources": None}, restartPolicy=None, initContainers=None, volumes=None
        ),
        runtime={"mode": "Elastic"},
    ),
    "GPUs": make_job(
        template=make_template(
            make_container(
                resources={"limits": {GPU: 2}, "requests": {GPU: "2", "cpu": "500m", "hugepages-2Mi": "4Mi"}}
            )
        )
    ),
    "a command": make_job(template=make_template(make_container(args=None, command=["bash", "run.sh"]))),
    "variables": make_job(template=make_template(with_env("NCCL_DEBUG", "PET_MAX_RESTARTS", "PET_RDZVX"))),
    "variables of the user's in Elastic mode": make_job(
        template=make_template(with_env("ELASTIC_WARM")), runtime={"mode": "Elastic"}
    ),
    "variables of the other mode": make_job(template=make_template(with_env(contract.ENV_TOKEN))),
    "a sidecar that sets ours": make_job(
        template=make_template(make_container(), with_env("WORLD_SIZE") | {"name": "log"})
    ),
    "the main container is the second": make_job(template=make_template(LOG, make_container())),
    "a wrong template that nobody uses": make_job(
        template=make_template(make_container(args=None)), master=WITHOUT_GPUS, worker=WITHOUT_GPUS
    ),
    "GPUs of the master alone": make_job(template=make_template(with_gpus("1")), worker=WITHOUT_GPUS),
    "workers without GPUs, with an init container": make_job(
        master=WITHOUT_GPUS, template=make_template(initContainers=[LOG])
    ),
    "our folder in the other mode": make_job(
        template=make_template(make_container(volumeMounts=[{"name": "v", "mountPath": "/elastic-pytorch"}]))
    ),
    "a volume in Elastic mode": make_job(
        template=make_template(volumes=[{"name": "mine", "emptyDir": {}}]), runtime={"mode": "Elastic"}
    ),
}
