"""Who uses what, and whose pods are whose, after any sequence of changes."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_api.pod_names import parse_pod_name
from elastic_operator.cluster.objects import CustomObject
from elastic_operator.cluster.pod import Pod
from elastic_operator.cluster.store import Store
from elastic_operator.plan.facts.decisions import Slot
from elastic_operator.plan.facts.node import Node, NodeUse
from elastic_operator.plan.facts.requirements import PodShape
from elastic_operator.read import convert
from elastic_operator.read.assumed_pods import ASSUMED_SECONDS
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.terminating_pods import OVERDUE_SECONDS
from tests.build.objects import Owner
from tests.cluster_unit.build import JOB_UID, owner, pod, stored_job

GPU = "nvidia.com/gpu"
UNUSED = Node("n1", {})
JOBS = {JOB_UID: stored_job("toy", namespace="a")}
DELETING = {"deletionTimestamp": "2026-01-01T00:02:00Z", "deletionGracePeriodSeconds": 120}


def ledger_of(*pods: Pod, jobs: dict[str, CustomObject] | None = None, **options) -> Ledger:
    ledger = Ledger(job_of=(JOBS if jobs is None else jobs).get, parse=parse_pod_name, **options)
    for item in pods:
        ledger.pod_changed(None, item)
    return ledger


def use(ledger: Ledger, node: str = "n1", members: Set[str] = frozenset(), **options) -> Node:
    """The node, of which nothing but its use is known."""
    return ledger.with_use(replace(UNUSED, name=node), members, **options)


def own(name: str = "toy-worker-0", *, node: str = "n1", gpus: int = 1, **fields) -> Pod:
    return pod(name, node=node, gpus=gpus, owners=(owner(),), **fields)


def assume_worker(ledger: Ledger, index: int, *, node: str = "n1", gpus: int = 1) -> str:
    """The job's worker of that index is being created."""
    slot, shape = Slot("worker", index, node, ready=True), PodShape({GPU: gpus}, gpus)
    return ledger.assumed.add(Owner("a", "toy", JOB_UID), slot, shape)


def test_gpus_are_summed_over_all_resources_that_count_as_such():
    requests = {GPU: "2", "nvidia.com/mig-1g.5gb": "1", "rdma/hca": "4"}
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}
    ledger = ledger_of(own(spec=spec), gpu_resources=(GPU, "nvidia.com/mig-1g.5gb"))
    assert [pod.gpus for pod in ledger.own_pods(JOB_UID)] == [3]


def test_the_loads_of_a_job_s_pods_are_one_object():
    one, two = ledger_of(*(own(f"toy-worker-{index}", host_port=80) for index in range(2))).own_pods(JOB_UID)
    assert one.requests is two.requests
    assert one.host_ports is two.host_ports


def test_the_requests_of_pods_of_one_template_are_read_once(monkeypatch):
    read, requests_of = list[str](), convert.requests_of

    def counted(made: Pod) -> dict[str, int]:
        read.append(made.metadata.name)
        return requests_of(made)

    monkeypatch.setattr(convert, "requests_of", counted)
    overhead = {"containers": [{"name": "c", "image": "i"}], "overhead": {GPU: "1"}}
    pods = own("toy-worker-0"), own("toy-worker-1"), own("toy-worker-2", gpus=2), own("toy-worker-3")
    more = (own(f"toy-worker-{index}", spec=spec) for index, spec in ((4, overhead), (5, overhead | {"overhead": {}})))
    ledger = ledger_of(*pods, *more)
    assert [pod.gpus for pod in ledger.own_pods(JOB_UID)] == [1, 1, 2, 1, 1, 0]
    assert read == [f"toy-worker-{index}" for index in (0, 2, 3, 4, 5)]


def test_bound_pods_use_their_node_and_others_use_nothing():
    ledger = ledger_of(
        pod("bound", node="n1", gpus=2, cpu="500m"),
        pod("also", node="n1", cpu="1"),
        pod("waiting", gpus=4),
        pod("elsewhere", node="n2", gpus=1),
    )
    assert use(ledger).used.requests == {GPU: 2, "cpu": 1500, "pods": 2}
    assert use(ledger, "unheard-of").used.requests == {}


@pytest.mark.parametrize("make", [own, pod])
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_uses_nothing_even_if_its_object_stays(make, phase):
    running, done = make("toy-worker-0", node="n1", gpus=2), make("toy-worker-0", node="n1", gpus=2, phase=phase)
    ledger = ledger_of(running)
    assert use(ledger).used.requests[GPU] == 2
    ledger.pod_changed(running, done)
    assert use(ledger) == UNUSED


def test_a_foreign_pod_that_is_being_deleted_still_uses_its_node():
    assert use(ledger_of(pod(node="n1", gpus=2, **DELETING))).used.requests[GPU] == 2


def test_members_are_left_out_and_own_pods_on_their_way_out_are_leaving():
    member, leaver, stray = own("toy-worker-0"), own("toy-worker-1", gpus=2, **DELETING), own("toy-worker-2", gpus=4)
    usage = use(ledger_of(member, leaver, stray, pod("foreign", node="n1", gpus=8)), "n1", {"uid-toy-worker-0"})
    assert usage.used.requests == {GPU: 12, "pods": 2}
    assert usage.leaving.requests == {GPU: 2, "pods": 1}


def test_host_ports_of_pods_that_are_or_will_be_deleted_count_as_leaving():
    ledger = ledger_of(own("toy-worker-0", host_port=80, **DELETING), own("toy-worker-1", host_port=81))
    [goes] = [pod for pod in ledger.own_pods(JOB_UID) if pod.name == "toy-worker-1"]
    usage = use(ledger, "n1", {goes.uid}, leaving=[goes])
    assert (usage.used.ports, usage.leaving.ports) == (frozenset(), {("", "TCP", 80), ("", "TCP", 81)})


def test_host_ports_of_all_but_members_are_taken():
    pods = (own(host_port=80), own("toy-worker-1", host_port=81), pod("foreign", node="n1", host_port=82))
    usage = use(ledger_of(*pods), "n1", {"uid-toy-worker-0"})
    assert usage.used.ports == {("", "TCP", 81), ("", "TCP", 82)}


def pinned(**fields):
    """A pod of ours that waits to be bound to the node n1, and to no other."""
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
    return own(node="", spec={"affinity": {"nodeAffinity": required}}, phase="Pending", **fields)


def test_a_pod_that_is_pinned_and_not_bound_yet_is_on_that_node():
    ledger = ledger_of(pinned())
    assert ledger.own_pods(JOB_UID)[0].node == "n1"
    assert use(ledger).used.requests[GPU] == 1


def test_a_pinned_pod_deleted_before_its_binding_holds_nothing_while_its_object_stays():
    now = [0.0]
    ledger = ledger_of(pinned(finalizers=["example.com/keep"], **DELETING), now=lambda: now[0])
    assert use(ledger) == UNUSED
    now[0] = 3600.0
    ledger.expire()
    assert use(ledger) == UNUSED


def test_a_pod_is_ours_only_by_controller_namespace_and_name():
    pods = (
        own("toy-master-0"),
        own("toy-worker-7"),
        own("toy-worker-07"),
        own("other-worker-1"),
        own("toy-worker-1", namespace="b"),
        pod("toy-worker-2", node="n1", owners=(owner(controller=False),)),
        pod("toy-worker-3", node="n1", owners=(owner(kind="ReplicaSet"),)),
        pod("toy-worker-4", node="n1", owners=(owner("another-uid"),)),
        pod("toy-worker-5", node="n1", labels={"elastic-pytorch.dev/job-uid": JOB_UID}),
    )
    ledger = ledger_of(*pods)
    assert [(p.name, p.role, p.index) for p in ledger.own_pods(JOB_UID)] == [
        ("toy-master-0", "master", 0),
        ("toy-worker-7", "worker", 7),
    ]
    assert use(ledger).used.requests["pods"] == len(pods)


def test_a_pod_that_cannot_be_read_counts_as_used_by_others_and_goes_as_it_came():
    odd = own("toy-worker-1", gpus=2, creationTimestamp="once upon a time")
    ledger = ledger_of(own(gpus=1), odd)
    assert [pod.name for pod in ledger.own_pods(JOB_UID)] == ["toy-worker-0"]
    assert use(ledger).used.requests[GPU] == 3
    assert ledger.foreign_names(JOB_UID) == {"toy-worker-1"}
    ledger.job_changed(JOB_UID)
    ledger.pod_changed(odd, None)
    assert use(ledger).used.requests[GPU] == 1


@pytest.mark.parametrize("station", ["requests_of", "host_ports_of", "node_of", "own_pod"])
@pytest.mark.parametrize("before", ["unheard of", "assumed", "known"])
def test_a_pod_at_which_the_account_raises_uses_its_node_and_is_an_error_that_is_counted(monkeypatch, station, before):
    errors = []
    ledger = ledger_of(on_error=lambda: errors.append("one"))
    known = own(gpus=2, cpu="1") if before == "known" else None
    if known:
        ledger.pod_changed(None, known)
    if before == "assumed":
        assume_worker(ledger, 0, gpus=2)
    unread = own(gpus=2, cpu="2")
    with monkeypatch.context() as broken:
        broken.setattr(convert, station, lambda *_, **__: 1 // 0)
        ledger.pod_changed(known, unread)
        assert len(errors) == 1
        ledger.job_changed(JOB_UID)
    assert use(ledger).used.requests[GPU] == 2
    assert [pod.name for pod in ledger.own_pods(JOB_UID)] == (["toy-worker-0"] if known else [])
    ended = own(gpus=2, cpu="2", phase="Failed")
    with monkeypatch.context() as broken:
        broken.setattr(convert, station, lambda *_, **__: 1 // 0)
        ledger.pod_changed(unread, ended)
    assert use(ledger) == UNUSED
    ledger.pod_changed(ended, own(gpus=2, rv=9))
    assert use(ledger).used.requests[GPU] == 2
    assert not ledger.assumed.of_job(JOB_UID)
    assert [pod.name for pod in ledger.own_pods(JOB_UID)] == ["toy-worker-0"]


def test_a_pinned_pod_that_cannot_be_read_any_more_keeps_its_place(monkeypatch):
    known = pinned(gpus=2)
    ledger = ledger_of(known)
    monkeypatch.setattr(convert, "requests_of", lambda *_, **__: 1 // 0)
    ledger.pod_changed(known, pinned(gpus=2, rv=2))
    assert use(ledger).used.requests[GPU] == 2
    assert [pod.node for pod in ledger.own_pods(JOB_UID)] == ["n1"]


def test_names_that_others_hold_are_known_to_the_job():
    ledger = ledger_of(own(), pod("toy-worker-1"), pod("toy-worker-2", namespace="b"), pod("toy-worker"), pod("toy"))
    assert ledger.foreign_names(JOB_UID) == {"toy-worker-1"}
    assert ledger.foreign_names("no-such-job") == frozenset()


def test_a_job_heard_of_after_its_pods_gets_them_and_loses_them_when_it_goes():
    jobs: dict[str, CustomObject] = {}
    ledger = ledger_of(own(), jobs=jobs)
    assert ledger.own_pods(JOB_UID) == ()
    jobs.update(JOBS)
    ledger.job_changed(JOB_UID)
    assert [p.name for p in ledger.own_pods(JOB_UID)] == ["toy-worker-0"]
    jobs.clear()
    ledger.job_changed(JOB_UID)
    assert ledger.own_pods(JOB_UID) == ()
    assert use(ledger).used.requests[GPU] == 1


def test_an_unbound_pod_of_a_deleted_job_keeps_its_place_until_its_own_deletion():
    jobs = dict(JOBS)
    waiting, deleted = pinned(), pinned(rv=3, **DELETING)
    ledger = ledger_of(waiting, jobs=jobs)
    jobs.clear()
    ledger.job_changed(JOB_UID)
    assert use(ledger).used.requests[GPU] == 1
    changed = pinned(rv=2, labels={"a": "b"})
    ledger.pod_changed(waiting, changed)
    assert use(ledger).used.requests[GPU] == 1
    ledger.pod_changed(changed, deleted)
    assert use(ledger) == UNUSED
    ledger.pod_changed(deleted, None)
    assert use(ledger) == UNUSED


def test_a_pod_without_a_node_that_was_never_of_a_job_uses_none():
    assert use(ledger_of(pinned(), jobs={})) == UNUSED


def test_a_pod_without_gpus_counts_where_kube_scheduler_has_made_room_for_it():
    """kube-scheduler evicts a pod of ours for it. In that room ours must not come again, only to be evicted again."""
    waiting = pod("urgent", cpu="2")
    nominated = pod("urgent", cpu="2", rv=2, status={"nominatedNodeName": "n1"})
    ledger = ledger_of(waiting)
    assert use(ledger) == UNUSED
    ledger.pod_changed(waiting, nominated)
    assert use(ledger).used.requests == {"cpu": 2000, "pods": 1}
    bound = pod("urgent", cpu="2", rv=3, node="n2")
    ledger.pod_changed(nominated, bound)
    assert use(ledger) == UNUSED
    assert use(ledger, "n2").used.requests == {"cpu": 2000, "pods": 1}


def test_a_nominated_pod_that_asks_for_gpus_is_planned_for_and_not_counted_here():
    ledger = ledger_of(pod("urgent", gpus=1, phase="Pending", status={"nominatedNodeName": "n1"}))
    assert [waiting.metadata.name for waiting in ledger.waiting_foreign_pods()] == ["urgent"]
    assert use(ledger) == UNUSED


def test_pending_pods_are_the_newest_objects_and_their_controllers_count():
    changes = []
    ledger = ledger_of(on_change=lambda: changes.append("one"))
    bare = pod("waits", gpus=1, phase="Pending")
    touched = pod("waits", gpus=1, phase="Pending", rv=2)
    adopted = pod("waits", gpus=1, phase="Pending", rv=3, owners=(owner("of-others", kind="Job"),))
    ledger.pod_changed(None, bare)
    ledger.pod_changed(bare, touched)
    assert (ledger.waiting_foreign_pods(), len(changes)) == ((touched,), 1)
    ledger.pod_changed(touched, adopted)
    assert (ledger.waiting_foreign_pods(), len(changes)) == ((adopted,), 2)


def test_a_pod_being_created_counts_until_it_is_seen():
    ledger = ledger_of()
    uid = assume_worker(ledger, 0)
    assert use(ledger).used.requests == {GPU: 1}
    assert use(ledger, "n1", {uid}).used.requests == {}
    assert [a.member.uid for a in ledger.assumed.of_job(JOB_UID)] == [uid]
    ledger.pod_changed(None, own())
    assert ledger.assumed.of_job(JOB_UID) == ()
    assert use(ledger).used.requests == {GPU: 1, "pods": 1}


def test_a_pod_that_was_not_created_is_forgotten_and_an_unseen_one_expires():
    now = [0.0]
    ledger = ledger_of(now=lambda: now[0])
    for index, node in enumerate(("n1", "n2")):
        assume_worker(ledger, index, node=node)
    ledger.assumed.forget("a", "toy-worker-0")
    ledger.assumed.forget("a", "toy-worker-0")
    assert use(ledger).used.requests == {}
    now[0] = 3600.0
    ledger.expire()
    assert use(ledger, "n2").used.requests == {GPU: 1}, "its creation is still under way"
    assert ledger.seconds_until_expiry() == inf
    for index in (0, 1):
        ledger.assumed.await_seen("a", f"toy-worker-{index}")
    assert ledger.seconds_until_expiry() == ASSUMED_SECONDS
    now[0] += ASSUMED_SECONDS
    ledger.expire()
    assert ledger.assumed.of_job(JOB_UID) == ()
    assert use(ledger, "n2").used.requests == {}


def test_whose_the_gpus_are_is_told_by_namespace_and_resource():
    ledger = ledger_of(
        pod("mine", node="n1", gpus=2),
        pod("also-mine", node="n1", gpus=1),
        pod("theirs", namespace="b", node="n1", gpus=4),
        pod("no-gpus", namespace="c", node="n1", cpu="1"),
        own("toy-worker-0", gpus=8),
        own("toy-worker-1", gpus=16, **DELETING),
    )
    assume_worker(ledger, 2, gpus=32)
    lasting = ledger.own_pods(JOB_UID)[0]
    goes = replace(lasting, namespace="b", requests={GPU: 64, "cpu": 100}, host_ports=frozenset())
    usage = use(ledger, "n1", leaving=[goes])
    assert usage.used.gpus_by_namespace == {"a": {GPU: 2 + 1 + 8 + 32}, "b": {GPU: 4}}
    assert usage.leaving.gpus_by_namespace == {"a": {GPU: 16}, "b": {GPU: 64}}
    assert (usage.used.requests[GPU], usage.leaving.requests) == (47, {GPU: 80, "pods": 1, "cpu": 100})


def deleting(grace: int) -> dict:
    return {"deletionTimestamp": "2026-01-01T00:02:00Z", "deletionGracePeriodSeconds": grace}


def test_pods_of_no_job_hold_gpus_from_when_they_are_made_until_they_have_ended():
    waiting, gone = pod("waits", gpus=2), pod("gone", gpus=4, **DELETING)
    held = waiting, gone, pod("runs", node="n1", gpus=1), pod("leaves", node="n1", gpus=1, **DELETING)
    others = own(gpus=8), own("toy-worker-1", node="", gpus=8), pod("ended", node="n1", gpus=8, phase="Failed")
    ledger = ledger_of(*held, *others, pod("cpu", node="n1", cpu="1"), pod("there", namespace="b", gpus=3))
    assert ledger.plain_gpus() == {"a": {GPU: 4}, "b": {GPU: 3}}
    ledger.pod_changed(None, pod("late", node="n1", cpu="1"))
    assert ledger.plain_gpus() == {"a": {GPU: 4}, "b": {GPU: 3}}
    ledger.pod_changed(waiting, pod("waits", gpus=2, **DELETING))
    assert ledger.plain_gpus()["a"] == {GPU: 2}


def test_pods_of_a_job_that_is_gone_are_not_taken_for_plain_ones():
    assert ledger_of(own(), jobs={}).plain_gpus() == {}


def test_a_pod_that_should_have_gone_long_ago_is_used_and_not_leaving():
    now = [0.0]
    leaver = own(gpus=2, **deleting(30))
    ledger = ledger_of(leaver, now=lambda: now[0])
    assert ledger.seconds_until_expiry() == 30 + OVERDUE_SECONDS
    now[0] = 30 + OVERDUE_SECONDS - 1
    ledger.expire()
    before = ledger.node_revision("n1")
    assert use(ledger).leaving.requests[GPU] == 2
    now[0] = 30 + OVERDUE_SECONDS
    ledger.expire()
    assert ledger.node_revision("n1") > before
    assert use(ledger).leaving == NodeUse()
    assert use(ledger).used.requests == {GPU: 2, "pods": 1}
    assert use(ledger).used.gpus_by_namespace == {"a": {GPU: 2}}
    assert ledger.seconds_until_expiry() == inf
    ledger.pod_changed(leaver, None)
    assert use(ledger) == UNUSED


def test_a_node_without_pods_has_no_revision_and_pods_that_come_back_have_a_new_one():
    foreign, ours = pod("foreign", node="n1", gpus=1), own("toy-worker-0", gpus=1)
    ledger, revisions = ledger_of(), []
    for _ in range(2):
        ledger.pod_changed(None, foreign)
        revisions.append(ledger.node_revision("n1"))
        ledger.pod_changed(None, ours)
        ledger.pod_changed(foreign, None)
        revisions.append(ledger.node_revision("n1"))
        assume_worker(ledger, 1)
        ledger.pod_changed(ours, None)
        revisions.append(ledger.node_revision("n1"))
        ledger.assumed.forget("a", "toy-worker-1")
        assert ledger.node_revision("n1") == 0
    assert len({0, *revisions}) == 7


def test_a_second_deletion_may_shorten_the_wait_and_a_pod_of_that_name_later_starts_anew():
    now = [0.0]
    first, hurried = own(gpus=1, **deleting(3600)), own(gpus=1, **deleting(0))
    ledger = ledger_of(first, now=lambda: now[0])
    ledger.pod_changed(first, hurried)
    assert ledger.seconds_until_expiry() == OVERDUE_SECONDS
    ledger.pod_changed(hurried, None)
    assert ledger.seconds_until_expiry() == inf


def test_a_pod_that_is_changed_while_it_leaves_gets_no_more_time():
    now = [0.0]
    leaver, changed = own(gpus=1, **deleting(30)), own(gpus=1, **deleting(30), host_port=80)
    ledger = ledger_of(leaver, now=lambda: now[0])
    now[0] = 30.0
    ledger.pod_changed(leaver, changed)
    now[0] = 30 + OVERDUE_SECONDS
    ledger.expire()
    assert use(ledger).used.requests[GPU] == 1
    ledger.pod_changed(changed, leaver)
    assert use(ledger).used.requests[GPU] == 1
    assert ledger.seconds_until_expiry() == inf


NAMES = ("toy-master-0", "toy-worker-0", "toy-worker-1", "plain")
OWNERS = ((), (owner(),), (owner("second", name="toy"),))
changes = st.one_of(
    st.builds(
        lambda name, **fields: (name, fields),
        st.sampled_from(NAMES),
        node=st.sampled_from(("", "n1", "n2")),
        gpus=st.integers(0, 2),
        cpu=st.sampled_from(("", "100m", "2")),
        phase=st.sampled_from(("Pending", "Running", "Failed")),
        host_port=st.sampled_from((0, 80)),
        owners=st.sampled_from(OWNERS),
        deleting=st.booleans(),
        namespace=st.sampled_from(("a", "b")),
    ),
    st.sampled_from(NAMES),
    st.sampled_from(tuple((uid, namespace) for uid in (JOB_UID, "second") for namespace in ("a", "b", None))),
)


@given(st.lists(changes, max_size=40))
def test_the_running_sums_equal_those_made_from_scratch_after_any_changes(steps):
    jobs: dict[str, CustomObject] = {}
    store, ledger = Store[Pod](), ledger_of(jobs=jobs)
    by_revision: dict[tuple[str, int], Node] = {}
    store.subscribe(ledger.pod_changed)
    for revision, step in enumerate(steps, start=1):
        if isinstance(step, str):
            store.observe_deleted(f"uid-{step}", str(revision))
        elif isinstance(step[1], dict):
            fields = dict(step[1])
            deleting = DELETING if fields.pop("deleting") else {}
            uid = f"uid-{step[0]}" if fields["namespace"] == "a" else f"uid-{step[0]}-elsewhere"
            store.observe(pod(step[0], uid=uid, rv=revision, **fields, **deleting))
        else:
            uid, namespace = step
            jobs.pop(uid, None)
            if namespace:
                jobs[uid] = stored_job("toy", uid=uid, namespace=namespace)
            ledger.job_changed(uid)
        fresh = ledger_of(*store, jobs=jobs)
        for node in ("n1", "n2"):
            assert by_revision.setdefault((node, ledger.node_revision(node)), use(ledger, node)) == use(ledger, node)
            for members in (frozenset(), frozenset({"uid-toy-worker-0"})):
                usage = use(ledger, node, members)
                assert usage == use(fresh, node, members)
                for held in (usage.used, usage.leaving):
                    assert sum(gpus for _, gpus in held.gpus_of(GPU)) == held.requests.get(GPU, 0)
        assert ledger.plain_gpus() == fresh.plain_gpus()
        for uid in (JOB_UID, "second"):
            assert ledger.own_pods(uid) == fresh.own_pods(uid)
            assert ledger.foreign_names(uid) == fresh.foreign_names(uid)
