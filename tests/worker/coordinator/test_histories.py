"""Random histories of a job: no two groups train at once, nobody is stopped in a write, in the end all that can, do."""

from hypothesis import given
from hypothesis import strategies as st

from elastic_worker.coordinator.state import Phase, Rules
from tests.worker.coordinator.cluster import Cluster

INDEX, FEWEST = st.integers(0, 5), st.integers(1, 3)
WRITE_MEMBERSHIP = st.tuples(st.just("write_membership"), st.sets(INDEX, min_size=1))
HAPPENINGS = st.one_of(
    st.tuples(st.sampled_from(["arrive", "warm", "lose", "leave", "fail", "write", "checkpoint"]), INDEX),
    WRITE_MEMBERSHIP,
    st.tuples(st.just("wait"), st.floats(0.1, 20.0)),
    st.tuples(st.sampled_from(["settle", "answer"])),
)


@given(happenings=st.lists(HAPPENINGS, max_size=60), fewest=FEWEST, align=st.sampled_from([None, 60.0]))
def test_whatever_happens_in_the_end_all_that_can_train_do(happenings, fewest, align):
    cluster = Cluster(fewest=fewest, rules=Rules(align_seconds=align))
    cluster.live([("arrive", 0), ("warm", 0), ("arrive", 1), ("warm", 1), ("write_membership", {0, 1})])
    cluster.live([("arrive", 2), ("warm", 2), ("write_membership", {0, 1, 2}), *happenings])
    if not (uids := cluster.gather()):
        return
    for _ in range(12):
        cluster.live([("settle",), *(("checkpoint", index) for index in range(6)), ("answer",), ("wait", 7.0)])
    assert cluster.over == "failed" or cluster.state.phase == Phase.RUNNING
    if cluster.state.phase == Phase.RUNNING:
        assert cluster.state.group.uids == uids


def test_a_pod_that_left_an_earlier_group_excuses_no_failure_of_a_later_one():
    cluster = Cluster()
    cluster.live(
        [
            *(("arrive", index) for index in range(3)),
            *(("warm", index) for index in range(3)),
            ("write_membership", {0, 1, 2}),
        ]
    )
    cluster.live([("leave", 2), ("settle",), ("write_membership", {0, 1})])
    assert cluster.state.group.uids == {"u0", "u1"}
    for failures in (1, 2, 3):
        assert cluster.state.phase == Phase.RUNNING
        cluster.live([("fail", 1), ("settle",)])
        assert (cluster.state.failures, cluster.state.change_reason) == (failures, "Failure")
        cluster.wait(60.0)
    assert cluster.over == "failed"
