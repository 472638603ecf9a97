"""People delete what is the operator's: pods in any order, a job without its pods, a namespace with jobs in it."""

import random
import re
import secrets
import shlex
from itertools import pairwise

import pytest

from elastic_api.job import PLURAL
from elastic_worker.contract import LABEL_JOB_NAME
from tests.cluster.lab import OPERATOR_NAMESPACE, Team
from tests.cluster.templates import command, job

pytestmark = [pytest.mark.extended, pytest.mark.timeout(900)]

FORCE = ("--force", "--grace-period=0")
SEED = 10


def test_training_continues_after_all_pods_are_deleted(team, training):
    training.starts(3)
    group = lost_and_back(training, lambda: one_by_one(team, "toy"), after=training.last())
    assert training.repeated() == 0, "told to go, pods go after a checkpoint"
    lost_and_back(training, lambda: at_random(team, "toy"), after=group)
    training.repeated()
    assert all(after - before in (0, 1) for before, after in pairwise(training.epochs())), "lost more than an epoch"
    assert team.wait_for("toy", "Running", pods=3).get("failures", 0) == 0


def lost_and_back(training, delete, *, after):
    """Until other pods, as many as before, train."""
    before = set(training.team.uids().values())
    delete()
    group = training.trains(3, after=after)
    assert not before & set(training.team.uids().values())
    return group


def one_by_one(team, name, *options):
    """Master first. The operator may have deleted the others before their turn comes."""
    for pod in team.pods(name):
        team.delete_pod(f"{name}-{pod}", "--ignore-not-found", *options)


def backwards(team, name):
    for pod in reversed(team.pods(name)):
        team.delete_pod(f"{name}-{pod}", "--ignore-not-found", *FORCE)


def all_at_once(team, name, *options):
    team.kubectl("delete", "pods", "-l", f"{LABEL_JOB_NAME}={name}", "--wait=false", *options)


def all_at_once_by_force(team, name):
    all_at_once(team, name, *FORCE)


def at_random(team, name):
    choices = random.Random(SEED)
    for pod in choices.sample(team.pods(name), 3):
        team.delete_pod(f"{name}-{pod}", *choices.choice([(), FORCE]))


ORDERS = {"forth": one_by_one, "back": backwards, "at-once": all_at_once, "by-force": all_at_once_by_force}


def test_pods_deleted_in_any_order_are_recreated(team):
    team.apply(*(job(name, min=2, max=3, template=command(gpus=0)) for name in ORDERS))
    for name in ORDERS:
        team.wait_for(name, "Running", pods=3)
    before = {name: set(team.uids(name).values()) for name in ORDERS}
    for name, delete in ORDERS.items():
        delete(team, name)
    for name in ORDERS:
        team.wait("other pods", lambda name=name: len(set(team.uids(name).values()) - before[name]) == 3)
        status = team.wait_for(name, "Running", pods=3)
        assert (status["restarts"] > 0, status.get("failures", 0)) == (True, 0)


def test_orphans_of_a_job_are_listed_with_their_delete_command(team):
    wanted = job(min=5, max=5)
    team.apply(wanted)
    team.wait_for("toy", "Running", pods=5)
    before, uid = team.uids(), team.job()["metadata"]["uid"]
    team.kubectl("delete", PLURAL, "toy", "--cascade=orphan", "--wait")
    team.apply(wanted)
    told = team.wait("a word of what is left", lambda: re.search(r"left behind: `(kubectl .*)`\.$", message(team)))
    assert all(name in message(team) for name in before)
    assert left(team, uid).keys() == {"Pod", "Service", "EndpointSlice", "NetworkPolicy"}
    assert left(team, uid)["Pod"] == sorted(before)
    assert team.pods() == []

    team.lab.kubectl(*shlex.split(told[1])[1:])
    status = team.wait_for("toy", "Running", pods=5)
    assert not set(before.values()) & set(team.uids().values())
    assert left(team, uid) == {}
    assert (status["restarts"], status.get("failures", 0)) == (0, 0)


def message(team):
    return team.condition("Ready").get("message", "")


def left(team, uid):
    """The objects that carry the label of a job with that uid, by kind."""
    found = {}
    kinds = "pods,services,endpointslices,secrets,networkpolicies"
    names = team.kubectl("get", kinds, "-l", f"elastic-pytorch.dev/job-uid={uid}", "-o", KINDS_AND_NAMES)
    for kind, name in (line.split() for line in names.splitlines()):
        found.setdefault(kind, []).append(name)
    return found


KINDS_AND_NAMES = r'jsonpath={range .items[*]}{.kind} {.metadata.name}{"\n"}{end}'


@pytest.fixture
def doomed(lab):
    """A namespace that the test itself deletes."""
    found = Team(lab, f"doomed-{secrets.token_hex(3)}")
    lab.kubectl("create", "namespace", found.name)
    yield found
    lab.kubectl("delete", "namespace", found.name, "--ignore-not-found", "--wait=false")


def test_deleted_namespace_frees_its_gpus_for_another_team(lab, team, doomed):
    doomed.apply(job("runs", min=2, max=8), job("rigid", min=7, max=7))
    doomed.wait_for("runs", "Running", pods=8)
    doomed.wait_for("rigid", "Queued")
    team.apply(job(min=8, max=8))
    team.wait_for("toy", "Queued")
    lab.kubectl("delete", "namespace", doomed.name, "--wait", "--timeout=120s")
    team.wait_for("toy", "Running", pods=8)
    assert lab.get(f"/api/v1/namespaces/{doomed.name}") is None
    logs = lab.kubectl("logs", "-n", OPERATOR_NAMESPACE, "-l", "app.kubernetes.io/name", "--tail=-1")
    mine = [line for line in logs.splitlines() if doomed.name in line]
    assert mine
    assert not [line for line in mine if "ERROR" in line]
    assert not [line for line in logs.splitlines() if line.startswith("Traceback")]
