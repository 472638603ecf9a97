"""A snapshot survives its way through a file, and what is no snapshot is refused in words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.facts.snapshot import PendingPod, Snapshot
from elastic_operator.plan.facts.team import Flavor, Quota, Team
from elastic_operator.tools import snapshot_file
from elastic_operator.tools.files import InputError
from tests.plan.allocate.world import make_job, make_node, make_shape, make_snapshot
from tests.plan.allocate.worlds import snapshots


def written_and_read(snapshot):
    """The snapshot after it was a text."""
    return snapshot_file.decode(json.loads(snapshot_file.encode(snapshot)), source="f")


SHAPES = st.sampled_from(
    [
        make_shape(1),
        make_shape(2, node_selector={"zone": "a"}, host_ports=frozenset({("", "TCP", 80), ("10.0.0.1", "UDP", 53)})),
        make_shape(1, affinity=({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},)),
        make_shape(1, pinnable=False, unpinned_because="it has resourceClaims"),
    ]
)

NUMBERS, WORDS = st.integers(0, 2**53), st.text(max_size=5)
TIMES = st.floats(allow_nan=False, allow_infinity=False)
LABELS = st.dictionaries(WORDS, WORDS, max_size=2)


def maybe(strategy):
    """None, or one of these."""
    return st.none() | strategy


QUOTAS = st.builds(Quota, guaranteed=NUMBERS, borrow_limit=maybe(NUMBERS), weight=NUMBERS, lend_limit=maybe(NUMBERS))
TEAMS = st.builds(
    Team,
    name=WORDS,
    uid=WORDS,
    created=TIMES,
    parent=maybe(WORDS),
    quotas=st.dictionaries(WORDS, QUOTAS, max_size=2),
    priority=st.integers(-9, 9),
    max_gpus_per_job=maybe(NUMBERS),
    min_runtime_seconds=NUMBERS,
    quantum_seconds=maybe(NUMBERS),
    has_policy=st.booleans(),
)
FLAVORS = st.builds(Flavor, name=WORDS, resources=st.lists(WORDS, max_size=2).map(tuple), node_selector=LABELS)
REQUESTS = st.builds(
    PendingPod,
    uid=WORDS,
    namespace=WORDS,
    name=WORDS,
    created=TIMES,
    shape=SHAPES,
    flavor=WORDS,
    priority=st.integers(),
    nominated=WORDS,
    preempts=st.booleans(),
    unplannable=WORDS,
)


@given(
    st.builds(
        Snapshot,
        now=TIMES,
        nodes=st.just(()),
        jobs=st.just(()),
        gpu_resources=st.lists(WORDS, max_size=2).map(tuple),
        flavors=st.lists(FLAVORS, max_size=2).map(tuple),
        teams=st.lists(TEAMS, max_size=2).map(tuple),
        team_of=LABELS,
        default_team=TEAMS,
        requests=st.lists(REQUESTS.filter(lambda r: abs(r.priority) < 2**63), max_size=2).map(tuple),
        starvation_seconds=TIMES,
    )
)
def test_whatever_teams_flavors_and_requests_there_are_the_file_holds_them(snapshot):
    assert written_and_read(snapshot) == snapshot


@given(snapshots(shapes=SHAPES))
def test_a_snapshot_read_from_its_file_is_the_same_and_is_decided_alike(snapshot):
    read = written_and_read(snapshot)
    assert read == snapshot
    assert dict(allocate(read)) == dict(allocate(snapshot))


def test_sets_are_written_in_order_so_that_equal_snapshots_have_equal_files():
    ports = frozenset((f"10.0.0.{n}", "TCP", n) for n in range(1, 9))
    document = json.loads(
        snapshot_file.encode(make_snapshot([], [make_job("a", shape=make_shape(1, host_ports=ports))]))
    )
    assert document["snapshot"]["jobs"][0]["worker"]["host_ports"] == [list(port) for port in sorted(ports)]


def test_a_file_says_what_it_is_and_leaves_out_what_goes_without_saying():
    document = json.loads(snapshot_file.encode(make_snapshot([make_node("n1")], [])))
    assert (document["kind"], document["version"]) == ("Snapshot", 1)
    assert document["snapshot"]["nodes"][0]["name"] == "n1"
    assert "unschedulable" not in document["snapshot"]["nodes"][0]


def test_the_schema_describes_every_part_of_a_snapshot():
    described = json.loads(snapshot_file.schema())["$defs"]
    assert {"Snapshot", "Node", "JobDemand", "PodShape", "Member", "Team", "Flavor"} <= described.keys()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d | {"kind": "Secret"}, "f: kind: 'Secret': must be Snapshot"),
        (lambda d: d | {"version": 2}, "f: version: 2: must be 1; take the snapshot with this version"),
        (lambda d: d | {"version": True}, "f: version: True: must be 1"),
        (lambda _: [1], "f: kind: None: must be Snapshot"),
        (lambda d: d | {"more": 1}, "f: is no snapshot: Object contains unknown field `more`"),
        (lambda d: {"kind": d["kind"], "version": 1}, "missing required field `snapshot`"),
        (lambda d: d | {"snapshot": d["snapshot"] | {"now": "noon"}}, "f: is no snapshot: snapshot.now: Expected"),
        (lambda d: d | {"snapshot": d["snapshot"] | {"nodez": []}}, "f: snapshot.nodez: must be absent"),
        (
            lambda d: d | {"snapshot": d["snapshot"] | {"nodes": [d["snapshot"]["nodes"][0] | {"gpus": 3}]}},
            "f: snapshot.nodes[0].gpus: must be absent: there is no such field",
        ),
    ],
)
def test_what_is_no_snapshot_is_refused_with_the_field_and_the_remedy(change, message):
    document = json.loads(snapshot_file.encode(make_snapshot([make_node("n1")], [])))
    with pytest.raises(InputError) as refused:
        snapshot_file.decode(change(document), source="f")
    assert message in str(refused.value)
