"""Random clusters with random jobs on them, for properties: members always lie where they fit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import strategies as st

from elastic_operator.plan.facts.snapshot import JobDemand, Member
from elastic_operator.plan.job.demand import with_members
from tests.plan.allocate.world import GPU, NOW, make_node, make_shape, make_snapshot, make_team

PLAIN = st.just(make_shape(1))
SHAPES = st.sampled_from([make_shape(1), make_shape(1), make_shape(2), make_shape(0, cpu=2), make_shape(4)])


@st.composite
def sizes(draw):
    """Allowed sizes: a range, a range with steps, or any few."""
    low = draw(st.integers(1, 4))
    steps = draw(st.sampled_from(["all", "all", "step", "some"]))
    if steps == "some":
        return tuple(sorted({low, *draw(st.lists(st.integers(low, 7), max_size=3))}))
    return tuple(range(low, low + draw(st.integers(0, 5)) + 1, 2 if steps == "step" else 1))


@st.composite
def nodes(draw):
    """One to five nodes, some cordoned, some partly used by others or by what is leaving."""
    made = []
    for i in range(draw(st.integers(1, 5))):
        gpus = draw(st.integers(0, 5))
        used = draw(st.integers(0, gpus))
        leaving = draw(st.integers(0, gpus - used))
        some = draw(st.booleans())
        cordoned = draw(st.integers(0, 5)) == 0
        made.append(
            make_node(
                f"n{i}", gpus, cpu=draw(st.sampled_from([3, 64])), used=used * some, leaving=leaving, cordoned=cordoned
            )
        )
    return made


@st.composite
def snapshots(draw, shapes=PLAIN, delays=True):
    """A cluster with up to six jobs; each job's pods are of one of the shapes, its master perhaps of another."""
    made = draw(nodes())
    free = {n.name: Counter(n.allocatable) - Counter(n.used) - Counter(n.leaving) for n in made}
    jobs = [draw(_jobs(f"j{i}", free, shapes, delays)) for i in range(draw(st.integers(0, 6)))]
    return make_snapshot(made, jobs)


LIMITS = st.sampled_from([None, None, None, 0, 1, 2, 4])


@st.composite
def teams(draw):
    """Up to four teams of namespaces a, b, c, d, perhaps under one or two parents."""
    parents = [f"dep{i}" for i in range(draw(st.integers(0, 2)))]
    made = [draw(_teams(name, parents)) for name in [*parents, *"abcd"[: draw(st.integers(0, 4))]]]
    leaves = {team.parent for team in made}
    return tuple(team for team in made if team.name not in parents or team.name in leaves)


@st.composite
def _teams(draw, name, parents):
    return make_team(
        name,
        draw(st.integers(0, 4)),
        borrow=draw(LIMITS),
        weight=draw(st.integers(0, 3)),
        lend=draw(LIMITS),
        parent=draw(st.sampled_from([None, *parents])) if name not in parents else None,
        created=float(draw(st.integers(0, 2))),
        priority=draw(st.sampled_from([0, 0, 1])),
    )


@st.composite
def shared_snapshots(draw, shapes=PLAIN, delays=True):
    """A cluster that several teams share, with foreign pods of theirs."""
    made = [replace_owner(draw, node) for node in draw(nodes())]
    free = {n.name: Counter(n.allocatable) - Counter(n.used) - Counter(n.leaving) for n in made}
    jobs = []
    for i in range(draw(st.integers(1, 7))):
        job = draw(_jobs(f"j{i}", free, shapes, delays))
        jobs.append(replace(job, namespace=draw(st.sampled_from("abcd")), preemptible=draw(st.integers(0, 5)) > 0))
    return make_snapshot(made, jobs, teams=draw(teams()))


def replace_owner(draw, node):
    """The node, with what is used and leaving on it belonging to one of the teams."""
    whose = draw(st.sampled_from("abcd"))
    return replace(
        node,
        used_by={whose: {GPU: node.used[GPU]}} if node.used[GPU] else {},
        leaving_by={whose: {GPU: node.leaving[GPU]}} if node.leaving[GPU] else {},
    )


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
    pods = [Member.of(f"{job.uid}-{role[0]}{i}", role, i, None, shapes[role]) for role, i in free]
    since = NOW - draw(st.sampled_from([0, -10]))
    return with_members(replace(job, nodes_from=since), pods)


@st.composite
def _jobs(draw, name, free, shapes, delays):
    allowed = draw(sizes())
    worker = draw(shapes)
    master = worker if draw(st.integers(0, 3)) else draw(shapes)
    wanted = draw(st.sampled_from([0, 0, allowed[0], allowed[-1], allowed[-1] + 1, draw(st.integers(0, 7))]))
    members = []
    for i in range(wanted):
        if draw(st.integers(0, 7)) == 0:
            continue
        role, index, shape = ("master", 0, master) if i == 0 else ("worker", i - 1, worker)
        hosts = [n for n, room in sorted(free.items()) if all(room[r] >= v for r, v in shape.requests.items())]
        if hosts:
            node = draw(st.sampled_from(hosts))
            free[node] -= Counter(shape.requests)
            members.append(Member.of(f"{name}-{role[0]}{index}", role, index, node, shape))
    delayed = delays and draw(st.integers(0, 3)) == 0
    failed = delays and draw(st.integers(0, 7)) == 0
    return JobDemand(
        uid=name,
        namespace="team-a",
        name=name,
        priority=draw(st.integers(0, 2)),
        created=NOW - draw(st.integers(0, 3)),
        sizes=allowed,
        master=master,
        worker=worker,
        members=tuple(draw(st.permutations(members))),
        used_indices=frozenset(draw(st.sets(st.integers(0, 4), max_size=2))),
        holds_place=bool(members) or draw(st.booleans()),
        free_up_to=draw(st.integers(0, 8)) if delayed else 99,
        grow_after=NOW + 20 if delayed else 0.0,
        failed_size=draw(st.integers(1, 6)) if failed else None,
        failed_until=NOW + 30,
        wants=draw(st.integers(0, 9)) > 0,
    )
