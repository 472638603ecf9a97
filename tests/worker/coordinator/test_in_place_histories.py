"""Random histories of a job that changes in place: nobody trains in two groups, all go over after the same step, and in
the end all that can train do.
"""

from hypothesis import given
from hypothesis import strategies as st

from tests.worker.coordinator.in_place import LibraryJob

INDEX = st.integers(0, 5)
HAPPENINGS = st.one_of(
    st.tuples(st.sampled_from(["deliver", "train"]), INDEX),
    st.tuples(st.sampled_from(["deliver", "train"]), INDEX),
    st.tuples(st.sampled_from(["arrive", "lose", "leave", "crash"]), INDEX),
    st.tuples(st.just("wish"), st.sets(INDEX, min_size=1)),
    st.tuples(st.just("wait"), st.floats(0.1, 12.0)),
    st.tuples(st.just("settle")),
)


@given(happenings=st.lists(HAPPENINGS, max_size=50), fewest=st.integers(1, 3))
def test_whatever_happens_in_the_end_all_that_can_train_do(happenings, fewest):
    job = LibraryJob(fewest=fewest)
    for name, *values in [
        *(("arrive", i) for i in range(3)),
        ("wish", {0, 1, 2}),
        ("settle",),
        *happenings,
    ]:
        getattr(job, name)(*values)
    here = {i for i in range(6) if job._here(i) and job._here(i).leaving_until is None}
    if 0 not in here or job.over:
        return
    newcomers = range(10, 10 + max(0, fewest - len(here)))
    for index in newcomers:
        job.arrive(index)
    job.wish({*here, *newcomers})
    for _ in range(8):
        job.settle()
        job.wait(7.0)
    job.settle()
    before = job.steps_done
    job.settle()
    assert job.trains == {f"u{i}" for i in (*here, *newcomers)}, job.board
    assert job.steps_done > before
