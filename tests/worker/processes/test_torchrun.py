"""torchrun's command lines, as people write them."""

import re
from pathlib import Path

import pytest

from elastic_worker.processes import torchrun
from elastic_worker.processes.program import COMMAND, MODULE, SCRIPT, Program


@pytest.mark.parametrize(
    ("line", "program", "nproc", "ignored"),
    [
        ("train.py", Program(SCRIPT, "train.py"), None, []),
        ("train.py --nnodes 2 -m", Program(SCRIPT, "train.py", ("--nnodes", "2", "-m")), None, []),
        ("--nproc-per-node=2 train.py --lr 1", Program(SCRIPT, "train.py", ("--lr", "1")), 2, []),
        ("--nproc_per_node 4 train.py", Program(SCRIPT, "train.py"), 4, []),
        ("--nproc-per-node gpu --nproc-per-node auto t.py", Program(SCRIPT, "t.py"), "auto", []),
        ("-m package.train -- x", Program(MODULE, "package.train", ("--", "x")), None, []),
        ("--module train", Program(MODULE, "train"), None, []),
        ("--no_python bash -c ls", Program(COMMAND, "bash", ("-c", "ls")), None, []),
        ("--run-path --no-python /a/t.py", Program(SCRIPT, "/a/t.py"), None, []),
        ("--standalone -- train.py", Program(SCRIPT, "train.py"), None, ["--standalone"]),
        (
            "--nnodes=1:4 --max_restarts 3 t.py 7",
            Program(SCRIPT, "t.py", ("7",)),
            None,
            ["--max_restarts 3", "--nnodes=1:4"],
        ),
        ("-r 3 -t3 --log_dir=/tmp t.py", Program(SCRIPT, "t.py"), None, ["--log_dir=/tmp", "-r 3", "-t3"]),
        ("--rdzv_conf a=1,b=2 --rdzv-conf=a=1 t.py", Program(SCRIPT, "t.py"), None, ["--rdzv-conf=a=1"]),
        ("--master_port 1 --master_a h --node-rank=0 t.py", Program(SCRIPT, "t.py"), None, None),
    ],
)
def test_a_command_line_is_understood(line, program, nproc, ignored):
    found = torchrun.parse(line.split())
    assert (found.program, found.nproc) == (program, nproc)
    if ignored is not None:
        assert [flag for flag, _ in found.ignored] == ignored
    assert all(len(why.split()) > 3 for _, why in found.ignored)


OWN = {
    "PET_NNODES": "1:3",
    "PET_RDZV_ENDPOINT": "10.96.0.7:29500",
    "PET_RDZV_ID": "toy-1",
    "MASTER_ADDR": "10.96.0.7",
    "MASTER_PORT": "29500",
    "WORLD_SIZE": "3",
    "ELASTIC_POD_RANK": "2",
    "MAX_RESTARTS": "7",
}


@pytest.mark.parametrize(
    ("line", "unfollowed", "ignored"),
    [
        ("--nnodes=1:3 --rdzv_backend=c10d --rdzv_endpoint=10.96.0.7:29500 --rdzv_id toy-1 t.py", [], []),
        ("--nnodes=3 --node_rank=2 --master_addr=10.96.0.7 --master_port=29500 t.py", [], []),
        ("--nnodes=2 --rdzv_endpoint=there:29500 t.py", ["--nnodes=2", "--rdzv_endpoint=there:29500"], []),
        ("--standalone --rdzv_backend=etcd t.py", ["--rdzv_backend=etcd", "--standalone"], []),
        ("--max_restarts=7 -r 3 --rdzv_id= t.py", ["--rdzv_id="], ["--max_restarts=7", "-r 3"]),
        (f"--rdzv_id={'x' * 200} t.py", [f"--rdzv_id={'x' * 90}"], None),
    ],
)
def test_a_flag_that_says_what_the_pods_own_variable_says_is_followed(line, unfollowed, ignored):
    found = torchrun.parse(line.split(), own=OWN)
    assert list(found.unfollowed) == unfollowed
    if ignored is not None:
        assert sorted(flag for flag, _ in found.ignored) == sorted([*unfollowed, *ignored])


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "no script"),
        ("--nnodes 2", "no script"),
        ("--nnodes", "--nnodes needs a value"),
        ("--nproc_per_node=none t.py", "--nproc-per-node=none"),
        ("--nproc-per-node 0 t.py", "--nproc-per-node=0"),
        ("--wrold-size 4 t.py", "no option --wrold-size"),
        ("-x t.py", "no option -x"),
        ("--standalone=1 t.py", "--standalone takes no value"),
        ("--rdzv x t.py", "--rdzv may mean each of --rdzv-backend, --rdzv-endpoint"),
        ("-m --no-python t", "--module and --no-python exclude each other"),
    ],
)
def test_a_mistake_is_named(line, complaint):
    with pytest.raises(torchrun.UsageError, match=re.escape(complaint)):
        torchrun.parse(line.split())


@pytest.mark.programs
def test_the_table_holds_the_options_of_the_newest_torch():
    from devcluster import torchtree
    from devcluster.progress import Progress

    source = Path(torchtree.ensure(Progress()), "torch", "distributed", "run.py").read_text()
    calls = re.findall(r"add_argument\((.*?)\n    +\)", source, flags=re.DOTALL)
    assert len(calls) > 25
    for call in calls:
        names = set(re.findall(r'"(-[-\w]+)",', call)) - {"--print-completion", "--print_completion"}
        for name in names:
            arguments = [name, "1", "train.py"] if "check_env" not in call else [name, "train.py"]
            assert torchrun.parse(arguments).program.target == "train.py", name
