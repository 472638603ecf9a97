"""From flags to pods: what they run, what they are told, and which GPUs they get."""

from __future__ import annotations

import re

import pytest

from elastic_client.exits import ClientError, Code
from elastic_client.local.place import Sizes
from elastic_client.local.plan import check_room, membership, size, variables
from elastic_operator.build import elastic_pod
from elastic_operator.build.request import BuildSettings
from elastic_operator.plan.facts.decisions import NewPods, Slot
from elastic_worker import contract, settings
from tests.client.local.plans import make_place, make_plan

HERE = {contract.ENV_LOCAL_ADDR, contract.ENV_POD_UID, contract.ENV_TOKEN}
"""What the kubelet fills in."""
OWN = {contract.ENV_MEMBERSHIP_FILE, contract.ENV_STATUS_PORT}
"""A container has a port and a folder of its own, where they are always the same."""


class Owner:
    namespace, name = "team-a", "toy"

    def __init__(self, uid):
        self.uid = uid


def create_pod(index, nnodes):
    """The pod of that container: the master's is the first."""
    role, number = (contract.ROLE_WORKER, index - 1) if index else (contract.ROLE_MASTER, 0)
    slot = Slot(role, number, None, ready=True)
    return NewPods((slot,), incarnation=1, nnodes=nnodes, master_epoch=3), slot


@pytest.mark.parametrize("index", [0, 1, 3])
def test_a_pod_here_is_told_what_the_operator_tells_a_pod(index):
    plan = make_plan(nproc_per_node="2", checkpoint_path="c.pt")
    theirs = elastic_pod.environment(
        Owner(plan.uid),
        plan.spec,
        *create_pod(index, (1, 4)),
        service_ip="127.0.0.1",
        port=29400,
        settings=BuildSettings(),
    )
    ours = variables(plan, make_place(index, epoch=3), {})
    assert {one["name"] for one in theirs} <= {*ours, contract.ENV_MEMBERSHIP_FILE}
    expected = {one["name"]: one["value"] for one in theirs if one["name"] not in HERE | OWN}
    assert {name: ours[name] for name in expected} == expected
    assert (contract.ENV_MEMBERSHIP_FILE in ours) == (index == 0)


def test_the_launcher_can_read_what_it_is_told():
    plan = make_plan(checkpoint_path="c.pt")
    read = settings.read(variables(plan, make_place(1, serial=7), {}))
    assert (read.pod_name, read.pod_uid, read.is_master) == ("toy-worker-0", "toy-worker-0-7", False)
    assert (read.checkpoint_path, read.status_port, read.port) == ("/data/c.pt", 0, 29400)


WORDS = [
    (("train.py", "--lr", "1"), ("--", "train.py", "--lr", "1")),
    (("python", "train.py"), ("--", "train.py")),
    (("torchrun", "--nnodes", "1:4", "--standalone", "train.py"), ("--", "train.py")),
    (("python", "-m", "team.train"), ("--", "-m", "team.train")),
    (("bash", "launch.sh"), ("--command", "--", "bash", "launch.sh")),
]


@pytest.mark.parametrize(("command", "words"), WORDS)
def test_the_same_command_runs_as_in_a_pod(command, words):
    assert make_plan(*command).words == words


NAMES = [({"name": "toy"}, "toy"), ({"name": ""}, "train")]


@pytest.mark.parametrize(("flags", "name"), NAMES)
def test_a_run_has_the_name_that_it_is_given_or_that_of_its_script(flags, name):
    assert make_plan(**flags).name == name


CARDS = [
    ({"gpus_there": 4}, 1, "1"),
    ({"gpus_there": 4, "gpus": "2"}, 1, "2,3"),
    ({"gpus_there": 4, "nproc_per_node": "2"}, 0, "0,1"),
    ({"gpus_there": 4, "gpus": "0"}, 1, ""),
    ({"gpus_there": 0}, 1, None),
    ({"gpus_there": 4, "env": ["CUDA_VISIBLE_DEVICES=7"]}, 1, "7"),
]


@pytest.mark.parametrize(("flags", "index", "cards"), CARDS)
def test_each_pod_has_gpus_of_its_own(flags, index, cards):
    assert variables(make_plan(**flags), make_place(index), {}).get("CUDA_VISIBLE_DEVICES") == cards


PROCESSES = [({"gpus": "2"}, 2), ({}, 1), ({"gpus": "2", "nproc_per_node": "4"}, 4), ({"nproc_per_node": "auto"}, 1)]


@pytest.mark.parametrize(("flags", "processes"), PROCESSES)
def test_a_pod_has_a_process_for_each_gpu_unless_their_number_is_given(flags, processes):
    assert make_plan(gpus_there=8, **flags).processes == processes


SIZES = [((1, 4), None, 4), ((1, 4), 2, 2), ((2, 4), 8, 4), ((3, 3), 3, 3)]


@pytest.mark.parametrize(("bounds", "room", "pods"), SIZES)
def test_there_are_as_many_pods_as_are_allowed_and_have_room(bounds, room, pods):
    assert size(Sizes(*bounds), room) == pods


REFUSED = [
    ({"workers": "4", "gpus_there": 2}, "--workers 4: 4 pods of 1 GPU each need 4 GPUs, .* room for 2 such pods; -g 0"),
    ({"gpus": "1"}, "--gpus 1: torch 2.15.0 of /usr/bin/python3 finds no GPU: -g 0 trains on the CPU"),
    ({"workers": "4:1"}, "--workers 4:1: write a number of pods"),
    ({"workers": "two"}, "--workers two: write a number of pods"),
    ({"nproc_per_node": "many"}, "--nproc-per-node many: write a whole number from 1 to 1024"),
    ({"name": "To_y"}, "--name: 'To_y': write at most"),
    ({"env": ["A"]}, "--env A: write NAME=VALUE"),
    ({"env": ["MASTER_ADDR=x"]}, "MASTER_ADDR"),
]


@pytest.mark.parametrize(("flags", "told"), REFUSED)
def test_a_flag_that_cannot_be_followed_is_named_with_what_to_write(flags, told):
    with pytest.raises(ClientError) as refused:
        make_plan(**flags)
    assert refused.value.code == Code.USAGE
    assert re.search(told, str(refused.value)), str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_run_may_want_more_than_the_machine_has_as_long_as_the_fewest_fit():
    check_room(Sizes(2, 8), 2, 1, flag="SIZE 2:8")
    with pytest.raises(ClientError, match="SIZE 3:8"):
        check_room(Sizes(3, 8), 2, 1, flag="SIZE 3:8")


ENVIRONMENTS = [
    ({"OMP_NUM_THREADS": "3"}, {}, "OMP_NUM_THREADS", "3"),
    ({}, {}, "OMP_NUM_THREADS", "1"),
    ({}, {"workers": "1"}, "OMP_NUM_THREADS", None),
    ({"ELASTIC_LOG_LEVEL": "info"}, {}, "ELASTIC_LOG_LEVEL", "info"),
    ({"ELASTIC_ALIGN_SECONDS": "7"}, {}, "ELASTIC_ALIGN_SECONDS", "60"),
    ({"PET_NNODES": "9"}, {}, "PET_NNODES", "1:4"),
    ({"LR": "1"}, {"env": ["LR=2"]}, "LR", "2"),
    ({"LR": "1"}, {}, "LR", "1"),
]


@pytest.mark.parametrize(("environ", "flags", "name", "value"), ENVIRONMENTS)
def test_a_pod_has_the_users_variables_and_none_of_another_job(environ, flags, name, value):
    assert variables(make_plan(**flags), make_place(), environ).get(name) == value


def test_a_membership_names_those_who_are_to_take_part():
    told = membership(3, Sizes(1, 4), {"toy-master-0": "a", "toy-worker-0": "b"})
    members = [{"name": "toy-master-0", "uid": "a"}, {"name": "toy-worker-0", "uid": "b"}]
    assert told == {"wish": 3, "members": members, "min": 1, "max": 4}
