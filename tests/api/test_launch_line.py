"""torchrun lines as tutorials print them, in a job's template: each runs here, or is refused in one line."""

import pytest

from elastic_api.invalid import InvalidSpecError
from elastic_api.launch_line import MAX_NAMED, as_run
from elastic_api.parse import parse_spec, unused_flags
from elastic_api.template import main_container
from elastic_worker import flags
from tests.api.jobs import make_container, make_job, make_template

LINE = (
    "torchrun --nnodes=1:3 --nproc_per_node=4 --max_restarts=3 --rdzv_id=1 --rdzv_backend=c10d"
    " --rdzv_endpoint=192.0.0.1:1234 train.py --lr 0.1"
)
PRINTED = LINE.split()
KEPT = ["--nproc_per_node=4", "--max_restarts=3", "--rdzv_backend=c10d", "train.py", "--lr", "0.1"]
BY_HAND = (
    "--nnodes=2 --node_rank={} --nproc_per_node=1 --master_addr=10.0.0.1 --master_port=1234 train.py --master_port 3"
)
ELASTIC = {"runtime": {"mode": "Elastic"}}
AT = "spec.template.spec.containers[0]"
SEES = "has no effect, remove it: the operator decides this, because"
MASTER = "it is how the pods find their master"
SIZE = "the job's size is minReplicas and maxReplicas"


def job(*, command=None, args=None, min=1, max=4, **spec):
    template = make_template(make_container(command=command, args=args))
    return parse_spec(make_job(minReplicas=min, maxReplicas=max, template=template, **spec))


def run(**container):
    """What the pods of such a job run: command and arguments."""
    spec = job(**container)
    main = as_run(main_container(spec.template), spec)
    return main.get("command"), main.get("args")


def refusal(**container):
    with pytest.raises(InvalidSpecError) as error:
        job(**container)
    return str(error.value)


def test_of_a_whole_line_pasted_as_args_the_script_its_processes_and_restarts_are_kept():
    assert run(args=PRINTED) == (None, KEPT)


def test_the_same_line_pasted_as_the_command():
    assert run(command=PRINTED) == (["torchrun"], KEPT)
    assert run(command=["/opt/conda/bin/torchrun"], args=PRINTED[1:]) == (["/opt/conda/bin/torchrun"], KEPT)


def test_what_is_not_used_of_it_is_told_flag_by_flag():
    assert unused_flags(job(args=PRINTED)).split("; ") == [
        f"{AT}.args[1]: '--nnodes=1:3': {SEES} {SIZE}",
        f"{AT}.args[4]: '--rdzv_id=1': {SEES} {MASTER}",
        f"{AT}.args[6]: '--rdzv_endpoint=192.0.0.1:1234': {SEES} {MASTER}",
    ]
    assert f"{AT}.command[4]: '--rdzv_id=1'" in unused_flags(job(command=PRINTED))
    assert f"{AT}.args[3]: '--rdzv_id=1'" in unused_flags(job(command=PRINTED[:1], args=PRINTED[1:]))


def test_a_number_of_pods_that_is_the_jobs_own_needs_no_word():
    assert "nnodes" not in unused_flags(job(args=PRINTED, max=3))
    assert unused_flags(job(args=["--nnodes", "2", "train.py"], min=2, max=2)) == ""
    # The job may be given more pods while it runs, torchrun's limit may not.
    assert run(args=["--nnodes", "2", "train.py"], min=2, max=2) == (None, ["train.py"])


@pytest.mark.parametrize("python", ["python", "python3", "/venv/bin/python3.11"])
def test_python_m_is_torchrun_too(python):
    words = [python, "-u", "-m", "torch.distributed.run", *PRINTED[1:]]
    assert run(args=words) == (None, KEPT)
    assert run(command=words) == (words[:4], KEPT)


def test_the_older_launcher_passes_the_local_rank_to_the_script_so_it_stays():
    words = ["python", "-m", "torch.distributed.launch", "--use_env", *PRINTED[1:]]
    assert run(args=words) == (words[:3], ["--use_env", *KEPT])


@pytest.mark.parametrize("rank", [0, 1])
def test_node_ranks_and_masters_are_left_to_torchrun_which_ignores_them(rank):
    words = BY_HAND.format(rank).split()
    assert run(args=["torchrun", *words]) == (None, words[1:])
    assert unused_flags(job(args=words, min=2, max=2)) == ""


def test_a_line_that_refers_to_the_pods_variables_stays():
    line = "torchrun --nnodes=1:$(WORLD_SIZE) --rdzv_id=7 --rdzv_endpoint=$(MASTER_ADDR):$(MASTER_PORT) train.py"
    assert run(command=line.split()) == (line.split(), None)
    assert unused_flags(job(command=line.split())) == ""


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("--rdzv_conf=timeout=900", MASTER),
        ("--rdzv-conf timeout=900", MASTER),
        ("--local_addr=10.0.0.7", "it is each pod's own address"),
        ("--nnodes=8", SIZE),
    ],
)
def test_other_flags_with_which_the_pods_would_not_meet(flag, reason):
    words = [*flag.split(), "train.py"]
    assert run(args=words) == (None, ["train.py"])
    assert unused_flags(job(args=words)) == f"{AT}.args[0]: '{flag}': {SEES} {reason}"


@pytest.mark.parametrize(
    "words",
    [
        ["train.py", "--nnodes=1:3"],
        ["--no-such-flag", "--nnodes=1:3", "train.py"],
        ["--rdzv_backend=ours", "--rdzv_endpoint=there:1", "--rdzv_id=1", "train.py"],
        ["--rdzv_conf=is_host=true", "train.py"],
        ["--rdzv_id=1", "train.py"],
    ],
)
def test_what_is_not_torchruns_or_does_no_harm_stays(words):
    assert run(args=words) == (None, words)
    assert unused_flags(job(args=words)) == ""


def test_another_program_stays():
    for words in (["python", "train.py", "--nnodes=1:3"], ["python", "-m", "train"], ["bash", "launch.sh"]):
        assert run(command=words, args=None) == (words, None)


def test_standalone_is_a_job_of_one_pod():
    words = ["torchrun", "--standalone", "--nproc_per_node=4", "train.py"]
    assert run(command=words, max=1) == (words, None)
    assert refusal(command=words) == (
        f"{AT}.command[1]: '--standalone': must be removed, or maxReplicas be 1: with it each pod would train alone"
    )


@pytest.mark.parametrize("backend", ["etcd", "etcd-v2", "static"])
def test_another_rendezvous_is_refused_with_what_to_write_instead(backend):
    told = refusal(args=["torchrun", "--rdzv_backend", backend, "--rdzv_endpoint=etcd:2379", "train.py"])
    assert told.startswith(f"{AT}.args[1]: '--rdzv_backend {backend}': must be removed with its endpoint")
    assert "c10d" in told


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        (
            "--rdzv_endpoint=192.0.0.1:1234",
            f"or its value be a variable's: the operator decides this, because {MASTER}",
        ),
        ("--rdzv-conf timeout=900", MASTER),
        ("--standalone", "or maxReplicas be 1"),
        ("--rdzv_backend=etcd", "c10d"),
        ("--nnodes=1:3", SIZE),
        ("--nnodes=2", SIZE),
    ],
)
@pytest.mark.parametrize("shell", [["bash", "-c"], ["/bin/sh", "-exc"], ["bash", "-o", "pipefail", "-c"]])
def test_a_line_for_a_shell_is_refused_where_the_pods_would_not_meet(flag, told, shell):
    text = f"cd /home/user && \\\n  torchrun --nproc_per_node=4 \\\n  {flag} train.py; echo done"
    message = refusal(command=shell, args=[text])
    assert message.startswith(f"{AT}.args[0]: '{flag}': must be removed")
    assert told in message


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --nnodes=1:$WORLD_SIZE --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT --rdzv_backend=c10d train.py",
        "torchrun --nnodes=1:8 --rdzv_id=1 train.py",
        "echo torchrun; python -m train --rdzv_endpoint=192.0.0.1:1234",
        "torchrun 'train.py",
        "torchrun",
        "",
    ],
)
def test_a_line_for_a_shell_that_can_run_is_left_alone(text):
    assert run(command=["bash", "-c", text]) == (["bash", "-c", text], None)


@pytest.mark.parametrize("words", [["bash"], ["bash", "-c"], ["bash", "launch.sh", "-c"]])
def test_a_shell_without_a_text_is_left_alone(words):
    assert run(command=words) == (words, None)


def test_in_elastic_mode_the_launcher_reads_the_line_and_what_it_does_not_use_is_told():
    words = ["torchrun", "--standalone", *PRINTED[1:]]
    assert run(args=words, **ELASTIC) == (None, words[1:])
    assert run(command=words, **ELASTIC) == (words, None)
    told = unused_flags(job(args=words, **ELASTIC))
    assert [flag in told for flag in ("--standalone", "--nnodes", "--rdzv_id", "_backend")] == [True, True, True, False]
    assert "etcd" in unused_flags(job(args=["--rdzv_backend=etcd", "train.py"], **ELASTIC))


def test_in_elastic_mode_a_line_for_a_shell_is_read_by_the_launcher_too_and_named():
    text = "source venv/bin/activate; torchrun check.py; torchrun --nnodes=1:3 --rdzv_endpoint=$HOST:1 train.py"
    words = ["bash", "-c", text]
    assert run(command=words, **ELASTIC) == (words, None)
    assert unused_flags(job(command=words, **ELASTIC)) == f"{AT}.command[2]: '--nnodes=1:3': {SEES} {SIZE}"


def test_each_role_has_a_line_of_its_own():
    template = make_template(make_container(name="a"), make_container(args=PRINTED))
    spec = parse_spec(make_job(master={"template": template}))
    assert unused_flags(spec).startswith("spec.master.template.spec.containers[1].args[1]: ")


@pytest.mark.parametrize(("fewest", "fields"), [(1, {}), (4, ELASTIC)])
def test_the_rank_of_a_pod_is_for_scripts_that_know_all_pods_beforehand(fewest, fields):
    env = [{"name": "A"}, {"name": "RANK", "value": "$(ELASTIC_POD_RANK)"}]
    template = make_template(make_container(env=env))
    parse_spec(make_job(minReplicas=4, maxReplicas=4, template=template))
    with pytest.raises(InvalidSpecError, match=r"env\[1\].value: '\$\(ELASTIC_POD_RANK\)': must stand in a job of one"):
        parse_spec(make_job(minReplicas=fewest, maxReplicas=4, template=template, **fields))


@pytest.mark.parametrize("nnodes", ["", ":3", ":", "9" * 5000, "1:" + "9" * 5000, "two"])
def test_an_nnodes_that_is_no_number_is_named_as_it_is_written_or_left_to_the_shell(nnodes):
    assert f"--nnodes={nnodes}"[:20] in unused_flags(job(args=["torchrun", f"--nnodes={nnodes}", "train.py"]))
    job(command=["bash", "-c", f"torchrun --nnodes={nnodes} train.py"])


def test_a_job_that_has_run_is_not_refused_for_its_line_but_named():
    template = make_template(make_container(args=["torchrun", "--standalone", "sweep.py"]))
    body = make_job(minReplicas=1, maxReplicas=4, template=template)
    assert "each pod would train alone" in unused_flags(parse_spec(body, has_run=True))
    with pytest.raises(InvalidSpecError):
        parse_spec(body)


def test_nodes_may_be_checked_one_by_one_before_the_line_that_trains():
    job(command=["bash", "-c", "torchrun --standalone check.py && torchrun train.py"])
    assert "--standalone" in refusal(command=["bash", "-c", "torchrun check.py && torchrun --standalone train.py"])


def test_a_tenants_line_costs_no_more_than_a_limit_however_long_it_is(monkeypatch):
    """Reading it takes the time of all jobs: options are looked up at most so often for each launcher in it."""
    looked_up = []
    known = flags._full_name
    monkeypatch.setattr(flags, "_full_name", lambda *words: looked_up.append(1) or known(*words))
    many = ["--nnodes=2"] * (flags.MOST_OPTIONS + 1)
    assert run(args=["torchrun", *many, "train.py"]) == (None, ["torchrun", *many, "train.py"])
    assert len(looked_up) <= 8 * flags.MOST_OPTIONS
    looked_up.clear()
    job(command=["bash", "-c", "torchrun --nnodes=4 train.py " * 4000])
    assert not looked_up


def test_a_message_names_a_few_flags_and_counts_the_others():
    told = unused_flags(job(args=["torchrun", *["--rdzv-conf=x"] * 50, "train.py"]))
    assert told.count("; ") == MAX_NAMED
    assert told.endswith(f"and {50 - MAX_NAMED} more")


@pytest.mark.parametrize(
    ("words", "at", "program"),
    [
        (["deepspeed", "--num_gpus=4", "train.py"], "command[0]", "deepspeed"),
        (["/opt/conda/bin/mpirun", "-np", "4", "python", "train.py"], "command[0]", "/opt/conda/bin/mpirun"),
        (["bash", "-c", "cd /workspace\ncomposer -n 8 train.py"], "command[2]", "composer"),
        (["bash", "-c", "source venv/bin/activate && A=1 deepspeed train.py"], "command[2]", "deepspeed"),
        (["bash", "-c", "set -e\n# it's all\ndeepspeed train.py"], "command[2]", "deepspeed"),
    ],
)
def test_a_launcher_that_starts_processes_by_itself_is_refused_in_elastic_mode_only(words, at, program):
    assert refusal(command=words, **ELASTIC) == (
        f"spec.template.spec.containers[0].{at}: '{program}': must be torchrun in Elastic mode: it starts the processes"
        " of its machine by itself, and each pod would train alone"
    )
    assert run(command=words) == (words, None)


MEETS = "--multi_gpu --rdzv_backend=c10d --rdzv_conf=$(PET_RDZV_CONF)"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("accelerate launch train.py", "command[0]: 'accelerate launch'"),
        ("/venv/bin/accelerate launch --multi_gpu --num_processes 8 train.py", "'/venv/bin/accelerate launch'"),
        ("accelerate launch --config_file accelerate.yaml train.py", "'accelerate launch'"),
        ("accelerate launch --rdzv_backend=c10d --rdzv_conf=$(PET_RDZV_CONF) train.py", "'accelerate launch'"),
        ("accelerate launch --multi_gpu --rdzv_backend=c10d train.py", "'accelerate launch'"),
        ("accelerate launch --multi_gpu --machine_rank=$(ELASTIC_POD_RANK) train.py", "'accelerate launch'"),
        ("python -m accelerate.commands.launch train.py", "'-m accelerate.commands.launch'"),
        ("accelerate-launch --use_fsdp train.py", "'accelerate-launch --use_fsdp'"),
        (
            ["bash", "-c", "torchrun check.py && accelerate launch train.py; echo done"],
            "command[2]: 'accelerate launch'",
        ),
    ],
)
def test_accelerate_with_a_rendezvous_of_its_own_is_refused_in_torchrun_mode_only(words, told):
    words = words.split() if isinstance(words, str) else words
    message = refusal(command=words)
    assert told in message
    assert "must be `torchrun SCRIPT`, under which the same script runs, or have --multi_gpu" in message
    assert "\n" not in message
    for runs in ({"max": 1}, ELASTIC):
        assert run(command=words, **runs) == (words, None)


@pytest.mark.parametrize(
    ("words", "fewest"),
    [
        (f"accelerate launch {MEETS} train.py", 1),
        (f"python -m accelerate.commands.launch {MEETS.replace('=', ' ')} train.py", 1),
        (f"accelerate launch {MEETS.replace('_', '-')} train.py", 1),
        ("accelerate launch --multi_gpu --machine_rank $(ELASTIC_POD_RANK) train.py", 4),
        (["bash", "-c", "accelerate launch check.py; torchrun train.py"], 1),
        (["bash", "-c", "pip install accelerate && torchrun train.py launch"], 1),
        (["bash", "-c", f"accelerate launch {MEETS} train.py".replace("(", "").replace(")", "")], 1),
        ("accelerate config", 1),
    ],
)
def test_accelerate_that_is_given_the_jobs_rendezvous_or_does_not_train_stays(words, fewest):
    words = words.split() if isinstance(words, str) else words
    assert run(command=words, min=fewest) == (words, None)


@pytest.mark.parametrize(
    "words",
    [
        ["mpirun", "-np", "1", "torchrun", "train.py"],
        ["mpirun", "-np", "1", "python", "-m", "torch.distributed.run", "train.py"],
        ["python", "deepspeed"],
        ["bash", "-c", "pip install deepspeed; torchrun train.py --deepspeed zero.json"],
        ["bash", "-c", "deepspeed check.py; python -m torch.distributed.run train.py"],
        ["bash", "-c", "echo deepspeed; accelerate launch train.py"],
        ["bash", "-c", "mpirun -n 1 ./check_nodes && accelerate launch --multi_gpu train.py"],
        ["bash", "-c", "horovodrun --check-build; exec ./run.sh"],
        ["bash", "launch.sh", "deepspeed"],
    ],
)
def test_a_command_that_may_call_torchrun_is_left_to_the_launcher(words):
    assert run(command=words, **ELASTIC) == (words, None)
