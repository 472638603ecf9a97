"""A snapshot has what is decided from, and nothing that users write for their processes, or that these print."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf

from elastic_api.status import LastFailure
from elastic_operator.plan.facts.eviction_limits import EvictionLimit, EvictionLimits, PreemptorKey
from elastic_operator.plan.facts.job import LastOutput
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.facts.times import status_time
from elastic_operator.plan.planner import Planner
from elastic_operator.read.policies import Made
from elastic_operator.tools import snapshot_file
from elastic_operator.tools.cluster_snapshot import LEFT_OUT, snapshot_of
from elastic_operator.tools.decisions import decide
from elastic_operator.tools.snapshot_view import SnapshotReclaim, SnapshotView
from tests.api.jobs import make_template, with_gpus
from tests.plan.jobs import START, ended, group, make_job, make_status
from tests.process.test_planner import STATUSES, Unlimited, World

SECRET = "hunter2"


class Limited(Unlimited):
    """Nobody takes anything, and what they would take is told."""

    stopped, is_report_only = Reason("DryRun", "No GPUs are reclaimed."), True

    def eviction_limits(self, gpus: int) -> EvictionLimits:
        return EvictionLimits(
            gpus,
            3,
            {"pod": PreemptorKey("a", "job")},
            frozenset({EvictionLimit.PER_TEAM}),
            PreemptorKey("b", "other"),
            2,
        )


def recorded(world: World, reclaim=None):
    """The world as recorded, after it was in a file."""
    taken = snapshot_of(world.stored, reclaim or Unlimited(), world.stored.reader.policies.made)
    return snapshot_file.decode(json.loads(snapshot_file.encode(taken)), source="f")


def test_what_users_write_into_their_pods_is_left_out():
    world = World()
    world.node("n1", 4, True, False)
    secret = {"env": [{"name": "TOKEN", "value": SECRET}], "args": [SECRET], "image": f"registry/{SECRET}"}
    sidecar = {"name": "sidecar", "image": "x", "command": [SECRET]}
    template = make_template(with_gpus(1, **secret), sidecar, initContainers=[sidecar | {"name": "init"}])
    template["metadata"] = {"annotations": {"token": SECRET}}
    world.job("first", 3, STATUSES[2], "", template=template, worker={"template": template})
    world.look()
    taken = snapshot_of(world.stored, Unlimited(), world.stored.reader.policies.made)
    assert SECRET not in snapshot_file.encode(taken)
    (job,) = taken.jobs
    assert job.facts.spec.template_of("worker") == {
        "spec": {
            "containers": [{"name": "pytorch", "resources": {"limits": {"nvidia.com/gpu": 1}}}, {"name": "sidecar"}]
        }
    }


def test_the_lines_that_processes_printed_are_left_out_and_their_number_is_kept():
    output = LastOutput("p", 1, 0, (SECRET, SECRET))
    status = make_status(last_failure=LastFailure(time=status_time(START), pod="p", log_tail=[SECRET]))
    (master, worker) = group()
    failed = ended(worker, 1)
    pods = (master, replace(failed, main=replace(failed.main, last_output=output)))
    world = SnapshotView(replace(_one_job(), jobs=(replace(_one_job().jobs[0], facts=make_job(pods, status=status)),)))
    taken = snapshot_of(world, Unlimited(), Made((), (), world.policies))
    assert SECRET not in snapshot_file.encode(taken)
    (job,) = taken.jobs
    assert job.facts.pods[1].main.last_output.lines == (LEFT_OUT, LEFT_OUT)
    assert job.facts.status.last_failure.log_tail == [LEFT_OUT]


def _one_job():
    world = World()
    world.node("n1", 4, True, False)
    world.job("first", 3, STATUSES[2], "")
    world.look()
    return recorded(world)


def test_what_reclaim_may_do_is_recorded():
    world = World()
    world.node("n1", 4, True, False)
    world.look()
    reclaim = SnapshotReclaim(recorded(world, Limited()))
    assert (reclaim.stopped, reclaim.is_report_only) == (Limited.stopped, True)
    assert reclaim.eviction_limits(4) == Limited().eviction_limits(4)
    assert reclaim.seconds_until_capacity(Planner().decide(SnapshotView(_one_job()), reclaim).allocation) == inf


def test_a_job_at_which_the_planner_raises_is_quarantined_and_the_others_are_decided():
    world = World()
    for name, node in (("first", "n1"), ("second", "n2")):
        world.node(node, 4, True, False)
        world.job(name, 3, STATUSES[2], "")
        world.pod(name, "master-0", node, "Running", False, True)
    world.look()
    taken = recorded(world)
    bad, good = taken.jobs
    first, second = decide(replace(taken, jobs=(replace(bad, shape=None), good))).jobs
    assert first.job.quarantine.message.startswith("AssertionError: ")
    assert [c.reason for c in first.plan.status.conditions if c.type == "Ready"] == ["InternalError"]
    assert not second.job.quarantine
    assert second.grant is not None
