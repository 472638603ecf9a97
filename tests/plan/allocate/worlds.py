"""Random clusters with random jobs on them, for properties: members always lie where they fit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf

from hypothesis import strategies as st

from elastic_operator.plan.facts.decisions import Slot
from elastic_operator.plan.facts.demand import Bar, FailedSize, JobDemand, Member, NodeRequest, PreemptionBar
from elastic_operator.plan.facts.eviction_limits import NO_LIMIT, EvictionLimit, EvictionLimits, PreemptorKey
from elastic_operator.plan.facts.requirements import JobShape
from elastic_operator.plan.job.demand import with_members
from tests.plan.allocate.world import NOW, make_inputs, make_job, make_node, make_shape, make_team, make_use
from tests.plan.quota.cases import make_foreign_pod

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
def single_team_inputs(draw, shapes=PLAIN, delays=True):
    """A cluster with up to six jobs; each job's pods are of one of the shapes, its master perhaps of another."""
    made = draw(nodes())
    free = {n.name: Counter(n.allocatable) - Counter(n.used.requests) - Counter(n.leaving.requests) for n in made}
    jobs = [draw(_jobs(f"j{i}", free, shapes, delays)) for i in range(draw(st.integers(0, 6)))]
    return make_inputs(made, jobs)


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
def shared_inputs(draw, shapes=PLAIN, delays=True):
    """A cluster that several teams share, with foreign pods of theirs."""
    made = [replace_owner(draw, node) for node in draw(nodes())]
    free = {n.name: Counter(n.allocatable) - Counter(n.used.requests) - Counter(n.leaving.requests) for n in made}
    jobs = []
    for i in range(draw(st.integers(1, 7))):
        job = draw(_jobs(f"j{i}", free, shapes, delays))
        jobs.append(replace(job, namespace=draw(st.sampled_from("abcd")), preemptible=draw(st.integers(0, 5)) > 0))
    return make_inputs(made, jobs, teams=draw(teams()))


def replace_owner(draw, node):
    """The node, with what is used and leaving on it belonging to one of the teams."""
    whose = draw(st.sampled_from("abcd"))
    used, leaving = (make_use(use.requests, whose, use.ports) for use in (node.used, node.leaving))
    return replace(node, used=used, leaving=leaving)


@st.composite
def autoscaled(draw):
    """Some of the jobs may ask for nodes, and some of these have done so, with all or some of the pods they lack."""
    inputs = draw(shared_inputs(SHAPES))
    return replace(inputs, jobs=tuple(_perhaps_asking(draw, job) for job in inputs.jobs))


def _perhaps_asking(draw, job):
    if not draw(st.booleans()):
        return job
    missing = draw(st.integers(0, max(0, job.sizes[0] - len(job.members))))
    there = {(member.role, member.index) for member in job.members}
    places = [("master", 0), *(("worker", index) for index in range(9))]
    free = [place for place in places if place not in there][:missing]
    pods = [Member.at(f"{job.uid}-{role[0]}{i}", Slot(role, i, None, True), job.shape.of(role)) for role, i in free]
    since = NOW - draw(st.sampled_from([0, -10]))
    return with_members(replace(job, node_request=NodeRequest(since)), pods)


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
            members.append(Member.at(f"{name}-{role[0]}{index}", Slot(role, index, node, True), shape))
    delayed = delays and draw(st.integers(0, 3)) == 0
    failed = delays and draw(st.integers(0, 7)) == 0
    return JobDemand(
        uid=name,
        namespace="team-a",
        name=name,
        priority=draw(st.integers(0, 2)),
        created=NOW - draw(st.integers(0, 3)),
        sizes=allowed,
        shape=JobShape(master, worker),
        members=tuple(draw(st.permutations(members))),
        used_indices=frozenset(draw(st.sets(st.integers(0, 4), max_size=2))),
        is_admitted=bool(members) or draw(st.booleans()),
        undelayed_size=draw(st.integers(0, 8)) if delayed else 99,
        may_grow_at=NOW + 20 if delayed else -inf,
        failed=FailedSize(draw(st.integers(1, 6)), NOW + 30) if failed else None,
        wants_pods=draw(st.integers(0, 9)) > 0,
    )


@st.composite
def crowds(draw, kind):
    """Few nodes, held by a few jobs, and several jobs (or foreign pods) of one team that want the same there; most of
    these differ from the others in a thing or two. `kind` is what they want: "minima", "growth" or "places".
    """
    gpus = draw(st.integers(2, 4))
    made = [make_node(f"n{i}", gpus) for i in range(draw(st.integers(1, 3)) + 2 * (kind == "growth"))]
    free = {n.name: Counter(n.allocatable) for n in made}
    wanting = [] if kind == "places" else draw(_jobs_like_one(free, grow=kind == "growth"))
    jobs = wanting + [job for i in range(5) if (job := draw(_holders(f"h{i}", free, kind))).members]
    pods = draw(_pods_like_one()) if kind == "places" else []
    teams = (
        make_team(
            "a",
            draw(st.integers(2 * gpus if kind == "growth" else 0, 3 * gpus)),
            borrow=draw(st.sampled_from([None, None, None, 0, 2])),
            quantum_seconds=draw(st.sampled_from([None, None, 60])),
        ),
        make_team("b", draw(st.integers(0, 2)), weight=draw(st.sampled_from([1, 0]))),
    )
    uids = [pod.gang or pod.uid for pod in pods] + [job.uid for job in jobs if job.namespace == "a"]
    limits = EvictionLimits() if draw(st.booleans()) else draw(_limits(uids))
    return make_inputs(made, jobs, teams=teams, foreign_pods=tuple(pods), eviction_limits=limits)


@st.composite
def _limits(draw, uids):
    preemptors = st.sampled_from([PreemptorKey("a", uid) for uid in [*uids, "gone"]] + [PreemptorKey("b", "gone")])
    return EvictionLimits(
        draw(st.sampled_from([NO_LIMIT, 1, 2, 3])),
        draw(st.sampled_from([NO_LIMIT, 1, 2, 4])),
        evicted_last_minute={f"gone{i}": draw(preemptors) for i in range(draw(st.integers(0, 2)))},
        configured=draw(st.sampled_from([frozenset(EvictionLimit), frozenset()])),
        longest_waiting=draw(st.none() | preemptors),
        reserved_evictions=draw(st.integers(1, 2)),
    )


def _like(draw, first, changes, most, change=replace):
    """Two to `most` things like the first one; they differ in age, and in one or two of these ways."""
    names = draw(st.lists(st.sampled_from(sorted(changes)), min_size=1, max_size=2, unique=True))
    made, demand = [], getattr(first, "demand", first)
    for i in range(draw(st.integers(2, most))):
        name, created = f"{demand.name}{i}", NOW - draw(st.integers(0, 3))
        known = {field: getattr(first if hasattr(first, field) else demand, field) for field in names}
        fields = {field: draw(st.sampled_from((value, *changes[field]))) for field, value in known.items()}
        made.append(change(first, uid=name, name=name, created=created, **fields))
    return made


_OF_JOBS = {
    "priority": (1,),
    "sizes": ((2, 3), (1, 3)),
    "shape": (
        JobShape(make_shape(2), make_shape(1)),
        JobShape(make_shape(1), make_shape(2)),
        JobShape(make_shape(2), make_shape(2)),
    ),
    "preemptible": (False,),
    "bar": (Bar(PreemptionBar.PODS_REFUSED),),
    "failed": (FailedSize(1, NOW + 9), FailedSize(2, NOW + 9)),
    "waiting_since": (NOW - 1000,),
    "is_admitted": (True,),
    "namespace": ("b",),
}
_OF_GROWERS = {
    "sizes": ((1, 3), (2, 3)),
    "shape": (JobShape(make_shape(1), make_shape(2)),),
    "preemptible": (False,),
    "bar": (Bar(PreemptionBar.PODS_REFUSED), Bar(PreemptionBar.NOT_PLACED, NOW + 9)),
    "failed": (FailedSize(2, NOW + 9),),
    "undelayed_size": (0,),
    "namespace": ("b",),
}


@st.composite
def _jobs_like_one(draw, free, grow):
    shape = make_shape(1)
    first = JobDemand(
        uid="j",
        namespace="a",
        name="j",
        priority=0,
        created=NOW,
        sizes=draw(st.sampled_from([(1, 2, 3, 4), (1, 2), (2, 3)])),
        shape=JobShape(shape, shape),
        undelayed_size=99,
    )
    jobs = []
    for job in _like(draw, first, _OF_GROWERS if grow else _OF_JOBS, 8 if grow else 6):
        job = job if job.undelayed_size else replace(job, may_grow_at=NOW + 9)
        jobs.append(_placed(draw, job, free, job.sizes[0] + draw(st.sampled_from([0, 0, 1])) if grow else 0))
    return jobs


def _placed(draw, job, free, pods):
    """The job with that many members, where there is room."""
    members = []
    for i in range(pods):
        role, index, shape = ("master", 0, job.shape.master) if i == 0 else ("worker", i - 1, job.shape.worker)
        hosts = [n for n, room in sorted(free.items()) if all(room[r] >= v for r, v in shape.requests.items())]
        if hosts:
            node = draw(st.sampled_from(hosts))
            free[node] -= Counter(shape.requests)
            members.append(Member.at(f"{job.uid}-{role[0]}{index}", Slot(role, index, node, True), shape))
    since = draw(st.sampled_from([None, NOW - 100])) if members else None
    return replace(job, members=tuple(members), is_admitted=job.is_admitted or bool(members), running_since=since)


@st.composite
def _holders(draw, name, free, kind):
    """A job of one of the teams, mostly of b, that holds what is left. None gives more than growth needs: a job that
    gave up growing in a round does not get what becomes free later in it.
    """
    sizes = draw(st.sampled_from([(1, 2, 3, 4), (1,)] + [(2, 4), (4,)] * (kind != "growth")))
    team, priority = draw(st.sampled_from("bbba")), draw(st.integers(-1, 1))
    fixed = draw(st.integers(0, 5)) == 0
    job = make_job(name, sizes=sizes, team=team, priority=priority, preemptible=not fixed)
    return _placed(draw, job, free, sizes[-1])


_OF_PODS = {
    "priority": (0,),
    "preempts": (True,),
    "bar": (Bar(PreemptionBar.GANG_INCOMPLETE),),
    "reserved": ("n0",),
    "may_be_split": (True,),
    "shape": (JobShape(make_shape(2), make_shape(2)),),
    "namespace": ("b",),
}


def _with(pod, **fields):
    """The foreign pod with these fields, each wherever it stands in it."""
    own = {name: fields.pop(name) for name in [*fields] if name in ("preempts", "reserved", "may_be_split")}
    return replace(pod, demand=replace(pod.demand, **fields), **own)


@st.composite
def _pods_like_one(draw):
    """Foreign pods, alone or each a gang of up to three like it."""
    first, pods = make_foreign_pod("p", priority=1, preempts=False), []
    most = draw(st.integers(1, 3))
    for pod in _like(draw, first, _OF_PODS, 6, _with):
        for i in range(size := draw(st.integers(1, most))):
            gang, reserved = pod.uid if size > 1 else "", "" if i else pod.reserved
            named = _with(pod, uid=f"{pod.uid}{i}", name=f"{pod.uid}{i}")
            pods.append(replace(named, gang=gang, reserved=reserved))
    return pods
