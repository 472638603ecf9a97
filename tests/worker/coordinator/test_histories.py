"""Random histories of a job: whatever happens, no two groups train at once, and in the end all that can, do."""

from hypothesis import given
from hypothesis import strategies as st

from elastic_worker.coordinator.model import Phase
from tests.worker.coordinator.cluster import Cluster

INDEX = st.integers(0, 5)
HAPPENINGS = st.one_of(
    st.tuples(st.sampled_from(["arrive", "warm", "lose", "leave", "fail"]), INDEX),
    st.tuples(st.just("wish"), st.sets(INDEX, min_size=1)),
    st.tuples(st.just("wait"), st.floats(0.1, 20.0)),
    st.tuples(st.sampled_from(["settle", "checkpoint"])),
)


@given(
    happenings=st.lists(HAPPENINGS, max_size=60),
    fewest=st.integers(1, 3),
    align=st.sampled_from([None, 60.0]),
)
def test_whatever_happens_in_the_end_all_that_can_train_do(happenings, fewest, align):
    cluster = Cluster(fewest=fewest, align=align)
    for name, *values in [("arrive", 0), ("warm", 0), ("arrive", 1), ("warm", 1), ("wish", {0, 1}), *happenings]:
        getattr(cluster, name)(*values)
    here = {i for i in range(6) if cluster._here(i) and cluster._here(i).leaving_until is None}
    if 0 not in here or cluster.over:
        return
    # New pods come under new names, so the fewest are always there.
    newcomers = range(10, 10 + max(0, fewest - len(here)))
    for index in newcomers:
        cluster.arrive(index)
    for index in (*here, *newcomers):
        cluster.warm(index)
    cluster.wish({*here, *newcomers})
    for _ in range(12):
        cluster.settle()
        cluster.checkpoint()
        cluster.wait(7.0)
    assert cluster.over == "failed" or cluster.board.phase == Phase.RUNNING
    if cluster.board.phase == Phase.RUNNING:
        assert cluster.board.group.uids == {f"u{i}" for i in (*here, *newcomers)}
