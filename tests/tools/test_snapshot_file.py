"""A snapshot survives its way through a file, and what is no snapshot is refused in words."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from math import inf
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_api.job import JobSpec
from elastic_api.policy import PolicySpec
from elastic_api.status import Condition, ConditionType, JobStatus, LastFailure, Retry, RetryCause
from elastic_operator.cluster.objects import ClassMeta, PriorityClass
from elastic_operator.plan.facts.allocation_inputs import AllocationSettings
from elastic_operator.plan.facts.demand import Bar, FailedSize, JobDemand, Member, NodeRequest, PreemptionBar
from elastic_operator.plan.facts.eviction_limits import EvictionLimit, EvictionLimits, PreemptorKey
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.plan.facts.group_report import Goodput, GroupChange, GroupReport
from elastic_operator.plan.facts.job import (
    FlapWindow,
    Job,
    JobContext,
    JobFeedback,
    LastOutput,
    MainContainer,
    OwnPod,
    Provisioning,
    Quarantined,
    TorchrunGroup,
)
from elastic_operator.plan.facts.node import Node, NodeUse, Taint, UnreadyNode
from elastic_operator.plan.facts.node_outage import NodeOutage
from elastic_operator.plan.facts.requirements import JobShape, PodShape, Toleration
from elastic_operator.plan.facts.team import Flavor, Quota, Team
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.policies.resolve import Namespace, Policy
from elastic_operator.tools import snapshot_file
from elastic_operator.tools.cluster_snapshot import ClusterSnapshot, SnapshotJob
from elastic_operator.tools.files import InputError
from tests.api.policies import full_policy
from tests.plan.allocate.world import make_job, make_node, make_shape
from tests.plan.jobs import make_spec
from tests.tools.snapshots import make_cluster_snapshot, recorded

NUMBERS, WORDS = st.integers(0, 2**53), st.text(max_size=5)
TIMES = st.floats(-1e12, 1e12) | st.sampled_from([inf, -inf])
SIMPLE = {str: WORDS, int: NUMBERS, float: TIMES, bool: st.booleans()}
NOON = datetime(2027, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)
AFFINITY = ({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},)


def facts(kind, **parts):
    """Objects of that kind with every field drawn; `parts` are strategies for fields that have parts of their own."""
    hints = get_type_hints(kind).items()
    return st.builds(kind, **{name: parts[name] if name in parts else _drawn(hint) for name, hint in hints})


def _drawn(hint):
    for kind, strategy in SIMPLE.items():
        if hint in (kind, kind | None):
            return strategy if hint is kind else st.none() | strategy
    if hint in (PreemptionBar, PreemptionBar | None):
        return st.sampled_from(PreemptionBar) if hint is PreemptionBar else st.none() | st.sampled_from(PreemptionBar)
    if hint == frozenset[str]:
        return st.frozensets(WORDS, max_size=2)
    if "Mapping" in str(hint):
        return st.dictionaries(WORDS, NUMBERS if "int" in str(hint) else WORDS, max_size=2)
    assert str(hint).startswith("tuple"), f"{hint} needs a strategy of its own"
    some = [SIMPLE[kind] for kind in hint.__args__ if kind in SIMPLE]
    return st.lists(some[0], max_size=2).map(tuple) if hint.__args__[-1] is Ellipsis else st.tuples(*some)


def some(strategy):
    """A few of these."""
    return st.lists(strategy, max_size=2).map(tuple)


def maybe(strategy):
    """None, or one of these."""
    return st.none() | strategy


PAIRS = some(st.tuples(WORDS, WORDS))
PORTS = st.frozensets(st.tuples(WORDS, WORDS, NUMBERS), max_size=2)
HELD = st.dictionaries(WORDS, st.dictionaries(WORDS, NUMBERS, max_size=2), max_size=2)
TEAMS = facts(Team, quotas=st.dictionaries(WORDS, facts(Quota), max_size=2))
SHAPES = facts(
    PodShape, affinity=st.sampled_from([(), AFFINITY]), tolerations=some(facts(Toleration)), host_ports=PORTS
)
MEMBERS = facts(Member, host_ports=PORTS)
USES = facts(NodeUse, ports=PORTS, gpus_by_namespace=HELD)
NODES = facts(Node, taints=some(facts(Taint)), used=USES, leaving=USES)
CONTAINERS = facts(MainContainer, last_output=maybe(facts(LastOutput)))
PODS = facts(OwnPod, host_ports=PORTS, main=CONTAINERS, nnodes=maybe(st.tuples(NUMBERS, NUMBERS)))
GOODPUT = facts(Goodput, seconds=st.dictionaries(WORDS, TIMES, max_size=2))
REPORTS = facts(GroupReport, given_up=PAIRS, goodput=maybe(GOODPUT), metrics=PAIRS, changes=some(facts(GroupChange)))
STATUSES = st.sampled_from(
    [
        JobStatus(),
        JobStatus(
            incarnation=3,
            start_time=NOON,
            retry=Retry(reason="it failed", not_before=NOON, cause=RetryCause.POD_FAILED),
            failed_size=Retry(reason="no room", not_before=NOON, size=2, cause=RetryCause.UNSCHEDULABLE),
            last_failure=LastFailure(time=NOON, pod="p", exit_code=-9, log_tail=["one"]),
            conditions=[Condition(type="Ready", status="False", reason="Failed", last_transition_time=NOON)],
        ),
    ]
)
SPECS = st.sampled_from(
    [
        None,
        make_spec(),
        make_spec(runtime={"mode": "Elastic"}, suspend=True, cleanPodPolicy="All", allowedReplicas=[2, 4]),
        make_spec(worker={"template": {"spec": {"containers": [{"name": "w"}]}}}, recovery={"maxRestarts": 3}),
    ]
)
JOBS = facts(
    Job,
    status=STATUSES,
    spec=SPECS,
    pods=some(PODS),
    provisioning=maybe(facts(Provisioning)),
    quarantine=maybe(facts(Quarantined)),
    feedback=facts(JobFeedback, report=maybe(REPORTS), group=maybe(facts(TorchrunGroup))),
    context=facts(
        JobContext,
        unready=st.dictionaries(WORDS, st.builds(UnreadyNode, TIMES, TIMES, st.booleans()), max_size=2),
        warnings=st.dictionaries(st.sampled_from(ConditionType), facts(Reason), max_size=2),
        node_outage=maybe(facts(NodeOutage)),
        flap_window=maybe(facts(FlapWindow)),
    ),
)
JOB_SHAPES = facts(JobShape, master=SHAPES, worker=SHAPES)
DEMANDS = facts(
    JobDemand,
    shape=JOB_SHAPES,
    members=some(MEMBERS),
    used_indices=st.frozensets(NUMBERS, max_size=2),
    failed=maybe(facts(FailedSize)),
    bar=facts(Bar),
    provisioning_pods=some(MEMBERS),
    node_request=maybe(facts(NodeRequest)),
)
PREEMPTORS = st.builds(PreemptorKey, WORDS, WORDS)
EVICTION_LIMITS = facts(
    EvictionLimits,
    evicted_last_minute=st.dictionaries(WORDS, PREEMPTORS, max_size=2),
    configured=st.frozensets(st.sampled_from(EvictionLimit)),
    longest_waiting=maybe(PREEMPTORS),
)
SETTINGS = facts(
    AllocationSettings,
    flavors=some(facts(Flavor)),
    default_team=TEAMS,
    default_parents=some(TEAMS),
)
POLICIES = facts(Policy, spec=st.sampled_from([None, PolicySpec.model_validate(full_policy()["spec"])]))
RECORDINGS = facts(
    ClusterSnapshot,
    settings=SETTINGS,
    nodes=some(NODES),
    jobs=some(facts(SnapshotJob, facts=JOBS, shape=maybe(JOB_SHAPES), assumed=some(MEMBERS))),
    policies=some(POLICIES),
    namespaces=some(facts(Namespace)),
    priority_classes=some(st.builds(PriorityClass, st.builds(ClassMeta, WORDS, WORDS, WORDS), NUMBERS)),
    foreign_pods=some(facts(ForeignPod, demand=DEMANDS)),
    stopped=maybe(facts(Reason)),
    eviction_limits=EVICTION_LIMITS,
)


def written_and_read(snapshot):
    """The snapshot after it was a text of JSON as every parser reads it."""
    text = snapshot_file.encode(snapshot)
    return snapshot_file.decode(json.loads(text, parse_constant=lambda word: pytest.fail(word)), source="f")


@given(RECORDINGS)
def test_whatever_there_is_the_file_holds_it(snapshot):
    assert written_and_read(snapshot) == snapshot


def test_sets_are_written_in_order_so_that_equal_snapshots_have_equal_files():
    ports = frozenset((f"10.0.0.{n}", "TCP", n) for n in range(1, 9))
    document = json.loads(
        snapshot_file.encode(make_cluster_snapshot([], [make_job("a", shape=make_shape(1, host_ports=ports))]))
    )
    assert document["cluster"]["jobs"][0]["shape"]["worker"]["host_ports"] == [list(port) for port in sorted(ports)]


def test_a_file_says_what_it_is_and_leaves_out_what_goes_without_saying():
    document = json.loads(snapshot_file.encode(make_cluster_snapshot([make_node("n1")], [])))
    assert (document["kind"], document["version"]) == ("ClusterSnapshot", 13)
    assert document["cluster"]["nodes"][0]["name"] == "n1"
    assert "unschedulable" not in document["cluster"]["nodes"][0]


def test_the_schema_describes_every_part_of_a_snapshot():
    described = json.loads(snapshot_file.schema())["$defs"]
    parts = {
        "ClusterSnapshot",
        "SnapshotJob",
        "Job",
        "OwnPod",
        "JobShape",
        "Policy",
        "Namespace",
        "Node",
        "EvictionLimits",
        "Flavor",
    }
    assert parts <= described.keys()


def with_job(**fields):
    """A change of the first job's facts."""

    def change(document):
        cluster = document["cluster"]
        job = cluster["jobs"][0]
        return document | {"cluster": cluster | {"jobs": [job | {"facts": job["facts"] | fields}]}}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d | {"kind": "Secret"}, "f: kind: 'Secret': must be ClusterSnapshot"),
        (
            lambda d: d | {"kind": "Snapshot", "version": 1},
            "f: kind: 'Snapshot': is version 1 of a snapshot, which has",
        ),
        (lambda d: d | {"kind": "Snapshot", "version": 1}, "take it again, or read it with the release that wrote it"),
        (
            lambda d: {"kind": "World", "version": 7, "world": d["cluster"]},
            "f: kind: 'World': is version 7 of a snapshot, of an older release: must be ClusterSnapshot; take it again",
        ),
        (lambda _: {"kind": ["World"]}, "f: kind: ['World']: must be ClusterSnapshot"),
        (lambda d: d | {"version": 2}, "f: version: 2: must be 13; take the snapshot with this version"),
        (lambda d: d | {"version": True}, "f: version: True: must be 13"),
        (lambda _: [1], "f: kind: None: must be ClusterSnapshot"),
        (lambda d: d | {"more": 1}, "f: is no snapshot: Object contains unknown field `more`"),
        (lambda d: {"kind": d["kind"], "version": 13}, "missing required field `cluster`"),
        (lambda d: d | {"cluster": d["cluster"] | {"now": "noon"}}, "f: is no snapshot: cluster.now: Expected"),
        (lambda d: d | {"cluster": d["cluster"] | {"nodez": []}}, "f: cluster.nodez: must be absent"),
        (
            lambda d: d | {"cluster": d["cluster"] | {"nodes": [d["cluster"]["nodes"][0] | {"gpus": 3}]}},
            "f: cluster.nodes[0].gpus: must be absent: there is no such field",
        ),
        (with_job(pods=[{"name": "p"}]), "f: is no snapshot: cluster.jobs[0].facts.pods[0]: Object missing required"),
        (with_job(spec={"minReplicas": 0}), "f: is no snapshot: cluster.jobs[0].facts.spec: minReplicas: 0: must be"),
        (with_job(status={"incarnation": "x"}), "f: is no snapshot: cluster.jobs[0].facts.status: incarnation: 'x'"),
    ],
)
def test_what_is_no_snapshot_is_refused_with_the_field_and_the_remedy(change, message):
    document = json.loads(snapshot_file.encode(make_cluster_snapshot([make_node("n1")], [make_job("a")])))
    with pytest.raises(InputError) as refused:
        snapshot_file.decode(change(document), source="f")
    assert message in str(refused.value)


def test_a_time_that_never_comes_is_a_number_in_the_file():
    snapshot = make_cluster_snapshot(
        [], [recorded(make_job("a"), context=JobContext(unready={"n1": UnreadyNode(0.0, -inf)}))]
    )
    (job,) = json.loads(snapshot_file.encode(snapshot))["cluster"]["jobs"]
    assert job["facts"]["context"]["unready"] == {"n1": [0.0, -snapshot_file.NEVER, False]}


def test_a_spec_that_was_read_is_the_same_object_of_the_api():
    (job,) = written_and_read(make_cluster_snapshot([], [make_job("a", 1, 3)])).jobs
    assert isinstance(job.facts.spec, JobSpec)
    assert job.facts.spec.sizes() == (1, 2, 3)
