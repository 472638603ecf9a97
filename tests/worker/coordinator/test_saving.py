"""After which step the script is asked for a checkpoint: the same one for all pods, or it is not asked."""

from hypothesis import given
from hypothesis import strategies as st

from elastic_worker.coordinator.decide import REQUESTED_CHECKPOINT_SECONDS, decide
from elastic_worker.coordinator.state import Phase
from elastic_worker.protocol.reports import CheckpointStepReply
from tests.worker.coordinator.test_aligning import Played


class Asked(Played):
    """Three pods that count their steps, and answer what they are asked."""

    def __init__(self):
        super().__init__()
        self.act()
        self.executor.checkpoint_requests.begin()

    def answer(self, index, step, *, is_held=False, round_=None):
        """Pod `index` has done so many steps."""
        round_ = round_ or self.executor.checkpoint_requests._round
        member = self.state.members[f"u{index}"]
        self.executor.checkpoint_requests.answered(member, CheckpointStepReply(step, is_held, round_), self.now)

    def words(self):
        """What each was told since one last looked."""
        told, self.told = self.told, {}
        assert len({str(words) for words in told.values()}) <= 1, "they are told different things"
        return [word for word in next(iter(told.values()), []) if "align" not in word]


def test_all_pods_report_their_step_then_wait_after_one_that_none_has_done_and_are_asked_there():
    job = Asked()
    assert [word["askSave"]["step"] for word in job.words()] == [0]
    for index, step in enumerate((7, 8, 7)):
        job.answer(index, step)
    assert [word["askSave"]["step"] for word in job.words()] == [9]
    for index in range(3):
        assert job.words() == []
        job.answer(index, 8, is_held=True)
    assert job.words() == [{"saveNow": 9}]
    assert job.state.asked_at == job.now


def test_where_one_has_passed_the_step_a_later_one_is_proposed_to_all_with_twice_the_margin():
    job = Asked()
    for index in range(3):
        job.answer(index, 8)
    for step, proposed in ((12, 14), (20, 24)):
        job.words()
        job.answer(0, 9, is_held=True)
        job.answer(1, 9, is_held=True)
        job.answer(2, step)
        assert [word["askSave"]["step"] for word in job.words()] == [proposed]


def test_a_late_answer_to_an_earlier_proposal_counts_for_nothing():
    job = Asked()
    earlier = job.executor.checkpoint_requests._round
    for index in range(3):
        job.answer(index, 8)
    job.words()
    for index in range(3):
        job.answer(index, 8, is_held=True, round_=earlier)
    assert job.words() == []


def test_where_one_counts_no_steps_all_are_asked_at_once():
    job = Asked()
    job.words()
    for index, step in enumerate((7, 0, 7)):
        job.answer(index, step)
    assert job.words() == [{"saveNow": 0}]


def test_who_never_answers_as_it_is_of_the_release_before_keeps_all_from_being_asked():
    job = Asked()
    job.words()
    job.answer(0, 7)
    job.answer(1, 7)
    assert job.words() == []
    assert decide(job.state, job.now).act == "stay"


def test_nobody_is_asked_after_the_change_was_given_up():
    job = Asked()
    job.words()
    job.executor._resume(job.now)
    job.words()
    for index in range(3):
        job.answer(index, 8)
    assert job.words() == []


def test_that_it_was_asked_is_said_once_the_script_takes_long():
    job = Asked()
    for index in range(3):
        job.answer(index, 0)
    assert "asked" not in decide(job.state, job.now).sentence
    assert decide(job.state, job.now).until == job.now + REQUESTED_CHECKPOINT_SECONDS
    assert (
        "the script was asked more than 10 s ago" in decide(job.state, job.now + REQUESTED_CHECKPOINT_SECONDS).sentence
    )
    job.now += 300.0
    job.act()
    assert job.state.phase == Phase.STOPPING


@given(ahead=st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=40))
def test_whatever_the_pods_do_meanwhile_all_are_asked_after_the_same_step_that_none_has_passed(ahead):
    """Each entry: how many steps each pod does, at most up to where it waits, before it answers the next proposal."""
    job, done, waits_at = Asked(), [5, 5, 5], [0, 0, 0]
    for steps in [*ahead, *[(0, 0, 0)] * 3]:
        for word in job.words():
            if "saveNow" in word:
                assert all(count <= word["saveNow"] for count in done), "one has passed it"
                assert waits_at == [word["saveNow"]] * 3
                return
            proposed = word["askSave"]["step"]
            for index in range(3):
                done[index] += steps[index]  # before it hears of the proposal
                held = done[index] < proposed
                waits_at[index] = proposed if held else 0
                done[index] += min(1, max(0, proposed - done[index])) if held else 0
                job.answer(index, done[index], is_held=held)
    raise AssertionError("nobody was asked")


def test_a_pod_whose_line_breaks_when_all_are_asked_is_asked_when_it_is_back():
    job = Asked()
    for index in range(3):
        job.answer(index, 7)
    for index in range(3):
        job.answer(index, 7, is_held=True)
    job.told = {}
    job.executor.checkpoint_requests.reconnected(job.state.members["u1"])
    assert job.told == {"u1": [{"saveNow": 8}]}


def test_a_pod_that_is_back_before_all_were_asked_is_asked_for_nothing():
    job = Asked()
    job.told = {}
    job.executor.checkpoint_requests.reconnected(job.state.members["u1"])
    assert not job.told
