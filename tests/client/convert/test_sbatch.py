"""Batch scripts of Slurm become jobs: the tutorial's as it is, others with their text unchanged."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_client.convert import slurm_options
from elastic_client.convert.converted import ConvertError
from elastic_client.convert.sbatch import from_sbatch
from elastic_client.convert.shell import statements
from tests.client.convert.checks import accepted, main, said
from tests.client.convert.test_hostile import as_in_pod
from tests.docs.pages import REPOSITORY

FOLDER = Path(__file__).parent / "scripts"
TUTORIAL = REPOSITORY / "examples" / "slurm" / "sbatch_run.sh"
IMAGE = "registry.example.com/team/train:1"
HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n"
LAUNCH = "srun torchrun --nnodes=2 --nproc-per-node=1 train.py\n"


def script(name):
    return (FOLDER / f"{name}.sh").read_text()


def convert(text, **more):
    return from_sbatch(text, **{"image": IMAGE, **more})


def test_the_tutorial_s_script_becomes_a_job_without_a_shell():
    converted = convert(TUTORIAL.read_text())
    spec = accepted(converted)
    assert (spec.min_replicas, spec.max_replicas, spec.nproc_per_node) == (2, 2, "auto")
    assert converted.manifest["metadata"] == {"name": "multinode-example"}
    assert main(converted) == {
        "name": "pytorch",
        "image": IMAGE,
        "args": ["multinode_torchrun.py", "50", "10"],
        "env": [{"name": "LOGLEVEL", "value": "INFO"}],
        "resources": {"requests": {"cpu": 4}, "limits": {"nvidia.com/gpu": 1}},
    }


def test_each_line_of_the_tutorial_s_script_is_kept_or_named():
    text = TUTORIAL.read_text()
    told = said(convert(text))
    for number, line in enumerate(text.splitlines(), 1):
        if line and not line.startswith(("#!", "--", "srun torchrun", "export LOGLEVEL", "multinode")):
            assert f"line {number}: " in told, line
    for option in ("--nnodes 2", "--rdzv_id $RANDOM", "--rdzv_backend c10d", "--rdzv_endpoint $head_node_ip:29500"):
        assert f"line 17: {option}: " in told


def test_here_documents_and_variables_stay_as_they_are_written():
    converted = convert(script("setup"), args=["a", "b c"])
    spec = accepted(converted)
    bash, flag, text, *rest = main(converted)["command"]
    assert (bash, flag, rest) == ("bash", "-c", ["script", "a", "b c"])
    assert "cat > config.yaml <<'EOF'\nlr: $LR\nline: srun torchrun --nnodes=7\nEOF\n" in text
    assert 'train.py --config config.yaml --lr "$LR" "$@" > log.txt 2>&1\n' in text
    assert "\nexec torchrun \\\n" in text
    gone = ("MASTER_ADDR", "rdzv", "--nproc", "scontrol", "--cpu-bind")
    assert [word for word in gone if word in text] == []
    assert subprocess.run(["bash", "-n", "-c", text], check=False).returncode == 0
    assert (spec.min_replicas, spec.max_replicas, spec.nproc_per_node) == (2, 4, "auto")


SAID = [
    ("setup", "line 2: #SBATCH -J Llama_FT.1 -> metadata.name: llama-ft-1"),
    (
        "setup",
        "line 3: #SBATCH --nodes=2-4 -> spec.minReplicas: 2, spec.maxReplicas: 4; it may change while the job runs",
    ),
    ("setup", "line 5: #SBATCH --gpus-per-node=a100:8: the kind a100"),
    ("setup", "line 7: #SBATCH --mem=512G -> memory: 512Gi in each pod"),
    ("setup", "line 8: #SBATCH --time=2-00:00:00 -> spec.activeDeadlineSeconds: 172800"),
    ("setup", "line 9: #SBATCH --requeue -> always so"),
    ("setup", "line 10: #SBATCH --signal=USR1@300 -> spec.elasticity.gracePeriodSeconds: 300"),
    ("setup", "line 11: #SBATCH --partition=gpu: write spec.template.spec.nodeSelector"),
    ("setup", "line 13: #SBATCH --frobnicate=3: "),
    ("setup", "line 15: `module load cuda/12.4` stays: the image must have it."),
    ("setup", "line 20: export MASTER_PORT=29500: it finds nodes or addresses"),
    ("setup", "line 31: srun --cpu-bind=none: a pod has no steps"),
    ("setup", "$SLURM_CPUS_PER_TASK -> env: 96"),
    ("setup", "line 38: #SBATCH --nodes=9: it stands after the first command"),
    ("setup", "2 to 4 pods: 1 master and 1 to 3 workers, 8 GPUs in each, at most 32 in all."),
    ("tasks", "line 2: #SBATCH --ntasks-per-node=4 -> 4 tasks in each pod"),
    ("tasks", "line 8: #SBATCH --account=vision: a GPUQuotaPolicy"),
    ("container", "line 8: srun --container-mounts=/lustre:/lustre: write spec.template.spec.volumes"),
    ("container", "line 4: #SBATCH --exclusive: a pod has what it asks for"),
    ("container", "line 6: #SBATCH --array=0-3: each job is a manifest of its own"),
]


@pytest.mark.parametrize(("name", "line"), SAID)
def test_what_becomes_of_an_option_or_a_line_is_said(name, line):
    assert line in said(convert(script(name)))


def test_tasks_become_the_processes_of_a_pod():
    converted = convert(script("tasks"))
    spec = accepted(converted)
    container = main(converted)
    assert container["args"] == ["train.py", "--devices", "4"]
    assert container["env"] == [{"name": "SEED", "value": "7"}, {"name": "WANDB_MODE", "value": "offline"}]
    requests = {"cpu": 32, "memory": "125Gi"}
    assert container["resources"] == {
        "requests": requests,
        "limits": {"memory": "125Gi", "nvidia.com/gpu": 4},
    }
    assert (spec.nproc_per_node, spec.active_deadline_seconds) == ("auto", 5400)


def test_spaces_and_empty_lines_in_quotes_stay_as_they_are():
    text = (
        "srun -l torchrun \\\n  --nnodes=2 --tee=3 \\\n  --rdzv_id  $RANDOM train.py 'a  b' \"x\n\n  $Y\" \\\n  > log\n"
    )
    command = main(convert(HEAD + text))["command"][2]
    assert command == "exec torchrun --tee=3 train.py 'a  b' \"x\n\n  $Y\" \\\n  > log\n"


PLAIN = [
    (
        "source venv/bin/activate\nsrun python3 train.py --n $N > log\n",
        "exec python3 -m torch.distributed.run train.py --n $N > log\n",
    ),
    (
        "srun python -W ignore t.py --n $N > log\n",
        "exec python -m torch.distributed.run --no-python python -W ignore t.py --n $N > log\n",
    ),
    ("srun ~/venv/bin/python -u -m pkg --n $N\n", "exec ~/venv/bin/python -u -m torch.distributed.run -m pkg --n $N\n"),
    (
        "OMP=1 srun -l \\\n  python \\\n  train.py $N\nsync\n",
        "OMP=1 \\\n  python -m torch.distributed.run \\\n  train.py $N\nsync\n",
    ),
]


@pytest.mark.parametrize(("commands", "end"), PLAIN)
def test_python_that_srun_starts_is_started_by_torchrun_so_that_the_pods_meet(commands, end):
    converted = convert(HEAD + commands)
    accepted(converted)
    assert main(converted)["command"][2].endswith(end)
    assert "the pods meet by torchrun" in said(converted)


def test_a_container_of_pyxis_is_the_image():
    converted = from_sbatch(script("container"))
    accepted(converted)
    container = main(converted)
    assert container["image"] == "nvcr.example.com/nvidia/pytorch:25.01-py3"
    assert container["workingDir"] == "/workspace"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}


@given(
    name=st.from_regex(r"x[a-z]{2,8}(-[a-z]{2,5})?", fullmatch=True),
    value=st.from_regex(r"[a-z0-9]{0,5}", fullmatch=True),
)
def test_an_option_that_nobody_knows_is_always_named(name, value):
    option = f"--{name}={value}"
    assert any(
        line.startswith(f"line 3: #SBATCH {option}: ") for line in convert(f"{HEAD}#SBATCH {option}\n{LAUNCH}").lost
    )


@given(st.text(alphabet="ab $'\"\\\n#<>|&;(){}=`EOFdoneif", max_size=60))
def test_the_statements_of_any_text_are_the_whole_text(text):
    assert "\n".join(part.text for part in statements(text)) == "\n".join(text.splitlines())


REFUSED = [
    (HEAD + LAUNCH, {"image": ""}, "--image: a script of Slurm names none"),
    (HEAD + "echo hi\n", {}, "the script starts no training: write `srun torchrun ...`"),
    (HEAD + LAUNCH + "\n" + LAUNCH, {}, "lines 3, 5: each starts something"),
    (
        HEAD + "for n in a b; do\n  srun torchrun train.py &\ndone\nwait\n",
        {},
        "line 3: for n in a b; do: the training must start",
    ),
    (HEAD.replace("=2", "=two") + LAUNCH, {}, "--nodes=two: write a number of nodes"),
    (HEAD + "#SBATCH --mem=lots\n" + LAUNCH, {}, "--mem=lots: write an amount of memory such as 64G"),
    (HEAD + "#SBATCH --time=soon\n" + LAUNCH, {}, "--time=soon: write minutes"),
    (HEAD + "#SBATCH --gpus-per-node=a:b:c\n" + LAUNCH, {}, "--gpus-per-node=a:b:c: write a number of GPUs"),
    (HEAD + "#SBATCH --comment='x\n" + LAUNCH, {}, "close the quote"),
    (HEAD + "srun torchrun --nnodez=2 train.py\n", {}, "line 3: torchrun has no option --nnodez"),
    (
        HEAD + 'L="torchrun --nnodes 2 --rdzv_backend c10d"\nsrun $L t.py\n',
        {},
        "line 3: L: has flags about nodes and addresses: write the command out",
    ),
    (
        HEAD + 'A=(--lr 1 --rdzv_endpoint $x)\nsrun torchrun "${A[@]}" t.py\n',
        {},
        "line 3: A: has flags about nodes and addresses",
    ),
    (HEAD + LAUNCH, {"name": "A_B"}, "--name: 'A_B': write at most 51"),
]


@pytest.mark.parametrize(("text", "more", "message"), REFUSED)
def test_what_cannot_be_is_refused_in_one_line_that_names_it(text, more, message):
    with pytest.raises(ConvertError) as refused:
        convert(text, **more)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


IN_BASH = "srun bash -c 'torchrun --nnodes=$SLURM_NNODES --node_rank=$SLURM_PROCID --nproc_per_node=4 t.py'\n"
COUNTS = "export WORLD_SIZE=$(($SLURM_NNODES * 4))\nsrun python t.py --world $WORLD_SIZE\n"
COUNT_GPUS = "N=$(nvidia-smi -L | wc -l)\nsrun torchrun --nnodes=2 --nproc_per_node=$N t.py\n"
NOTES = [
    (IN_BASH, "$SLURM_NNODES -> env: $(WORLD_SIZE)"),
    (IN_BASH, "$SLURM_PROCID -> env: $(ELASTIC_POD_RANK)"),
    ("srun bash -c 'torchrun t.py $SLURM_FROB'\n", "$SLURM_FROB: nothing sets it in a pod"),
    (COUNTS, "$WORLD_SIZE, which line 3 sets, is the number of pods here: write another name"),
    (
        "export NODE_RANK=$SLURM_NODEID\nsrun python t.py --rank $NODE_RANK\n",
        "$NODE_RANK, which line 3 sets, is not set in a pod: write $ELASTIC_POD_RANK",
    ),
    ("torchrun --nnodes=2 t.py\n", "line 3: torchrun stands without srun: under Slurm one node runs it"),
    ("srun bash t.sh\n", "Each pod runs `bash t.sh` by itself"),
]


@pytest.mark.parametrize(("commands", "told"), NOTES)
def test_the_output_says_what_differs_in_a_pod(commands, told):
    converted = convert(HEAD + commands)
    accepted(converted)
    assert told in said(converted)


def test_variables_of_slurm_in_single_quotes_are_set():
    env = {one["name"]: one["value"] for one in main(convert(HEAD + IN_BASH))["env"]}
    assert env == {"SLURM_NNODES": "$(WORLD_SIZE)", "SLURM_PROCID": "$(ELASTIC_POD_RANK)"}


def test_a_variable_stays_where_the_option_stays_that_reads_it():
    converted = convert(HEAD + COUNT_GPUS)
    accepted(converted)
    assert "N=$(nvidia-smi -L | wc -l)\nexec torchrun --nproc_per_node=$N t.py\n" in main(converted)["command"][2]
    assert "N=$(nvidia-smi" not in said(converted)


@given(st.lists(st.sampled_from(["$$", "$", "$(WORLD_SIZE)", "$(SEED)", "$(A)", "(", ")", "a", "$SLURM_NNODES"])))
def test_what_kubernetes_expands_stays_as_the_script_has_it(pieces):
    text = "".join(pieces)
    for commands in (f"export SEED='{text}'\nsrun torchrun t.py 'x{text}'\n", f"srun torchrun t.py '{text}' > log\n"):
        container = main(convert(HEAD + commands))
        known = {"WORLD_SIZE": "2"}
        for one in container.get("env", []):
            known[one["name"]] = as_in_pod(one["value"], known)
        words = [as_in_pod(word, known) for word in (*container.get("command", ()), *container.get("args", ()))]
        assert known.get("SEED", text) == text
        assert words[-1] in (f"x{text}", f"exec torchrun t.py '{text}' > log\n")


def test_a_quote_that_is_never_closed_is_one_line():
    with pytest.raises(ConvertError, match='line 3: echo "hi: a quote or bracket is open for more than 400 lines'):
        convert(HEAD + 'echo "hi\n' + "echo hi\n" * 20_000 + LAUNCH)


GPUS = [
    ("gpu", 1),
    ("gpu:4", 4),
    ("gpu:a100", 1),
    ("gpu:a100:4", 4),
    ("gpu:a100:4,nvme:1", 4),
    ("nvme:1,gpu:2", 2),
    ("nvme:1", 0),
]


@pytest.mark.parametrize(("text", "gpus"), GPUS)
def test_generic_resources_are_gpus_and_others_which_are_named(text, gpus):
    converted = convert(f"{HEAD}#SBATCH --gres={text}\n{LAUNCH}")
    accepted(converted)
    limits = main(converted).get("resources", {}).get("limits", {})
    assert limits.get("nvidia.com/gpu", 0) == gpus
    assert ("nvme:1: only GPUs are known here" in said(converted)) == ("nvme" in text)


TIMES = [("90", 5400), ("1:30", 90), ("1:00:00", 3600), ("2-12", 216_000), ("1-0:30", 88_200), ("1-00:00:01", 86_401)]


@pytest.mark.parametrize(("text", "seconds"), TIMES)
def test_time_limits_are_read_as_slurm_does(text, seconds):
    assert slurm_options.seconds(text, "--time") == seconds
