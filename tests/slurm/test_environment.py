"""What `elastic_worker.slurm` makes of Slurm's variables and of torchrun's command line."""

import re
import tempfile

import pytest

from elastic_worker import contract, settings, slurm
from elastic_worker.coordinator.membership import parse
from elastic_worker.launcher import arguments
from elastic_worker.processes import torchrun

NODES = ("gpu3", "gpu7", "gpu8")


def task(name="gpu3", **more):
    """Slurm's variables in a task on that node, and the token that the script has set."""
    return {
        "SLURM_CLUSTER_NAME": "alps",
        "SLURM_JOB_ID": "17",
        "SLURM_LOCALID": "0",
        "SLURMD_NODENAME": name,
        contract.ENV_TOKEN: "secret",
        **more,
    }


def pod(name="gpu3", **more):
    """The launcher's settings there."""
    environ = task(name, **more)
    node = slurm.find(environ, NODES)
    return settings.read({**environ, **slurm.environment(node, environ, address="10.0.0.9")})


def test_the_first_node_is_the_master_and_the_others_find_it_by_its_name():
    first, last = pod("gpu3"), pod("gpu8")
    assert (first.is_master, first.host, first.port) == (True, "gpu3", contract.MASTER_PORT)
    assert (last.is_master, last.host, last.index, last.pod_name) == (False, "gpu3", 1, "gpu8")
    assert (first.job_uid, first.address) == ("alps-17", "10.0.0.9")


def test_the_membership_is_all_nodes_by_the_uids_that_their_launchers_have():
    node = slurm.find(task("gpu3"), NODES)
    membership = parse(slurm.membership_of(node, 2))
    assert membership.members == {pod(name).pod_uid for name in NODES}
    assert (membership.fewest, membership.most, membership.has_successor) == (2, 3, False)


def test_a_job_that_slurm_starts_again_has_a_later_master():
    assert [pod(**more).epoch for more in ({}, {"SLURM_RESTART_COUNT": "2"})] == [1, 3]


def test_nodes_that_several_jobs_share_need_another_port_each():
    first, last = (pod(name, MASTER_PORT="31000") for name in ("gpu3", "gpu7"))
    assert (first.port, first.status_port, last.port) == (31000, 31001, 31000)


def test_a_node_has_as_many_processes_as_gpus_unless_the_command_line_says_how_many():
    assert [pod(**more).processes for more in ({}, {"SLURM_GPUS_ON_NODE": "4"})] == [1, 4]


@pytest.mark.parametrize(
    ("nnodes", "fewest"), [((), 1), (("--nnodes", "2"), 2), (("--nnodes=2:3",), 2), (("--nnodes=1:1", "--nnodes=3"), 3)]
)
def test_nnodes_says_how_few_nodes_may_train_and_all_else_is_the_launchers(nnodes, fewest):
    line = [*nnodes, "--nproc_per_node", "4", "--rdzv_id=7", "train.py", "--nnodes", "50"]
    found, words = slurm.split(line)
    parsed = torchrun.parse(list(arguments.parse(words).words))
    assert (found, parsed.nproc, [name for name, _ in parsed.ignored]) == (fewest, 4, ["--rdzv_id=7"])
    assert (parsed.program.target, parsed.program.args) == ("train.py", ("--nnodes", "50"))


def test_an_option_with_an_empty_value_does_not_take_the_next_word():
    _, words = slurm.split(["--rdzv-conf", "", "--nproc_per_node", "4", "--role=", "-m", "train"])
    parsed = torchrun.parse(list(arguments.parse(words).words))
    assert (parsed.nproc, parsed.program.target) == (4, "train")


def test_a_scratch_folder_that_only_the_login_node_has_is_not_used(tmp_path):
    """Sbatch hands on the environment of the node that it was called on."""
    assert pod(TMPDIR=str(tmp_path)).scratch == str(tmp_path)
    assert pod(TMPDIR=str(tmp_path / "of-the-login-node")).scratch == tempfile.gettempdir()


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        (task(SLURM_LOCALID="1"), "a second task on this node: write --ntasks-per-node=1"),
        (task("gpu9"), "SLURMD_NODENAME=gpu9 is none of the job's nodes: gpu3, gpu7, gpu8"),
        (task(SLURMD_NODENAME=""), "SLURMD_NODENAME is not set: start this by srun"),
        (task(SLURM_HET_SIZE="2"), "the parts of a heterogeneous job do not train together"),
        (task(ELASTIC_TOKEN=""), "ELASTIC_TOKEN is not set: write `export ELASTIC_TOKEN="),
    ],
)
def test_what_lacks_is_one_line_that_says_what_to_write(environ, told):
    with pytest.raises(slurm.SlurmError, match=re.escape(told)):
        slurm.environment(slurm.find(environ, NODES), environ, address="10.0.0.9")


def test_more_nodes_than_there_are_and_numbers_that_are_none_are_refused():
    with pytest.raises(slurm.SlurmError, match="asks for 4 nodes, but the job has 3"):
        slurm.membership_of(slurm.find(task(), NODES), 4)
    with pytest.raises(slurm.SlurmError, match="--nnodes=some: write a number of nodes"):
        slurm.split(["--nnodes=some", "train.py"])
    with pytest.raises(slurm.SlurmError, match="--nnodes=3:2: write a number of nodes"):
        slurm.split(["--nnodes=3:2", "train.py"])


def test_a_nodes_address_is_that_which_it_has_towards_another_node():
    assert slurm.address_towards("127.0.0.1") == "127.0.0.1"
    with pytest.raises(slurm.SlurmError, match=r"no-such-node\.invalid cannot be reached by its name"):
        slurm.address_towards("no-such-node.invalid")


def test_outside_of_slurm_it_ends_with_one_line(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["slurm", "train.py"])
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    assert slurm.main() == contract.EXIT_DO_NOT_RETRY
    said = capsys.readouterr().err
    assert said == "elastic_worker.slurm: SLURM_JOB_NODELIST is not set: start this by srun, in a job of Slurm\n"
