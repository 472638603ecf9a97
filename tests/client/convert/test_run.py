"""The flags of `kubectl elastic run` become a job; torchrun's own flags may stand among them."""

from __future__ import annotations

import pytest

from elastic_client.convert.converted import ConvertError
from elastic_client.convert.run import RunFlags, from_flags
from tests.client.convert.checks import accepted, main, said


def convert(*command, **flags):
    return from_flags(RunFlags(command=command, **{"image": "i", **flags}))


SIZES = [
    ({}, (1, 1), "1 pod, the master."),
    ({"workers": "4"}, (4, 4), "4 pods: 1 master and 3 workers."),
    (
        {"workers": "2:8", "gpus": "2"},
        (2, 8),
        "2 to 8 pods: 1 master and 1 to 7 workers, 2 GPUs in each, at most 16 in all.",
    ),
    ({"workers": "3", "min_replicas": 2, "max_replicas": 4}, (2, 4), "2 to 4 pods: 1 master and 1 to 3 workers."),
    ({"max_replicas": 4}, (4, 4), "4 pods"),
    ({"workers": "8", "min_replicas": 2}, (2, 8), "2 to 8 pods"),
    ({"workers": "2", "max_replicas": 8}, (2, 8), "2 to 8 pods"),
    ({"workers": "2:8", "max_replicas": 8}, (2, 8), "2 to 8 pods"),
]


@pytest.mark.parametrize(("flags", "size", "told"), SIZES)
def test_a_size_counts_the_master_and_the_notes_say_so(flags, size, told):
    converted = convert("t.py", **flags)
    spec = accepted(converted)
    assert (spec.min_replicas, spec.max_replicas) == size
    assert told in converted.notes[0]
    assert "minReplicas and maxReplicas count the master" in converted.notes[0]


def test_workers_between_both_bounds_are_named():
    lost = convert("t.py", workers="3", min_replicas=2, max_replicas=4).lost
    assert lost == ("--workers 3: --min-replicas and --max-replicas say the size, 2 to 4 pods",)


COMMANDS = [
    (["train.py", "--lr", "1"], {"args": ["train.py", "--lr", "1"]}, "auto", (1, 1)),
    (["python", "-u", "train.py"], {"args": ["train.py"]}, "auto", (1, 1)),
    (["python3", "-m", "pkg.train"], {"args": ["-m", "pkg.train"]}, "auto", (1, 1)),
    (
        ["/venv/bin/python", "train.py"],
        {"command": ["/venv/bin/python", "-m", "torch.distributed.run"], "args": ["train.py"]},
        "auto",
        (1, 1),
    ),
    (
        ["python", "-W", "ignore", "-O", "t.py"],
        {"args": ["torchrun", "--no-python", "python", "-W", "ignore", "-O", "t.py"]},
        "auto",
        (1, 1),
    ),
    (
        ["/opt/python", "-Xdev", "-m", "pkg"],
        {
            "command": ["/opt/python", "-m", "torch.distributed.run"],
            "args": ["--no-python", "/opt/python", "-Xdev", "-m", "pkg"],
        },
        "auto",
        (1, 1),
    ),
    (["python", "-c", "1"], {"command": ["python", "-c", "1"]}, "auto", (1, 1)),
    (["bash", "launch.sh"], {"command": ["bash", "launch.sh"]}, "auto", (1, 1)),
    (["torchrun", "--nnodes=1:3", "--nproc_per_node=4", "t.py"], {"args": ["t.py"]}, 4, (1, 3)),
    (["torchrun", "--standalone", "--nproc-per-node=gpu", "t.py"], {"args": ["t.py"]}, "auto", (1, 1)),
    (["torchrun", "-m", "pkg", "--nnodes=2"], {"args": ["torchrun", "-m", "pkg", "--nnodes=2"]}, "auto", (1, 1)),
    (
        ["/opt/bin/torchrun", "--rdzv-id=1", "t.py"],
        {"command": ["/opt/bin/torchrun"], "args": ["t.py"]},
        "auto",
        (1, 1),
    ),
    (
        ["--rdzv_backend", "c10d", "--max-restarts=3", "t.py"],
        {"args": ["torchrun", "--max-restarts=3", "t.py"]},
        "auto",
        (1, 1),
    ),
    (
        ["--nnodes=2", "--tee=3", "python", "-O", "t.py"],
        {"args": ["torchrun", "--tee=3", "--no-python", "python", "-O", "t.py"]},
        "auto",
        (2, 2),
    ),
    (["-m", "pkg.train", "--lr", "1"], {"args": ["torchrun", "-m", "pkg.train", "--lr", "1"]}, "auto", (1, 1)),
    (["--nnodes=2", "-m", "pkg"], {"args": ["torchrun", "-m", "pkg"]}, "auto", (2, 2)),
    (["--no-python", "bash", "x.sh"], {"args": ["torchrun", "--no-python", "bash", "x.sh"]}, "auto", (1, 1)),
    (["--nnodes=2:4", "--nproc-per-node", "2", "python", "t.py"], {"args": ["t.py"]}, 2, (2, 4)),
    (
        ["torchrun", "--nproc-per-node=$(N)", "t.py"],
        {"args": ["torchrun", "--nproc-per-node=$(N)", "t.py"]},
        "auto",
        (1, 1),
    ),
]


@pytest.mark.parametrize(("command", "program", "nproc", "size"), COMMANDS)
def test_a_command_becomes_a_script_where_torchrun_can_run_it_and_stays_else(command, program, nproc, size):
    converted = convert(*command)
    spec = accepted(converted)
    assert {key: value for key, value in main(converted).items() if key in ("command", "args")} == program
    assert (spec.nproc_per_node, (spec.min_replicas, spec.max_replicas)) == (nproc, size)


ALONE = [
    (["bash", "train.sh"], "4", True),
    (["deepspeed", "train.py"], "4", True),
    (["python", "-c", "import train"], "4", True),
    (["bash", "train.sh"], "1", False),
    (["bash", "-c", "cd /x && torchrun train.py"], "4", False),
    (["python", "train.py"], "4", False),
]


@pytest.mark.parametrize(("command", "workers", "is_said"), ALONE)
def test_a_warning_says_that_each_pod_would_run_a_command_by_itself(command, workers, is_said):
    assert ("by itself: the pods meet only if" in said(convert(*command, workers=workers))) == is_said


def test_flags_of_torchrun_that_are_the_operator_s_are_named():
    assert (
        "--rdzv_backend c10d: the operator sets the job's rendezvous" in convert("--rdzv_backend", "c10d", "t.py").lost
    )
    assert "--rdzv-id=1: the operator sets" in said(convert("torchrun", "--rdzv-id=1", "t.py"))


def test_the_other_flags_stand_in_the_manifest():
    converted = convert(
        "t.py",
        name="toy",
        namespace="team-a",
        gpus="4",
        nproc_per_node="2",
        env=["A=b=c", "EMPTY="],
        cpu="8",
        memory="64Gi",
        pvc=["data:/data:ro", "data:/more"],
        volume=["/raid:/raid", "configmap/code:/code", "secret/s:/s:ro", "/public:/nfs::nfs.example.com"],
        large_shm=True,
        priority_class="high",
        mode="elastic",
        working_dir="/code",
    )
    spec = accepted(converted)
    assert converted.manifest["metadata"] == {"name": "toy", "namespace": "team-a"}
    assert (spec.is_elastic, spec.nproc_per_node, spec.priority_class_name) == (True, 2, "high")
    container = main(converted)
    assert container["env"] == [{"name": "A", "value": "b=c"}, {"name": "EMPTY", "value": ""}]
    assert container["resources"] == {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"nvidia.com/gpu": 4}}
    assert [(mount["name"], mount["mountPath"]) for mount in container["volumeMounts"]] == [
        ("claim-data", "/data"),
        ("claim-data", "/more"),
        ("raid", "/raid"),
        ("configmap-code", "/code"),
        ("secret-s", "/s"),
        ("public", "/nfs"),
        ("shared-memory", "/dev/shm"),
    ]
    volumes = converted.manifest["spec"]["template"]["spec"]["volumes"]
    assert len(volumes) == 6
    assert {"name": "public", "nfs": {"server": "nfs.example.com", "path": "/public"}} in volumes


def test_without_a_name_the_cluster_completes_the_script_s():
    assert convert("python", "/app/Train_2.py").manifest["metadata"] == {"generateName": "train-2-"}
    assert convert("bash", "-c", "x && torchrun a/b.py").manifest["metadata"] == {"generateName": "b-"}


REFUSED = [
    ([], {}, "no command: write it after --"),
    (["t.py"], {"image": ""}, "--image: write the image"),
    (["t.py"], {"workers": "8:2"}, "--workers 8:2: write a number of pods, master included"),
    (["t.py"], {"workers": "many"}, "--workers many: write a number of pods"),
    (["t.py"], {"min_replicas": 3, "max_replicas": 2}, "--min-replicas 3 --max-replicas 2: write the fewest"),
    (["t.py"], {"workers": "5000"}, "spec.minReplicas: 5000: must be at most 4096"),
    (["t.py"], {"gpus": "0.5"}, "--gpus 0.5: write a whole number"),
    (["t.py"], {"gpus": "2000"}, "must be at most 1024"),
    (["t.py"], {"nproc_per_node": "cpu"}, "--nproc-per-node cpu: write a whole number from 1 to 1024, or auto"),
    (["torchrun", "--nproc-per-node=2", "t.py"], {"nproc_per_node": "4"}, "--nproc-per-node 4: the command says 2"),
    (["torchrun", "--nnodes=3", "t.py"], {"workers": "2"}, "--nnodes 3: says another size than --workers 2"),
    (["t.py"], {"workers": "8", "max_replicas": 4}, "--workers 8: is not between the bounds, --max-replicas 4"),
    (["--nnodes=2:4", "t.py"], {"min_replicas": 3}, "--nnodes 2:4: says another size than --min-replicas 3: write one"),
    (
        ["--nnodes", "2:4", "--min-replicas", "3", "t.py"],
        {},
        "--min-replicas stands after 2:4, where run's own flags have ended: write it before, or --nnodes=2:4",
    ),
    (["--nnodes", "2:4", "-g", "1", "t.py"], {}, "-g stands after 2:4, where run's own flags have ended"),
    (["t.py"], {"env": ["X"]}, "--env X: write NAME=VALUE"),
    (["t.py"], {"env": ["PET_NNODES=2"]}, "spec.template.spec.containers[0].env[0].name: 'PET_NNODES'"),
    (["t.py"], {"cpu": "many"}, "--cpu many: write a number"),
    (["t.py"], {"memory": "16GB"}, "--memory 16GB: write a number with an optional suffix, such as 1, 500m or 16Gi"),
    (["t.py"], {"pvc": ["data"]}, "--pvc data: write CLAIM:PATH"),
    (["t.py"], {"volume": ["data:/data"]}, "--volume data:/data: write SOURCE:PATH"),
    (["t.py"], {"mode": "fast"}, "--mode fast: write one of Torchrun, Elastic"),
    (["t.py"], {"name": "Toy"}, "--name: 'Toy': write at most 51"),
    (["t.py"], {"image_command": "'"}, "--image-command ': No closing quotation"),
    (["--worker=3", "t.py"], {}, "torchrun has no option --worker, and run neither: did you mean --workers?"),
    (["--rdzv-id=1", "bash", "x.sh"], {}, "--rdzv-id=1: only torchrun reads it, but the command is bash"),
    (["torchrun", "--frob", "t.py"], {}, "torchrun has no option --frob"),
    (["deepspeed", "t.py"], {"mode": "Elastic"}, "must be torchrun in Elastic mode"),
]


@pytest.mark.parametrize(("command", "flags", "message"), REFUSED)
def test_what_cannot_be_is_refused_in_one_line_that_names_it(command, flags, message):
    with pytest.raises(ConvertError) as refused:
        convert(*command, **flags)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
