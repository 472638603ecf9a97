"""PyTorchJobs in the form of the training-operator's examples become jobs; nothing is dropped in silence."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_client.convert.converted import ConvertError
from elastic_client.convert.pytorchjob import from_documents, from_pytorchjob
from tests.client.convert.checks import accepted, main, said
from tests.docs.pages import blocks

FOLDER = Path(__file__).parent / "pytorchjobs"
ENTRYPOINT = ("python", "/var/mnist.py")
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
INTO_TEMPLATE = ("command", "args", "env", "restartPolicy")
"""Fields of pods that a conversion may change; a line says so."""


def load(name):
    """The PyTorchJob as decoded from its file, without shared parts."""
    return deepcopy(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()))


def convert(body):
    return from_pytorchjob(body, entrypoint=ENTRYPOINT)


RANK = [{"name": "RANK", "value": "$(ELASTIC_POD_RANK)"}]
EXPECTED = {
    "elastic-imagenet": (
        (1, 3),
        "auto",
        ["/workspace/imagenet.py", "--arch=resnet18", "--epochs=1", "/workspace/data/tiny"],
    ),
    "elastic-echo": ((1, 2), 4, ["./echo.py"]),
    "simple": ((2, 2), "auto", ["/opt/mnist/src/mnist.py", "--epochs=1"]),
    "mnist-nccl": ((2, 2), "auto", ["/var/mnist.py", "--backend", "nccl"]),
    "torchrun-cpu": ((2, 2), 2, ["demo.py"]),
    "deepspeed": ((4, 4), "auto", ["torchrun", "--tee=3", "/train_bert_ds.py", "--checkpoint_dir", "/root/data"]),
    "kueue": ((3, 3), 1, ["mnist.py"]),
    "volumes": ((2, 4), "auto", ["torchrun", "-m", "team.train", "--data", "/data"]),
    "two-templates": ((4, 4), "auto", None),
    "by-hand": ((2, 2), "auto", None),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_job_has_the_same_size_processes_and_script(name):
    converted = convert(load(name))
    spec = accepted(converted)
    size, nproc, args = EXPECTED[name]
    assert ((spec.min_replicas, spec.max_replicas), spec.nproc_per_node, main(converted).get("args")) == (
        size,
        nproc,
        args,
    )


def test_there_are_ten_of_them_each_with_what_is_expected():
    assert sorted(EXPECTED) == NAMES
    assert len(NAMES) == 10


def test_the_page_says_the_same_as_the_program():
    before, after = (yaml.safe_load(block.text) for block in blocks("docs/from-pytorchjob.md", "yaml")[:2])
    assert convert(before).manifest == after


SAID = [
    ("elastic-imagenet", "spec.elasticPolicy.metrics: a list: the job grows into idle GPUs by itself"),
    ("elastic-imagenet", "spec.elasticPolicy.maxRestarts: 100 -> spec.recovery.maxRestarts: 100"),
    ("elastic-imagenet", "spec.pytorchReplicaSpecs.Worker.replicas: 2: the job takes the pods that are free, 1 to 3"),
    ("elastic-imagenet", "1 to 3 pods: 1 master and 0 to 2 workers."),
    ("elastic-echo", "--rdzv_endpoint=etcd-service:2379: the operator sets the job's rendezvous"),
    ("elastic-echo", "spec.elasticPolicy.rdzvConf: a list"),
    ("simple", "spec.pytorchReplicaSpecs.Worker.replicas: 1 -> spec.maxReplicas: 2, master included"),
    ("simple", "2 pods: 1 master and 1 worker."),
    ("torchrun-cpu", "Master.restartPolicy: 'Never': the operator itself replaces pods that fail"),
    ("torchrun-cpu", "Worker.restartPolicy: 'ExitCode': write the exit codes"),
    ("deepspeed", "--nnodes=4: spec.minReplicas and spec.maxReplicas are the job's size"),
    ("kueue", "metadata.labels[kueue.x-k8s.io/queue-name]: 'user-queue': Kueue does not manage these jobs"),
    ("kueue", "spec.runPolicy.managedBy: 'kueue.x-k8s.io/multikueue'"),
    ("kueue", "python without torchrun is one process for each pod there: nprocPerNode: 1."),
    ("volumes", "metadata.uid: '5b1c'"),
    ("volumes", "spec.runPolicy.schedulingPolicy.queue: 'research': a GPUQuotaPolicy"),
    ("volumes", "spec.runPolicy.schedulingPolicy.minAvailable: 2 -> spec.minReplicas: 2"),
    ("volumes", "spec.runPolicy.backoffLimit: 5 -> spec.recovery.maxRestarts: 5"),
    ("volumes", "env[0]: MASTER_PORT: the operator sets it"),
    ("volumes", "status: a mapping"),
    ("two-templates", "RANK: $(ELASTIC_POD_RANK)"),
]


@pytest.mark.parametrize(("name", "line"), SAID)
def test_what_becomes_of_a_field_is_said(name, line):
    assert line in said(convert(load(name)))


def test_a_command_that_stays_is_given_the_rank_of_its_pod():
    spec = convert(load("two-templates")).manifest["spec"]
    for template in (spec["template"], spec["master"]["template"]):
        (container,) = (one for one in template["spec"]["containers"] if one["name"] == "pytorch")
        assert (container["command"], container["env"]) == (["bash", "launch.sh"], RANK)
    assert spec["master"]["template"]["spec"]["nodeSelector"] == {"disk": "fast"}
    assert main(convert(load("by-hand")))["env"] == RANK


def test_kueue_s_label_is_on_no_pod_since_the_operator_would_make_no_room_for_it():
    converted = convert(load("kueue"))
    assert converted.manifest["metadata"]["labels"] == {"team": "vision"}
    assert converted.manifest["spec"]["template"]["metadata"]["labels"] == {}


def leaves(value, path=()):
    """Each scalar of a tree with its path."""
    if isinstance(value, dict | list) and value:
        for step, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(child, (*path, step))
    else:
        yield path, value


def dotted(path):
    """As the lines for people write it."""
    parts = (f"[{step}]" if isinstance(step, int) or "." in step or "/" in step else f".{step}" for step in path)
    return "".join(parts).removeprefix(".")


def at(tree, path):
    for step in path:
        if isinstance(tree, list) and not isinstance(step, int):
            return None
        tree = (
            tree[step]
            if (isinstance(tree, list) and step < len(tree)) or (isinstance(tree, dict) and step in tree)
            else None
        )
    return tree


def is_accounted(path, value, converted):
    """Whether a field of the input is in the manifest, or a line names it or what it is a part of."""
    text = said(converted)
    if any(f"{dotted(path[:end])}: " in text or f"{dotted(path[:end])} ->" in text for end in range(1, len(path) + 1)):
        return True
    spec = converted.manifest["spec"]
    if path[:2] == ("spec", "pytorchReplicaSpecs") and path[3:4] == ("template",):
        role = path[2].lower()
        template = spec.get(role, {}).get("template") or spec["template"]
        return at(template, path[4:]) == value or any(step in INTO_TEMPLATE for step in path)
    if path[:2] == ("spec", "runPolicy") and len(path) == 3:
        return spec.get(path[2]) == value
    return path[0] in ("apiVersion", "kind") or at(converted.manifest, path) == value


@pytest.mark.parametrize("name", NAMES)
def test_each_field_is_in_the_manifest_or_in_a_line(name):
    body = load(name)
    roles = body["spec"]["pytorchReplicaSpecs"]
    body["spec"]["pytorchReplicaSpecs"] = {role.capitalize(): value for role, value in roles.items()}
    converted = convert(body)
    assert [dotted(path) for path, value in leaves(body) if not is_accounted(path, value, converted)] == []


PLACES = [
    (),
    ("metadata",),
    ("spec",),
    ("spec", "runPolicy"),
    ("spec", "runPolicy", "schedulingPolicy"),
    ("spec", "elasticPolicy"),
    ("spec", "pytorchReplicaSpecs"),
    ("spec", "pytorchReplicaSpecs", "Worker"),
]


@settings(max_examples=150, deadline=None)
@given(
    place=st.sampled_from(PLACES),
    field=st.from_regex(r"x[a-zA-Z]{3,9}", fullmatch=True),
    value=st.recursive(
        st.integers() | st.booleans() | st.text(max_size=5),
        lambda inner: st.lists(inner, min_size=1, max_size=2) | st.dictionaries(st.just("k"), inner, min_size=1),
        max_leaves=3,
    ),
)
def test_a_field_that_nobody_knows_is_always_named(place, field, value):
    body = load("elastic-imagenet")
    tree = body
    for step in place:
        tree = tree.setdefault(step, {})
    tree[field] = value
    lost = convert(body).lost
    assert any(line.startswith(f"{dotted((*place, field))}: ") for line in lost)


def test_workers_that_are_none_are_no_role():
    body = load("simple")
    body["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 0
    converted = convert(body)
    spec = accepted(converted)
    assert (spec.min_replicas, spec.max_replicas) == (1, 1)
    assert "spec.pytorchReplicaSpecs.Worker.replicas: 0: the job is its master alone" in said(converted)


def test_a_number_of_processes_that_is_auto_is_said_to_be_nothing():
    body = load("simple")
    body["spec"]["nprocPerNode"] = "1"
    for role in body["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["containers"][0]["command"] = ["torchrun", "t.py"]
    assert "spec.nprocPerNode: '1' -> nothing: auto, one process per GPU, is 1" in said(convert(body))


REFUSED = [
    ("simple", ("kind",), "TFJob", "kind: kubeflow.org/v1 TFJob: must be kubeflow.org/v1 PyTorchJob"),
    ("simple", ("spec",), {}, "spec: must be a mapping"),
    ("simple", ("spec", "pytorchReplicaSpecs"), {"Chief": {}}, "spec.pytorchReplicaSpecs: must have Master or Worker"),
    (
        "simple",
        ("spec", "pytorchReplicaSpecs", "Worker", "replicas"),
        "2",
        "Worker.replicas: '2': must be a whole number",
    ),
    ("simple", ("spec", "pytorchReplicaSpecs", "Worker", "template"), None, "Worker.template: must be the template"),
    ("simple", ("metadata", "name"), "Simple_1", "metadata.name: 'Simple_1': write at most 51 lower-case letters"),
    (
        "elastic-imagenet",
        ("spec", "elasticPolicy", "maxReplicas"),
        0,
        "maxReplicas: 0: must be a whole number, at least 1",
    ),
    (
        "elastic-imagenet",
        ("spec", "elasticPolicy", "minReplicas"),
        4,
        "maxReplicas: 3: must be at least minReplicas, 4",
    ),
    (
        "volumes",
        ("spec", "runPolicy", "ttlSecondsAfterFinished"),
        -1,
        "spec.ttlSecondsAfterFinished: -1: must be at least 0",
    ),
]


@pytest.mark.parametrize(("name", "path", "value", "message"), REFUSED)
def test_what_cannot_be_is_refused_in_one_line_that_names_it(name, path, value, message):
    body = load(name)
    at(body, path[:-1])[path[-1]] = value
    with pytest.raises(ConvertError) as refused:
        convert(body)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


JUNK = (None, 0, -1, "", [], {}, "x", True, 3.5, [None], {"a": None}, {1: [{}]})


@settings(max_examples=400, deadline=None)
@given(name=st.sampled_from(NAMES), junk=st.sampled_from(JUNK), data=st.data())
def test_junk_in_any_place_gives_a_job_or_one_line(name, junk, data):
    body = load(name)
    path = data.draw(st.sampled_from([path[:end] for path, _ in leaves(body) for end in range(1, len(path) + 1)]))
    at(body, path[:-1])[path[-1]] = junk
    made = outcome(body)
    assert len(made) == 1 or ("\n" not in made and len(made) > 10)


def outcome(body):
    """The jobs, or the message."""
    try:
        return list(from_documents([body], ENTRYPOINT))
    except ConvertError as error:
        return str(error)


def test_a_container_without_a_command_is_refused_until_somebody_says_what_the_image_runs():
    with pytest.raises(ConvertError, match=r"command: is absent, .* with --backend nccl: .* --entrypoint"):
        from_pytorchjob(load("mnist-nccl"))


def test_other_objects_of_a_file_stay_and_a_list_is_taken_apart():
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    made = list(from_documents([claim, {"kind": "List", "items": [load("simple"), load("elastic-echo")]}]))
    assert [one.manifest["kind"] for one in made] == ["PersistentVolumeClaim", "ElasticPyTorchJob", "ElasticPyTorchJob"]
    assert made[0].manifest == claim
    with pytest.raises(ConvertError, match="kind: PersistentVolumeClaim: must be PyTorchJob"):
        list(from_documents([claim]))
