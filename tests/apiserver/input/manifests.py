"""Wrong manifests, as data: those that the API server refuses when they are written, and those that it stores and whose
pods it refuses. `tests/api/mistakes.py` has those that the operator finds.
"""

from __future__ import annotations

import json
from typing import Any

from tests.api.jobs import make_container, make_job, make_template
from tests.api.mistakes import ABSENT, MAIN, Mistake, in_main, in_pod, in_template


def in_spec(field: str, value: str, remedy: str, **spec: Any) -> Mistake:
    """A mistake among the fields `spec`; "" as `field` is their one name."""
    return Mistake(make_job(**spec), f"spec.{field or next(iter(spec))}", value, remedy)


def in_metadata(field: str, value: str, remedy: str, **metadata: Any) -> Mistake:
    """A mistake among the fields `metadata`; "" as `field` is their one name."""
    job = make_job()
    job["metadata"] |= metadata
    return Mistake(job, f"metadata.{field or next(iter(metadata))}", value, remedy)


def at_top(field: str, value: str, remedy: str, **fields: Any) -> Mistake:
    """A mistake among the job's own fields; one given as None is left out."""
    job = {name: content for name, content in {**make_job(), **fields}.items() if content is not None}
    return Mistake(job, field, value, remedy)


def typo(field: str, **spec: Any) -> Mistake:
    """A field that does not exist, as the API server names it to clients that ask for strictness, like kubectl."""
    return Mistake(make_job(**spec), f'unknown field "{field}"', "", "")


INTEGER, BOOLEAN, STRING = (f"must be of type {name}" for name in ("integer", "boolean", "string"))
LIST, OBJECT = "must be of type array", "must be of type object"
LABEL = "consist of alphanumeric characters"
SMALLEST = make_template()
MANY = list(range(1, 3001))

AT_THE_DOOR = [
    at_top("spec", "", "Required value", spec=None),
    at_top("spec", '"string"', OBJECT, spec="x"),
    at_top("spec", '"array"', OBJECT, spec=[]),
    at_top("kind", '"PyTorchJob"', "must be ElasticPyTorchJob", kind="PyTorchJob"),
    at_top("API version", "v1", "expected API version (elastic-pytorch.dev/v1beta1)", apiVersion="v1"),
    at_top('unknown field "foo"', "", "", foo=1),
    in_spec("", '"string"', INTEGER, minReplicas="2"),
    in_spec("", '"number"', INTEGER, minReplicas=1.5),
    in_spec("", '"boolean"', INTEGER, minReplicas=True),
    in_spec("", '"array"', INTEGER, minReplicas=[1]),
    in_spec("", "0", "should be greater than or equal to 1", minReplicas=0),
    in_spec("", "-1", "should be greater than or equal to 1", minReplicas=-1),
    in_spec("", "0", "should be greater than or equal to 1", maxReplicas=0),
    in_spec("", "4097", "should be less than or equal to 4096", maxReplicas=4097),
    in_spec("", "5000000000", "should be less than or equal to 4096", maxReplicas=5 * 10**9),
    in_spec("", "1.1805916207174113e+21", "should be less than or equal to 4096", maxReplicas=2**70),
    in_spec("", "1e+30", "should be less than or equal to 4096", maxReplicas=1e30),
    in_spec("", '"string"', BOOLEAN, suspend="yes"),
    in_spec("", '"integer"', BOOLEAN, suspend=1),
    in_spec("", '"string"', LIST, allowedReplicas="2"),
    in_spec("allowedReplicas[0]", '"null"', INTEGER, allowedReplicas=[None]),
    in_spec("allowedReplicas[0]", '"array"', INTEGER, allowedReplicas=[[1]]),
    in_spec("allowedReplicas[0]", "0", "should be greater than or equal to 1", allowedReplicas=[0]),
    in_spec("allowedReplicas[1]", "1", "Duplicate value", allowedReplicas=[1, 1]),
    in_spec("allowedReplicas", "3000", "must have at most 64 items", maxReplicas=4096, allowedReplicas=MANY),
    in_spec("", "0", "should have at least 1 items", allowedReplicas=[]),
    in_spec("", "0", "should be greater than or equal to 1", replicaStep=0),
    in_spec("", '"number"', "must be of type integer,string", nprocPerNode=1.5),
    in_spec("", '"boolean"', "must be of type integer,string", nprocPerNode=True),
    in_spec("", '"object"', "must be of type integer,string", nprocPerNode={}),
    in_spec("maxReplicas", "", "Required value", maxReplicas=None),
    in_spec("template", "", "Required value", template=None),
    in_spec("", '"array"', OBJECT, template=[]),
    in_spec("", '"string"', OBJECT, template="t"),
    in_spec("master.template", "", "Required value", master={}),
    in_spec("worker.template", "", "Required value", worker={"template": None}),
    in_spec("runtime.mode", '"MPI"', 'supported values: "Torchrun", "Elastic"', runtime={"mode": "MPI"}),
    in_spec("", '"string"', OBJECT, runtime="Torchrun"),
    in_spec("", '"running"', 'supported values: "Running", "All", "None"', cleanPodPolicy="running"),
    in_spec("", "0", "should be greater than or equal to 1", activeDeadlineSeconds=0),
    in_spec("", "2147483648", "should be less than or equal to 2147483647", activeDeadlineSeconds=2**31),
    in_spec("", "-1", "should be greater than or equal to 0", ttlSecondsAfterFinished=-1),
    in_spec("elasticity.gracePeriodSeconds", "86401", "equal to 86400", elasticity={"gracePeriodSeconds": 86401}),
    in_spec("recovery.nodeLossSeconds", "-1", "equal to 0", recovery={"nodeLossSeconds": -1}),
    in_spec("", '"integer"', STRING, priorityClassName=5),
    in_spec("", "", "may not be more than 253 bytes", priorityClassName="p" * 254),
    typo("spec.minReplica", minReplica=1),
    typo("spec.elasticity.gracePeriod", elasticity={"gracePeriod": 5}),
    typo("spec.worker.replicas", worker={"template": SMALLEST, "replicas": 3}),
    in_metadata("", "", "name or generateName is required", name=""),
    in_metadata("", '"Toy"', "lower case alphanumeric characters", name="Toy"),
    in_metadata("", '"jöb"', "lower case alphanumeric characters", name="jöb"),
    in_metadata("", '"a/../b"', "lower case alphanumeric characters", name="a/../b"),
    in_metadata("", r'"a\nb"', "lower case alphanumeric characters", name="a\nb"),
    in_metadata("", r'"a\u202eb"', "lower case alphanumeric characters", name="a\u202eb"),
    in_metadata("", '"b c"', LABEL, labels={"a": "b c"}),
    in_metadata("annotations", "", "may not be more than 262144 bytes", annotations={"a": "x" * 2**20}),
    in_metadata(
        "ownerReferences.uid",
        '""',
        "must not be empty",
        ownerReferences=[{"kind": "Pod", "name": "p", "apiVersion": "v1"}],
    ),
]
"""Refused when written, by a client that asks for strictness as kubectl does.

What breaks a rule of CEL is in `tests/apiserver/test_job_rules.py`.
"""

SMALL = json.dumps(make_job())


def with_min_replicas(text: str) -> str:
    """The smallest job as JSON, with a minReplicas that no JSON library would write."""
    return SMALL.replace('"minReplicas": 1', f'"minReplicas": {text}')


NOT_JSON = [
    (with_min_replicas("NaN"), 400, "invalid character 'N'"),
    (with_min_replicas("Infinity"), 400, "invalid character 'I'"),
    (with_min_replicas("1e999"), 400, "cannot unmarshal number 1e999"),
    (with_min_replicas('1, "minReplicas": 2'), 400, 'duplicate field "spec.minReplicas"'),
    (with_min_replicas("[" * 20_000 + "]" * 20_000), 400, "exceeded max depth"),
    (SMALL[:-2], 400, "unexpected end of JSON input"),
    ("", 400, "unexpected end of JSON input"),
    (" " * (4 << 20), 413, "Request entity too large"),
]
"""What no client should send: text, status, and a part of the answer."""

DEEP = json.dumps(make_job("deep", template=make_template(x="HERE"))).replace(
    '"HERE"', '{"a":' * 9_000 + "1" + "}" * 9_000
)
"""Nested nearly as deep as the API server takes: deeper than Python programs like to follow."""

TOO_LARGE = make_job("large", template=make_template(make_container(args=["x" * 1_571_000])))
"""Just small enough to be stored, without the status that is to be added."""

PRUNED = make_job(minReplicas=None, minReplica=1)
"""Without strictness the misspelt field is dropped."""

VOLUME = {"name": "v", "emptyDir": {}}
MOUNT = {"name": "v", "mountPath": "/v"}
PORT = {"containerPort": 80, "name": "p"}


def labelled(**metadata: Any) -> dict[str, Any]:
    """A template with metadata."""
    return {"metadata": metadata, **SMALLEST}


AT_THE_POD = [
    in_main("", "", ABSENT, imagePullPolcy="Always"),
    in_main("", "", ABSENT, volumMounts=[]),
    in_main("", "", ABSENT, resource={}),
    in_main("resources.limit", "", ABSENT, resources={"limit": {"cpu": 1}}),
    in_main("env[0].vlaue", "", ABSENT, env=[{"name": "A", "vlaue": "x"}]),
    in_pod("", "", ABSENT, nodeSelectr={"a": "b"}),
    in_pod("securityContext.runAsUsr", "", ABSENT, securityContext={"runAsUsr": 0}),
    in_pod("tolerations[0].efect", "", ABSENT, tolerations=[{"key": "a", "efect": "NoSchedule"}]),
    in_pod("", "", ABSENT, x={"a": [{"a": [{"a": 1}]}]}),
    in_main("", '"always"', 'supported values: "Always"', imagePullPolicy="always"),
    in_main("ports[0].containerPort", "70000", "must be between 1 and 65535", ports=[{"containerPort": 70000}]),
    in_main("ports[0].containerPort", "", "Required value", ports=[{}]),
    in_main("ports[1].name", '"p"', "Duplicate value", ports=[PORT, {**PORT, "containerPort": 81}]),
    in_main("ports[0].protocol", '"HTTP"', 'supported values: "SCTP"', ports=[{**PORT, "protocol": "HTTP"}]),
    in_main("volumeMounts[0].name", '"data"', "Not found", volumeMounts=[{"name": "data", "mountPath": "/d"}]),
    in_main("name", '"PyTorch"', "lower case alphanumeric characters", name="PyTorch"),
    in_main("name", "a" * 64, "must be no more than 63 characters", name="a" * 64),
    in_main("name", r"p\u202ey", "lower case alphanumeric characters", name="p\u202ey"),
    in_main("restartPolicy", '"Sometimes"', "supported values", restartPolicy="Sometimes"),
    in_main(
        "resources.requests",
        '"2"',
        "must be less than or equal to cpu limit of 1",
        resources={"requests": {"cpu": 2}, "limits": {"cpu": 1}},
    ),
    in_main("resources.claims[0]", '"x"', "must be one of the names", resources={"claims": [{"name": "x"}]}),
    in_main("securityContext.runAsUser", "-1", "must be between 0 and", securityContext={"runAsUser": -1}),
    in_main("livenessProbe.httpGet.port", "99999", "must be between", livenessProbe={"httpGet": {"port": 99999}}),
    in_main("lifecycle.preStop.exec.command", "", "Required value", lifecycle={"preStop": {"exec": {}}}),
    in_pod("volumes[1].name", '"v"', "Duplicate value", volumes=[VOLUME, VOLUME]),
    in_pod("volumes[0].nfs.server", "", "Required value", volumes=[{"name": "v", "nfs": {}}]),
    in_pod(
        "volumes[0].hostPath",
        "",
        "may not specify more than 1 volume type",
        volumes=[{**VOLUME, "hostPath": {"path": "/"}}],
    ),
    in_pod("volumes[0].secret.secretName", "", "Required value", volumes=[{"name": "v", "secret": {}}]),
    Mistake(
        make_job(template=make_template(make_container(volumeMounts=[MOUNT, MOUNT]), volumes=[VOLUME])),
        f"{MAIN}.volumeMounts[1].mountPath",
        '"/v"',
        "must be unique",
    ),
    in_pod("", "0", "must be between 1 and", activeDeadlineSeconds=0),
    in_pod("", "1.1805916207174113e21", "must be of type int64", activeDeadlineSeconds=float(2**70)),
    in_pod(
        "tolerations[0].operator",
        '"Exist"',
        'supported values: "Equal", "Exists"',
        tolerations=[{"key": "a", "operator": "Exist"}],
    ),
    in_pod(
        "tolerations[0].effect", '"NoSchedul"', "supported values", tolerations=[{"key": "a", "effect": "NoSchedul"}]
    ),
    in_pod("", '"a_b"', "lower case alphanumeric characters", hostname="a_b"),
    in_pod("", '"A"', "lower case alphanumeric characters", subdomain="A"),
    in_pod("", '"Sometimes"', "supported values", dnsPolicy="Sometimes"),
    in_pod("ephemeralContainers", "", "cannot be set on create", ephemeralContainers=[{"name": "d", "image": "i"}]),
    in_pod(
        "topologySpreadConstraints[0].maxSkew",
        "0",
        "must be greater than zero",
        topologySpreadConstraints=[{"maxSkew": 0, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway"}],
    ),
    in_template(labelled(labels={"a b": "c"}), ".metadata.labels", '"a b"', LABEL),
    in_template(labelled(labels={"a": "b c"}), ".metadata.labels", '"b c"', LABEL),
    in_template(labelled(labels={"a": "b" * 64}), ".metadata.labels", '"bbb', "must be no more than 63"),
]
"""Stored, since to the API server a template is opaque, and refused in the shape of a pod."""
