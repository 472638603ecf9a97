"""Jobs become scripts and command lines: clean for shellcheck, with the same words and the same sizes."""

from __future__ import annotations

import re
import subprocess
from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from elastic_api.parse import parse_spec
from elastic_client.convert.converted import ConvertError
from elastic_client.convert.manifest import as_written, to_yaml
from elastic_client.convert.sbatch import from_sbatch
from elastic_client.convert.to_sbatch import to_sbatch
from elastic_client.convert.to_torchrun import to_torchrun
from tests.docs.pages import REPOSITORY

JOBS = sorted(REPOSITORY.glob("examples/*/job.yaml"))
each_example = pytest.mark.parametrize("path", JOBS, ids=lambda path: path.parent.name)


def make_job(*, fewest=2, most=2, pod=None, metadata=None, spec=None, **container):
    """A job whose main container has these parts."""
    main = {
        "name": "pytorch",
        "image": "registry.example.com/train:1",
        "args": ["train.py", "--lr", "0.1"],
        **container,
    }
    main = {key: value for key, value in main.items() if value is not None}
    template = {"spec": {"containers": [main], **(pod or {})}}
    return {
        "apiVersion": "elastic-pytorch.dev/v1beta1",
        "kind": "ElasticPyTorchJob",
        "metadata": metadata or {"name": "toy"},
        "spec": {"minReplicas": fewest, "maxReplicas": most, "template": template, **(spec or {})},
    }


def shellcheck(script, folder):
    """What shellcheck says of it, infos and style included."""
    path = Path(folder) / "job.sh"
    path.write_text(script)
    done = subprocess.run(["shellcheck", "--severity=style", str(path)], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "a,b", "SLURM_JOB_NUM_NODES": "2", "SLURM_NODEID": "1"}


def words_of(script, folder):
    """The words that `srun` is called with, when bash runs the script where two nodes are called a and b."""
    for name, text in (("scontrol", "echo a; echo b"), ("srun", "printf '%s\\0' \"$@\"")):
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": f"{folder}:/usr/bin:/bin", **SLURM},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split("\0")[:-1]


HARD = {
    "words": make_job(
        args=["train.py", "it's", 'a "quoted" $word', "`x`", "a\nb", "$(MASTER_ADDR)", "$$(LITERAL)", "100%"]
    ),
    "rank": make_job(args=None, command=["python", "t.py"], env=[{"name": "RANK", "value": "$(ELASTIC_POD_RANK)"}]),
    "bash": make_job(args=None, command=["bash", "-c", "for i in 1; do torchrun t.py; done"], workingDir="/a b"),
    "secret": make_job(env=[{"name": "T", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}]),
    "reference": make_job(env=[{"name": "A", "value": "x"}, {"name": "B", "value": "$(A)/$(C)"}]),
    "slurm": make_job(
        args=["t.py", "--rank", "$(ELASTIC_POD_RANK)", "--name", "$(ELASTIC_JOB_NAME)"],
        env=[{"name": "SLURM_JOB_ID", "value": "$(ELASTIC_JOB_UID)"}],
    ),
    "deadline": make_job(spec={"activeDeadlineSeconds": 61, "suspend": True}),
    "alone": make_job(fewest=1, most=1),
    "sizes": make_job(fewest=2, most=8, spec={"allowedReplicas": [2, 4, 8]}),
}


@each_example
def test_the_script_of_an_example_is_clean(path, tmp_path):
    assert shellcheck(to_sbatch(yaml.safe_load(path.read_text())), tmp_path) == ""


@pytest.mark.parametrize("name", HARD)
def test_the_script_of_a_hard_case_is_clean(name, tmp_path):
    assert shellcheck(to_sbatch(HARD[name]), tmp_path) == ""


def test_a_script_with_a_mistake_is_not_clean(tmp_path):
    assert "SC2086" in shellcheck(to_sbatch(make_job()).replace('"$SLURM_JOB_ID"', "$SLURM_JOB_ID"), tmp_path)


SAYS = [
    (make_job(fewest=2, most=8), "#SBATCH --nodes=2-8\n"),
    (make_job(), "#SBATCH --nodes=2\n"),
    (make_job(fewest=2, most=9, spec={"replicaStep": 4}), "#SBATCH --nodes=2-6\n"),
    (make_job(), "#SBATCH --requeue\n"),
    (make_job(), "#SBATCH --signal=B:USR1@120\n"),
    (make_job(spec={"elasticity": {"gracePeriodSeconds": 15}}), "#SBATCH --signal=B:USR1@15\n"),
    (make_job(spec={"elasticity": {"gracePeriodSeconds": 86400}}), "#SBATCH --signal=B:USR1@65535\n"),
    (make_job(spec={"elasticity": {"gracePeriodSeconds": 86400}}), "# * Tell the job 86400 s before its end: 65535 s"),
    (HARD["deadline"], "#SBATCH --time=2\n#SBATCH --signal=TERM@120\n#SBATCH --hold\n"),
    (make_job(resources={"limits": {"nvidia.com/gpu": 4}}), "#SBATCH --gpus-per-node=4\n"),
    (
        make_job(resources={"requests": {"cpu": "1500m", "memory": "2Gi"}}),
        "#SBATCH --cpus-per-task=2\n#SBATCH --mem=2048M\n",
    ),
    (make_job(resources={"requests": {"cpu": 8}}), "srun --ntasks-per-node=1 --cpus-per-task=8 torchrun"),
    (make_job(fewest=1), '--nnodes="1:$SLURM_JOB_NUM_NODES"'),
    (make_job(fewest=1), "srun --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 torchrun"),
    (make_job(fewest=1), "# * Grow: Slurm gives a running job no more nodes."),
    (make_job(), "# * Replace a node:"),
    (make_job(), "# * The image registry.example.com/train:1: python, torch"),
    (make_job(pod={"nodeSelector": {"a": "b"}}), "# * Of the pod: nodeSelector; --partition, --constraint"),
    (make_job(pod={"initContainers": [{"name": "a", "image": "b"}]}), "# * Of the pod: initContainers."),
    (make_job(pod={"frob": 1}), "# * Of the pod: frob."),
    (make_job(lifecycle={"preStop": {}}), "# * Of the container: lifecycle."),
    (make_job(spec={"priorityClassName": "high"}), "# * Of the job: priorityClassName."),
    (make_job(spec={"runtime": {"mode": "Elastic"}}), "# * Elastic mode: torchrun starts the script here."),
    (HARD["secret"], ': "${T:?was secretKeyRef hf token: export it before sbatch}"'),
    (HARD["sizes"], "# * Keep to the sizes 2, 4, 8:"),
    (HARD["reference"], 'export B="${A}/\\$(C)"'),
    (HARD["slurm"], "# * Set SLURM_JOB_ID as the job does: Slurm has its own."),
    (make_job(args=["t.py", "$(ELASTIC_INDEX)"]), "# * Set ELASTIC_INDEX, which only the operator does"),
    (HARD["slurm"], "export ELASTIC_JOB_NAME=toy\n"),
    (make_job(args=["t.py", "$(ELASTIC_JOB_UID)"]), 'export ELASTIC_JOB_UID="$SLURM_JOB_ID"\n'),
    (make_job(env=[{"name": "A", "value": "a$$b"}]), 'export A="a\\$b"\n'),
]


@pytest.mark.parametrize(("body", "text"), SAYS)
def test_a_script_says(body, text):
    assert text in to_sbatch(body)


def test_the_words_of_the_script_are_those_of_the_job(tmp_path):
    assert words_of(to_sbatch(HARD["words"]), tmp_path)[-7:] == [
        "it's",
        'a "quoted" $word',
        "`x`",
        "a\nb",
        "a",
        "$(LITERAL)",
        "100%",
    ]


def test_a_grace_that_is_used_is_not_said_to_be_left_out():
    assert "elasticity" not in to_sbatch(make_job(spec={"elasticity": {"gracePeriodSeconds": 15}}))


def test_what_slurm_sets_is_never_set_anew():
    assert "export SLURM" not in to_sbatch(HARD["slurm"])


LINES = [
    (
        make_job(args=["torchrun", "--nnodes=9", "--nproc-per-node=4", "--max-restarts=1", "t.py"]),
        ["--max-restarts=1", "t.py"],
    ),
    (
        make_job(args=None, command=["python3", "-m", "torch.distributed.run", "--rdzv-id=1", "t.py"]),
        ["--max-restarts=10", "t.py"],
    ),
    (make_job(args=["-m", "pkg"]), ["--max-restarts=10", "-m", "pkg"]),
]


@pytest.mark.parametrize(("body", "end"), LINES)
def test_flags_of_torchrun_that_depend_on_the_place_are_replaced(body, end, tmp_path):
    words = words_of(to_sbatch(body), tmp_path)
    assert words[-len(end) :] == end
    assert [word for word in words if word.startswith(("--nnodes", "--rdzv-id"))] == [
        "--nnodes=2",
        "--rdzv-id=7.0",
    ]


def test_a_command_that_is_not_torchrun_finds_the_operator_s_variables(tmp_path):
    script = to_sbatch(HARD["rank"])
    assert 'export MASTER_ADDR="$head_node"\n' in script
    assert words_of(script, tmp_path)[-6:] == [
        "bash",
        "-c",
        'export ELASTIC_POD_RANK="$SLURM_NODEID"; export RANK="${ELASTIC_POD_RANK}"; exec "$@"',
        "bash",
        "python",
        "t.py",
    ]


@pytest.mark.parametrize("body", [make_job(fewest=2, most=4), make_job(resources={"limits": {"nvidia.com/gpu": 2}})])
def test_there_and_back_a_job_has_the_same_size_and_gpus(body):
    again = from_sbatch(to_sbatch(body), image="registry.example.com/train:1").manifest
    for field in ("minReplicas", "maxReplicas"):
        assert again["spec"][field] == body["spec"][field]
    (before,), (after,) = (one["spec"]["template"]["spec"]["containers"] for one in (body, again))
    assert after.get("resources", {}) == before.get("resources", {})
    assert "train.py --lr 0.1" in after["command"][2]


def test_torchrun_has_one_line_for_each_machine_and_the_first_is_the_host():
    lines = [line for line in to_torchrun(make_job(fewest=1, most=3), host="a") if not line.startswith("#")]
    assert [re.search(r"is_host=\d", line)[0] for line in lines] == ["is_host=1", "is_host=0", "is_host=0"]
    same = {re.sub(r"is_host=\d", "", line) for line in lines}
    assert same == {
        "torchrun --nnodes=1:3 --nproc-per-node=1 --rdzv-id=toy --rdzv-backend=c10d --rdzv-endpoint=a:29400"
        " --rdzv-conf= --max-restarts=10 train.py --lr 0.1"
    }


def test_without_a_number_of_machines_there_are_as_many_as_the_largest_size():
    lines = to_torchrun(make_job(fewest=2, most=9, spec={"replicaStep": 4}))
    assert len([line for line in lines if not line.startswith("#")]) == 6
    assert "--nodes=2\n" in to_sbatch(make_job(fewest=2, most=3, spec={"replicaStep": 4}))


def test_one_machine_meets_nobody():
    expected = "torchrun --standalone --nproc-per-node=1 train.py --lr 0.1"
    assert to_torchrun(HARD["alone"])[1:] == [expected]
    assert to_torchrun(make_job(), standalone=True)[1:] == [expected]


def test_a_command_line_has_the_variables_and_the_rank_of_its_machine():
    lines = [line for line in to_torchrun(HARD["rank"]) if not line.startswith("#")]
    assert [re.search(r"ELASTIC_POD_RANK=(\d)", line)[1] for line in lines] == ["0", "1"]
    assert all(line.endswith("&& python t.py") and "PET_NNODES=2 " in line for line in lines)
    assert all('export RANK="${ELASTIC_POD_RANK}" &&' in line for line in lines)


def test_a_word_with_a_variable_has_its_value_when_the_line_is_typed(tmp_path):
    body = make_job(args=["train.py", "$(A)/$(MASTER_ADDR)"], env=[{"name": "A", "value": "x"}])
    lines = [line for line in to_torchrun(body, host="h") if not line.startswith("#")]
    (tmp_path / "torchrun").write_text('#!/bin/bash\necho "${@: -1}"\n')
    (tmp_path / "torchrun").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    said = [
        subprocess.run(["bash", "-c", line], env=environ, capture_output=True, text=True, check=True).stdout
        for line in lines
    ]
    assert said == ["x/h\n", "x/h\n"]


def test_the_lines_are_for_each_role_s_own_processes():
    body = yaml.safe_load((REPOSITORY / "examples" / "heterogeneous" / "job.yaml").read_text())
    lines = [line for line in to_torchrun(body) if not line.startswith("#")]
    assert [re.search(r"--nproc-per-node=(\d)", line)[1] for line in lines] == ["1", "2", "2"]


def test_a_size_that_the_job_may_not_have_is_refused():
    with pytest.raises(ConvertError, match="--nodes 3: the job may have 2, 4, 8 machines"):
        to_torchrun(HARD["sizes"], nodes=3)
    with pytest.raises(ConvertError, match="--nodes 9: the job may have 2 to 8 machines"):
        to_torchrun(make_job(fewest=2, most=8), nodes=9)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"nodes": 1}, "--standalone --nodes 1: is for one machine"),
        ({"host": "a"}, "--standalone --host a: is for one machine"),
    ],
)
def test_one_machine_that_meets_nobody_has_neither_a_host_nor_a_number(flags, message):
    with pytest.raises(ConvertError, match=message):
        to_torchrun(make_job(), standalone=True, **flags)


def test_a_host_that_is_no_name_is_refused():
    with pytest.raises(ConvertError, match="--host 'a;b': write a machine's name or address"):
        to_torchrun(make_job(), host="a;b")


@pytest.mark.parametrize("export", [to_sbatch, to_torchrun, as_written])
def test_a_job_that_the_operator_would_refuse_is_refused_in_one_line(export):
    with pytest.raises(ConvertError) as refused:
        export(make_job(fewest=0))
    assert str(refused.value) == "spec.minReplicas: 0: must be at least 1"


@each_example
def test_yaml_is_the_job_as_its_author_wrote_it(path):
    body = yaml.safe_load(path.read_text())
    stored = deepcopy(body)
    stored["metadata"] |= {"uid": "1", "resourceVersion": "2", "managedFields": [], "generation": 3}
    stored["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    stored["spec"] |= {"cleanPodPolicy": "Running", "suspend": False, "priorityClassName": ""}
    stored["status"] = {"replicas": 2}
    again = yaml.safe_load(to_yaml(as_written(stored)))
    assert again["metadata"] == body["metadata"]
    assert again.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert parse_spec(again) == parse_spec(body)
    assert again["spec"].keys() <= body["spec"].keys()
