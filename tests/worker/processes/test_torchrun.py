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
