"""Random histories of a job that changes in place: nobody trains in two groups, all go over after the same step, and in
the end all that can train do.
"""

from hypothesis import example, given
from hypothesis import strategies as st

from tests.worker.coordinator.in_place import LibraryJob
from tests.worker.coordinator.test_histories import FEWEST, INDEX, WISH

HAPPENINGS = st.one_of(
    st.tuples(st.sampled_from(["deliver", "train"]), INDEX),
    st.tuples(st.sampled_from(["deliver", "train"]), INDEX),
    st.tuples(st.sampled_from(["arrive", "lose", "leave", "crash"]), INDEX),
    WISH,
    st.tuples(st.just("wait"), st.floats(0.1, 12.0)),
    st.tuples(st.just("settle")),
)


@example(happenings=[("leave", 1)], fewest=1)
@given(happenings=st.lists(HAPPENINGS, max_size=50), fewest=FEWEST)
def test_whatever_happens_in_the_end_all_that_can_train_do(happenings, fewest):
    job = LibraryJob(fewest=fewest)
    job.live([*(("arrive", i) for i in range(3)), ("wish", {0, 1, 2}), ("settle",), *happenings])
    if not (uids := job.gather()):
        return
    for _ in range(8):
        job.live([("settle",), ("wait", 7.0)])
    job.settle()
    before = job.steps_done
    job.settle()
    assert job.trains == uids, job.board
    assert job.steps_done > before
