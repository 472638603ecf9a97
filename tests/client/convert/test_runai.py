"""Command lines of Run:ai, typed as they are printed, become jobs."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_client.convert.converted import ConvertError
from elastic_client.convert.runai import from_runai
from tests.client.convert.checks import accepted, main, said

TUTORIAL = "runai submit-dist pytorch --name X --workers=3 --max-replicas 4 --min-replicas 2 -g 1 -i IMAGE"
SCRATCH = (
    "runai submit-dist pytorch --name meditron --pvc scratch:/scratch --workers 1 -g 8 -e A=1 -e HOME=/scratch/me"
    " --annotation k8s.v1.cni.cncf.io/networks=kube-system/roce --image registry.example.com/m:1 --backoff-limit 0"
    " --extended-resource rdma/rdma=1 --run-as-gid 83070 --large-shm --node-pool h100 -- ./entrypoint.sh"
)
SECOND_CLIENT = (
    "training pytorch submit adobe --image=v/a:v2 --workers 2 --port service-type=NodePort,container=8080 --run-as-user"
    " --existing-pvc claimname=home,path=/home --cpu-core-request 8 --cpu-memory-request 64Gi"
    " --toleration operator=Exists,key=gpu,seconds=5 --auto-deletion-time-after-completion 1h30m"
    " --command -- bash -c 'cd /app && torchrun train.py'"
)


def convert(line, **more):
    return from_runai(shlex.split(line), **more)


LINES = [
    (f"{TUTORIAL} -- python train.py --lr 0.1", (2, 4), {"args": ["train.py", "--lr", "0.1"]}),
    ("runai submit-dist pytorch dist --workers=2 -g 1 -i i -- x.py", (3, 3), {"args": ["x.py"]}),
    ("submit-dist pytorch --name a --workers 1 -i i --command -- x.sh 1", (2, 2), {"command": ["x.sh", "1"]}),
    ("runai submit one -i i -g 2 -- python x.py", (1, 1), {"args": ["x.py"]}),
    ("runai training pytorch submit p -i i --min-replicas 2 --max-replicas 3 -- x.py", (2, 3), {"args": ["x.py"]}),
    ("submit-dist pytorch a --no-master --workers=3 -i i -- x.py", (3, 3), {"args": ["x.py"]}),
    ("submit-dist pytorch a --workers=3 --min-replicas 2 -i i -- x.py", (2, 4), {"args": ["x.py"]}),
    (SCRATCH, (2, 2), {"command": ["./entrypoint.sh"]}),
    (SECOND_CLIENT, (3, 3), {"command": ["bash", "-c", "cd /app && torchrun train.py"]}),
]


@pytest.mark.parametrize(("line", "size", "program"), LINES)
def test_a_line_becomes_a_job_of_the_same_size(line, size, program):
    converted = convert(line)
    spec = accepted(converted)
    assert (spec.min_replicas, spec.max_replicas) == size
    assert {key: value for key, value in main(converted).items() if key in ("command", "args")} == program


def test_the_tutorial_s_line_is_refused_until_somebody_says_what_the_image_runs():
    with pytest.raises(ConvertError, match=r"no command: write it after --, as in `-- train.py"):
        convert(TUTORIAL)
    converted = convert(TUTORIAL, image_command="python /app/train.py")
    accepted(converted)
    assert main(converted)["args"] == ["/app/train.py"]
    assert converted.manifest["metadata"] == {"name": "x"}


SAID = [
    (f"{TUTORIAL} -- t.py", "2 to 4 pods: 1 master and 1 to 3 workers, 1 GPU in each, at most 4 in all."),
    (f"{TUTORIAL} -- t.py", "--min-replicas and --max-replicas count the master there, too."),
    (f"{TUTORIAL} -- t.py", "--workers 3: --min-replicas and --max-replicas say the size, 2 to 4 pods"),
    (f"{TUTORIAL} -- t.py", "--name X -> metadata.name: x"),
    (f"{TUTORIAL} -- t.py", "ENTRYPOINT: the image's own command"),
    (SCRATCH, "--workers 1 -> 2 pods: Run:ai adds the master"),
    ("training submit x --workers=3 -i i -- t.py", "--workers 3: `runai training submit` makes one pod"),
    ("submit-dist pytorch x --workers=0 -i i -- t.py", "--workers 0 -> 1 pod: Run:ai adds"),
    ("submit-dist pytorch x --workers=3 --min-replicas 2 -i i -- t.py", "--workers 3 -> 4 pods"),
    (
        "submit-dist pytorch x --workers=1 --min-replicas 2 --max-replicas 2 -i i -- t.py",
        "--workers 1: --min-replicas and --max-replicas say the size, 2 pods",
    ),
    ("submit-dist pytorch x --workers=3 --no-master -i i -- t.py", "--no-master -> no pod more"),
    ("submit-dist pytorch x --workers=3 -i i -- bash t.sh", "Each pod runs `bash t.sh` by itself"),
    ("submit-dist pytorch x -i i --image-commandx 1 -- t.py", "--image-commandx 1: nothing is known here by that name"),
    (SCRATCH, "--node-pool h100: write spec.template.spec.nodeSelector"),
    (SCRATCH, "--backoff-limit 0 -> spec.recovery.maxRestarts: 0"),
    (SECOND_CLIENT, "--port service-type=NodePort,container=8080: training pods serve nothing"),
    (SECOND_CLIENT, "--run-as-user: write runAsUser"),
    (f"{TUTORIAL} -i OTHER -p team-a -- t.py", "-i IMAGE: it stands again later"),
    (f"{TUTORIAL} -p team-a -- t.py", "-p team-a: a namespace is what a project is"),
    (f"{TUTORIAL} -- torchrun --nnodes=4 t.py", "torchrun: --nnodes=4: spec.minReplicas"),
]


@pytest.mark.parametrize(("line", "told"), SAID)
def test_what_becomes_of_a_flag_is_said(line, told):
    assert told in said(convert(line))


def test_flags_of_the_pod_are_in_its_template():
    template = convert(SCRATCH).manifest["spec"]["template"]
    assert template["metadata"] == {"annotations": {"k8s.v1.cni.cncf.io/networks": "kube-system/roce"}}
    assert template["spec"]["securityContext"] == {"runAsGroup": 83070}
    assert [volume["name"] for volume in template["spec"]["volumes"]] == ["claim-scratch", "shared-memory"]
    assert template["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 8, "rdma/rdma": "1"}}
    spec = convert(SECOND_CLIENT).manifest["spec"]
    assert spec["ttlSecondsAfterFinished"] == 5400
    assert spec["template"]["spec"]["tolerations"] == [{"operator": "Exists", "key": "gpu", "tolerationSeconds": 5}]
    assert main(convert(SECOND_CLIENT))["resources"] == {"requests": {"cpu": "8", "memory": "64Gi"}}


def test_volumes_of_the_second_client_are_mounted():
    line = (
        "training pytorch submit a -i i --host-path path=/raid,mount=/data,mount-propagation=HostToContainer,readwrite"
        " --nfs path=/x,server=nfs.example.com,mountpath=/nfs --configmap-map-volume name=code,path=/code -- t.py"
    )
    converted = convert(line)
    accepted(converted)
    assert converted.lost == ("ENTRYPOINT: the image's own command, which Run:ai starts with these words, is not used",)
    pod = converted.manifest["spec"]["template"]["spec"]
    assert pod["volumes"] == [
        {"name": "raid", "hostPath": {"path": "/raid"}},
        {"name": "x", "nfs": {"server": "nfs.example.com", "path": "/x"}},
        {"name": "configmap-code", "configMap": {"name": "code"}},
    ]
    assert main(converted)["volumeMounts"] == [
        {"name": "raid", "mountPath": "/data", "mountPropagation": "HostToContainer"},
        {"name": "x", "mountPath": "/nfs", "readOnly": True},
        {"name": "configmap-code", "mountPath": "/code"},
    ]


@given(st.from_regex(r"x[a-z]{2,8}(-[a-z]{2,5})?", fullmatch=True), st.sampled_from(["", " v", "=v"]))
def test_a_flag_that_nobody_knows_is_always_named(name, value):
    converted = convert(f"submit-dist pytorch --name a -i i --{name}{value} --workers 1 -- t.py")
    assert f"--{name}{value}: nothing is known here by that name" in converted.lost


REFUSED = [
    ("runai list jobs", "runai list jobs: write one of `runai submit-dist pytorch`"),
    ("submit-dist pytorch --name a -- t.py", "--image: write the image"),
    ("submit-dist pytorch a b -i i -- t.py", "b: the name is a already"),
    ("submit-dist pytorch a -i i -g 0.5 -- t.py", "--gpu 0.5: write a whole number of GPUs per pod"),
    ("submit-dist pytorch a -i i --workers three -- t.py", "--workers three: write a whole number of pods"),
    (
        "submit-dist pytorch a -i i --min-replicas 4 --max-replicas 2 -- t.py",
        "--min-replicas 4 --max-replicas 2: write",
    ),
    ("submit-dist pytorch a -i i -- --lr 1", "-- --lr: without --command these are arguments for the image's own"),
    ("submit-dist pytorch a -i -- t.py", "-i: write a value after it"),
    ("submit-dist pytorch a -i i -e A -- t.py", "--environment A: write NAME=VALUE"),
    ("submit-dist pytorch a -i i --pvc x -- t.py", "--pvc x: write CLAIM:PATH"),
    ("submit-dist pytorch a -i i --existing-pvc claimname=x -- t.py", "claimname=x: write claimname=CLAIM,path=PATH"),
    (
        "submit-dist pytorch a -i i --clean-pod-policy Some -- t.py",
        "--clean-pod-policy Some: write one of Running, All, None",
    ),
    ("submit-dist pytorch a -i i --backoff-limit six -- t.py", "--backoff-limit six: write a whole number"),
    ("submit-dist pytorch a -i i --run-as-uid me -- t.py", "--run-as-uid me: write a user's number"),
    ("submit-dist pytorch a -i i --cpu 4 --cpu-limit 2 -- t.py", "--cpu-limit 2: must be at least --cpu 4"),
    ("submit-dist pytorch a -i i --host-path /a:/b -- t.py", "--host-path /a:/b: write path=PATH,mount=PATH"),
    ("submit-dist pytorch a -i i --nfs path=/a,mountpath=/b -- t.py", "mountpath=/b: write path=EXPORT,server=HOST"),
    ("submit-dist pytorch 42 -i i -- t.py", "--name 42: '': write at most 51"),
]


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_what_cannot_be_is_refused_in_one_line_that_names_it(line, message):
    with pytest.raises(ConvertError) as refused:
        convert(line)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
