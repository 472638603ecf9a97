"""Lines and scripts as the field's tutorials print them, in pods of Torchrun mode with the newest torch."""

import re

import pytest
import yaml

from elastic_operator.build.traceback import failure_of
from tests.api.jobs import make_container, make_template
from tests.build.objects import make_spec
from tests.build.torchrun_pods import TorchrunPods
from tests.docs.pages import blocks
from tests.examples.torchrun import EXAMPLES

pytestmark = [pytest.mark.processes, pytest.mark.programs, pytest.mark.timeout(300)]

SECONDS = 200
# In one write: unbuffered, as pods' output is, `print` makes one for each word, and processes mix theirs.
TRAIN = """\
import os, sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
sum = torch.ones(1)
dist.all_reduce(sum)
told = ("rank", dist.get_rank(), "local", os.environ["LOCAL_RANK"], "sum", int(sum), *sys.argv[1:])
os.write(1, (" ".join(map(str, told)) + "\\n").encode())
dist.destroy_process_group()
"""
PARSES = """\
import argparse, os

parser = argparse.ArgumentParser()
parser.add_argument("{flag}", type=int)
args = parser.parse_args()
print("local rank", args.local_rank, os.environ["LOCAL_RANK"])
"""
PROGRAMS = {
    "accelerate": "#!/usr/bin/python3.11\nfrom accelerate.commands.accelerate_cli import main\nmain()\n",
}
"""Console scripts of packages, as an installer makes them."""
SAID = re.compile(r"rank (\d+) local (\d+) sum (\d+)(.*)")


def template(line):
    return make_template(make_container(args=line.split()))


def ran(folder, spec, *, pods, script=TRAIN, packages=()):
    """Standard output of each pod, after all have ended well."""
    if script is not None:
        (folder / "train.py").write_text(script)
    with TorchrunPods(folder, spec, packages=packages) as job:
        for name in packages and PROGRAMS:
            program = folder / "bin" / name
            program.write_text(PROGRAMS[name])
            program.chmod(0o755)
        for number in range(pods):
            job.begin(number)
        ends = job.end(seconds=SECONDS)
    assert [code for code, _, _ in ends] == [0] * pods, ends
    return [out for _, out, _ in ends]


def said(outputs):
    """Of each process: rank, local rank, sum over the group, and its arguments; one list per pod."""
    return [sorted((int(r), int(local), int(s), rest) for r, local, s, rest in SAID.findall(out)) for out in outputs]


def test_a_whole_torchrun_line_with_an_endpoint_of_its_own_trains_on_two_pods(tmp_path):
    line = (
        "torchrun --nnodes=1:3 --nproc_per_node=4 --max_restarts=3 --rdzv_id=1 --rdzv_backend=c10d"
        " --rdzv_endpoint=192.0.0.1:1234 train.py --lr 0.1"
    )
    ranks = said(ran(tmp_path, make_spec(template(line), min_=2, max_=3), pods=2))
    assert [[local for _, local, _, _ in pod] for pod in ranks] == [[0, 1, 2, 3]] * 2
    assert sorted(rank for pod in ranks for rank, *_ in pod) == list(range(8))
    assert {(total, rest) for pod in ranks for *_, total, rest in pod} == {(8, " --lr 0.1")}


def test_the_line_for_each_of_two_machines_with_its_node_rank_trains_on_two_pods(tmp_path):
    line = "torchrun --nproc_per_node=1 --nnodes=2 --node_rank={} --rdzv_backend=c10d train.py"
    master, worker = ({"template": template(line.format(rank))} for rank in (0, 1))
    spec = make_spec(min_=2, max_=2, master=master, worker=worker)
    ranks = said(ran(tmp_path, spec, pods=2))
    assert sorted(pod[0][:3] for pod in ranks) == [(0, 0, 2), (1, 0, 2)]


def test_standalone_trains_in_a_job_of_one_pod(tmp_path):
    line = "torchrun --standalone --nproc_per_node=2 train.py"
    (ranks,) = said(ran(tmp_path, make_spec(template(line), min_=1, max_=1), pods=1))
    assert [one[:3] for one in ranks] == [(0, 0, 2), (1, 1, 2)]


@pytest.mark.parametrize("options", ["--use_env ", ""])
def test_the_older_launcher_runs_a_script_that_reads_its_local_rank(tmp_path, options):
    line = f"python -m torch.distributed.launch {options}--nproc_per_node=2 train.py"
    script = TRAIN if options else PARSES.format(flag="--local-rank")
    (out,) = ran(tmp_path, make_spec(template(line), min_=1, max_=1), pods=1, script=script)
    if options:
        assert [one[:3] for one in said([out])[0]] == [(0, 0, 2), (1, 1, 2)]
    else:
        assert sorted(out.splitlines()) == ["local rank 0 0", "local rank 1 1"]


def test_a_script_that_takes_local_rank_with_an_underscore_is_told_what_to_write_and_then_runs(tmp_path):
    """`torch.distributed.launch` has passed `--local-rank` since torch 2.0."""
    (tmp_path / "train.py").write_text(PARSES.format(flag="--local_rank"))
    line = template("python -m torch.distributed.launch --max_restarts=0 ../train.py")
    with TorchrunPods(tmp_path / "older", make_spec(line, min_=1, max_=1, nprocPerNode=2)) as job:
        job.begin(0)
        ((code, out, err),) = job.end(seconds=SECONDS)
    told = failure_of(out + err).traceback
    assert code == 1
    instead = make_template(make_container(args=yaml.safe_load(re.search(r"as in (\[.*\])\.$", told)[1])))
    (out,) = ran(tmp_path, make_spec(instead, min_=1, max_=1, nprocPerNode=2), pods=1, script=None)
    assert sorted(out.splitlines()) == ["local rank 0 0", "local rank 1 1"]


def test_the_launch_script_with_a_script_and_its_arguments_trains_on_two_pods(tmp_path):
    (tmp_path / "launch.sh").write_text((EXAMPLES / "launch-sh" / "launch.sh").read_text())
    main = make_container(command=["bash", "launch.sh"], args=["train.py", "--lr", "0.1"])
    ranks = said(ran(tmp_path, make_spec(make_template(main), min_=2, max_=2), pods=2))
    assert sorted(pod[0] for pod in ranks) == [(0, 0, 2, " --lr 0.1"), (1, 0, 2, " --lr 0.1")]


(ACCELERATE,) = (block.commands for block in blocks("docs/words.md", "text") if "accelerate" in block.text)


@pytest.mark.extended
@pytest.mark.parametrize("by_a_shell", [False, True])
def test_accelerate_that_is_given_the_jobs_rendezvous_trains_on_two_pods(tmp_path, by_a_shell):
    words = [*ACCELERATE[0].split(), "--lr", "0.1"]
    if by_a_shell:
        words = ["bash", "-c", re.sub(r"\$\((\w+)\)", r"$\1", " ".join(words))]
    spec = make_spec(make_template(make_container(command=words, args=None)), min_=1, max_=3)
    ranks = said(ran(tmp_path, spec, pods=2, packages=["trainers"]))
    assert sorted(rank for pod in ranks for rank, *_ in pod) == [0, 1, 2, 3]
    assert {(total, rest) for pod in ranks for *_, total, rest in pod} == {(4, " --lr 0.1")}


@pytest.mark.extended
def test_accelerate_for_a_number_of_machines_trains_in_a_job_of_one_size(tmp_path):
    main = make_container(command=ACCELERATE[1].split(), args=None)
    ranks = said(ran(tmp_path, make_spec(make_template(main), min_=2, max_=2), pods=2, packages=["trainers"]))
    assert [[one[:3] for one in pod] for pod in ranks] == [[(0, 0, 4), (1, 1, 4)], [(2, 0, 4), (3, 1, 4)]]


SPAWNS = """\
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(gpu, gpus, hosts, host):
    dist.init_process_group("gloo", init_method="env://", rank=host * gpus + gpu, world_size=hosts * gpus)
    sum = torch.ones(1)
    dist.all_reduce(sum)
    os.write(1, f"rank {dist.get_rank()} local {gpu} sum {int(sum)}\\n".encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    host, hosts = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    print("meeting at", os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
    mp.spawn(train, nprocs=2, args=(2, hosts, host))
"""


def test_a_script_that_spawns_processes_counts_pods_under_torchrun_with_one_process_each(tmp_path):
    spec = make_spec(template("train.py"), min_=1, max_=2, nprocPerNode=1)
    ranks = said(ran(tmp_path, spec, pods=2, script=SPAWNS))
    assert sorted(ranks) == [[(0, 0, 4, ""), (1, 1, 4, "")], [(2, 0, 4, ""), (3, 1, 4, "")]]


def test_without_torchrun_such_a_script_gets_the_pods_rank_where_the_template_asks_for_it(tmp_path):
    own = [{"name": "RANK", "value": "$(ELASTIC_POD_RANK)"}]
    main = make_container(command=["python", "train.py"], args=None, env=own)
    ranks = said(ran(tmp_path, make_spec(make_template(main), min_=2, max_=2), pods=2, script=SPAWNS))
    assert ranks == [[(0, 0, 4, ""), (1, 1, 4, "")], [(2, 0, 4, ""), (3, 1, 4, "")]]
