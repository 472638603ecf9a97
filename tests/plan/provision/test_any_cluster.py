"""What holds of asking for nodes in any cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.plan.allocate import Allocator, allocate
from elastic_operator.plan.demand import with_members
from elastic_operator.plan.model import Member
from tests.plan.allocate.test_properties import loads
from tests.plan.allocate.world import GPU, NOW, make_shape
from tests.plan.allocate.worlds import shared_snapshots
from tests.plan.provision.places import with_pods_made

SHAPES = st.sampled_from([make_shape(1), make_shape(1), make_shape(2), make_shape(0, cpu=2), make_shape(4)])
PASSES = 6


@st.composite
def autoscaled(draw):
    """Some of the jobs may ask for nodes, and some of these have done so, with all or some of the pods they lack."""
    snapshot = draw(shared_snapshots(SHAPES))
    return replace(snapshot, jobs=tuple(_perhaps_asking(draw, job) for job in snapshot.jobs))


def _perhaps_asking(draw, job):
    if not draw(st.booleans()):
        return job
    missing = draw(st.integers(0, max(0, job.sizes[0] - len(job.members))))
    there = {(member.role, member.index) for member in job.members}
    places = [("master", 0), *(("worker", index) for index in range(9))]
    free = [place for place in places if place not in there][:missing]
    shapes = {"master": job.master, "worker": job.worker}
    pods = [Member(f"{job.uid}-{role[0]}{i}", role, i, None, shapes[role].requests) for role, i in free]
    since = NOW - draw(st.sampled_from([0, -10]))
    return with_members(replace(job, nodes_from=since), pods)


@given(autoscaled())
def test_no_node_is_promised_more_than_it_has(snapshot):
    granted = {uid: _on_nodes(grant) for uid, grant in allocate(snapshot).items()}
    for now in (True, False):
        for node in snapshot.nodes:
            assert all(n <= node.allocatable[r] for r, n in loads(snapshot, granted, now=now)[node.name].items()), now


def _on_nodes(grant):
    """The grant without the pods that no node is chosen for."""
    return replace(grant, create=tuple(slot for slot in grant.create if slot.node is not None))


@given(autoscaled())
def test_nobody_loses_a_pod_to_a_job_whose_pods_wait_or_are_to_wait(snapshot):
    granted = allocate(snapshot)
    waiting = {job.name for job in snapshot.jobs if job.waiting or _asks(granted[job.uid])}
    assert not waiting & {name.partition("/")[2] for grant in granted.values() for name in grant.takers}


def _asks(grant):
    return any(slot.node is None for slot in grant.create)


@given(autoscaled())
def test_what_is_asked_for_passes_no_limit(snapshot):
    granted = allocate(snapshot)
    teams = {team.name: team for team in snapshot.teams}
    use: Counter[str] = Counter()
    asking = set()
    for job in snapshot.jobs:
        grant, path = granted[job.uid], _path(teams, snapshot.team_of.get(job.namespace))
        gpus = {"master": job.master.gpus, "worker": job.worker.gpus}
        pods = {member.uid: member for member in (*job.members, *job.waiting)}
        held = sum(pods[uid].requests.get(GPU, 0) for uid in grant.keep) + sum(gpus[slot.role] for slot in grant.create)
        use.update(dict.fromkeys(path, held))
        asking |= set(path) if any(slot.node is None for slot in grant.create) and held else set()
    for node in snapshot.nodes:
        for namespace, held in node.used_by.items():
            use.update({name: held.get(GPU, 0) for name in _path(teams, snapshot.team_of.get(namespace))})
    for name in asking:
        limit = teams[name].quotas["default"].limit
        assert limit is None or use[name] <= limit


@given(autoscaled())
def test_it_comes_to_rest(snapshot):
    for _ in range(PASSES):
        granted = allocate(snapshot)
        snapshot = with_pods_made(_left(snapshot), granted)
    granted = allocate(snapshot)
    assert not any(grant.create or grant.release for grant in granted.values())


@given(autoscaled(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(snapshot, random):
    jobs, nodes = list(snapshot.jobs), list(snapshot.nodes)
    random.shuffle(jobs)
    random.shuffle(nodes)
    assert dict(allocate(replace(snapshot, jobs=tuple(jobs), nodes=tuple(nodes)))) == dict(allocate(snapshot))


@given(autoscaled())
def test_a_table_that_serves_again_decides_as_a_new_one(snapshot):
    allocator = Allocator()
    granted = allocator.allocate(snapshot)
    after = with_pods_made(_left(snapshot), {uid: granted[uid] for uid in granted})
    again = allocator.allocate(after)
    assert {uid: again[uid] for uid in again} == dict(allocate(after))


def _left(snapshot):
    """What was leaving has left."""
    return replace(snapshot, nodes=tuple(replace(node, leaving={}, leaving_by={}) for node in snapshot.nodes))


def _path(teams, name):
    while name is not None:
        yield name
        name = teams[name].parent
