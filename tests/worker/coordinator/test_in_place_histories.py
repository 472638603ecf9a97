"""Random histories of a job that changes in place: nobody trains in two groups, all go over after the same step, and in
the end all that can train do.
"""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.worker.coordinator.in_place import LibraryJob
from tests.worker.coordinator.test_histories import FEWEST, INDEX, WRITE_MEMBERSHIP

MOSTLY_WORKERS = st.sampled_from([0, *2 * [1, 2, 3, 4, 5]])
"""The end of a history needs the master, which does not come back here."""
HAPPENINGS = st.one_of(
    st.tuples(st.sampled_from(["deliver", "connect", "train"]), INDEX),
    st.tuples(st.just("round")),
    st.tuples(st.just("steps"), st.integers(1, 6)),
    st.tuples(st.sampled_from(["arrive", "lose", "leave", "crash"]), MOSTLY_WORKERS),
    WRITE_MEMBERSHIP,
    st.tuples(st.just("wait"), st.floats(0.1, 12.0)),
    st.tuples(st.just("settle")),
)

JOIN = [("arrive", 3), ("write_membership", {0, 1, 2, 3})]
BOUND = [*JOIN, *3 * [("round",), ("steps", 1)], ("round",), ("deliver", 0), ("crash", 0)]


@example(happenings=[("leave", 1)], fewest=1)
@example(happenings=[("leave", 2), ("round",), ("round",), ("steps", 4), ("round",)], fewest=1)  # its moment is over
@example(
    happenings=[*JOIN, *3 * [("round",)], ("deliver", 0), ("lose", 3)], fewest=1
)  # it is cancelled while some wait
@example(happenings=BOUND, fewest=1)  # the master's process ends on the way from one group to the next
@example(happenings=[*BOUND[:-2], *BOUND[-1:]], fewest=1)  # and before its launcher hears that it is on the way
@example(
    happenings=[("write_membership", {0}), ("settle",), ("crash", 0), *2 * [("deliver", 0)]], fewest=1
)  # the others wait
@example(
    happenings=[("write_membership", {0}), *4 * [("round",)], ("lose", 1)], fewest=1
)  # a pod is lost in the last step before the others go over
@example(
    happenings=[
        *[("arrive", 5), ("write_membership", {0, 1, 2, 5}), *3 * [("round",)], ("settle",)],
        *[("lose", 2), ("write_membership", {0}), ("settle",)],
    ],
    fewest=1,
)  # two pods are left out of a broken group, at different steps, and join the next one
@given(happenings=st.lists(HAPPENINGS, min_size=20, max_size=80), fewest=FEWEST)
def test_whatever_happens_in_the_end_all_that_can_train_do(happenings, fewest):
    job = LibraryJob(fewest=fewest)
    job.live([*(("arrive", i) for i in range(3)), ("write_membership", {0, 1, 2}), ("settle",), *happenings])
    if not (uids := job.gather()):
        return
    for _ in range(8):
        job.live([("settle",), ("wait", 7.0)])
    job.settle()
    before = job.steps_done
    job.settle()
    assert job.trains == uids, job.state
    assert job.steps_done > before


@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_pods_train_together_after_all_that_happens_to_some_of_them(seed):
    """Pods come, are told to go, freeze or are lost, processes end, and once the master is lost: ten at a time."""
    job, chance = LibraryJob(gathers=True), random.Random(seed)
    here, master = set(range(1000)), 0
    with job.turn():
        job.live([("arrive", index) for index in here])
    job.live([("write_membership", here), ("settle", 3)])
    assert len(job.trains) == 1000
    master_goes = chance.randrange(2)
    for happening in range(2):
        workers = sorted(here - {master})
        new = set(range(max(here) + 1, max(here) + 11))
        leave, freeze, lose, crash = (chance.sample(workers, 10) for _ in range(4))
        happenings = [*(("arrive", index) for index in new), *(("leave", index) for index in leave)]
        happenings += [*(("freeze", index) for index in freeze), *(("lose", index) for index in lose)]
        happenings += [("crash", index) for index in crash]
        chance.shuffle(happenings)
        here = here - {*leave, *freeze, *lose} | new
        for part in range(0, len(happenings), 10):
            with job.turn():
                job.live(happenings[part : part + 10])
            job.live(chance.sample([("round",), ("steps", 1), ("wait", 0.5), ("write_membership", here)], 4))
        if happening == master_goes:
            here, master = here - {master} | {max(here) + 1}, max(here) + 1
            job.replace_master(master)
            job.write_membership(here)
    for _ in range(4):
        job.live([("settle", 6), ("wait", 7.0)])
    before = job.steps_done
    job.settle(6)
    assert job.trains == {f"u{index}" for index in here}
    assert job.steps_done > before
