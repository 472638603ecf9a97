"""When a group may be stopped for a planned change: what its pods answered, one after the other."""

from elastic_worker.coordinator.aligning import STILL_SECONDS
from elastic_worker.coordinator.decide import decide
from elastic_worker.coordinator.execute import Executor
from elastic_worker.coordinator.state import Phase, Rules
from tests.worker.coordinator.states import make_membership, training

PLANNED = 5.0
"""When it is known that pod 2 is to go, within 300 s."""


class Played:
    """Three pods that train and save, one of which is to go; `told` is what was said to each since one last looked."""

    def __init__(self):
        rules = Rules(align_seconds=60.0, grace_seconds=300.0)
        self.state = training(0, 1, 2, membership=make_membership(0, 1), rules=rules)
        self.state.members["u2"].start_leaving(PLANNED + 302.0)
        self.now, self.told = PLANNED, {}
        self.executor = Executor(self.state, self.tell)
        self.act()

    def tell(self, uids, message):
        for uid in uids:
            self.told.setdefault(uid, []).append(message.to_json())

    def act(self):
        """Do what is decided now; what was said by then."""
        decision = decide(self.state, self.now)
        if decision.act != "stay":
            self.executor.do(decision, self.now)
        told, self.told = self.told, {}
        return told

    def whole(self, index, *, marked=False):
        self.executor.aligned(self.state.members[f"u{index}"], self.now, whole=True, marked=marked)

    def in_vain(self, index):
        self.executor.aligned(self.state.members[f"u{index}"], self.now, whole=False, marked=False)

    def still(self, index, still, round_=1):
        self.executor.aligning.stood(self.state.members[f"u{index}"], self.now, still=still, round_=round_)


def test_all_pods_are_asked_to_wait_for_a_checkpoint_and_its_end_while_the_leaver_has_time():
    told = [{"align": 60.0, "lastCall": 300.0}, {"askSave": {"round": 2, "step": 0}}]
    job = Played()
    job.state.change_reason = ""
    assert job.act() == {"u0": told, "u1": told, "u2": told}


def test_a_checkpoint_that_one_pod_sees_complete_is_one_when_no_other_pod_writes():
    job = Played()
    job.whole(1, marked=True)
    asked = {"still": {"round": 1, "marked": True}}
    assert job.act() == {"u0": [asked], "u2": [asked]}
    job.still(0, True)
    assert job.act() == {}
    job.still(2, True)
    assert all("stop" in words[0] for words in job.act().values())
    assert job.state.phase == Phase.STOPPING
    assert job.executor.changes.latest.lost == 0


def test_while_another_pod_writes_who_stands_still_goes_on():
    job = Played()
    job.whole(1)
    job.still(0, True)
    job.act()
    job.now += 20.0
    job.still(2, False)
    goes_on = {"align": 40.0, "lastCall": 280.0}
    assert job.act() == {"u0": [goes_on], "u1": [goes_on]}
    job.still(0, True)  # late: it goes on already
    job.whole(2)
    assert job.act().keys() == {"u0", "u1"}
    job.still(0, True, round_=2)
    job.whole(1)
    job.act()
    assert job.state.phase == Phase.STOPPING


def test_a_pod_that_says_late_that_it_stands_still_goes_on_as_well():
    """Its answer takes longer than that of a pod which writes, and ends the round."""
    job = Played()
    job.whole(1)
    job.act()
    job.still(0, False)
    assert job.act().keys() == {"u1"}
    job.still(2, True)
    assert job.act() == {"u2": [{"align": 60.0, "lastCall": 300.0}]}


def test_only_a_checkpoint_that_all_stood_still_for_loses_no_step():
    job = Played()
    job.whole(1)
    job.still(0, False)
    job.now = PLANNED + 300.0
    job.act()
    assert job.state.phase == Phase.STOPPING
    job.executor.stopped(job.state.members["u0"], 7)
    assert job.executor.changes.latest.lost == 7


def test_who_does_not_answer_holds_nobody_up_for_ever():
    job = Played()
    job.whole(0)
    job.still(1, True)
    job.act()
    job.now += STILL_SECONDS - 0.1
    assert job.act() == {}
    job.now += 0.1
    assert "stop" in job.act()["u0"][0]


def test_a_checkpoint_under_way_at_the_time_limit_is_awaited_until_the_leaver_has_to_go():
    job = Played()
    job.now = PLANNED + 61.0
    for index in (1, 2):
        job.in_vain(index)
    assert job.act() == {}
    job.now = PLANNED + 299.0
    assert job.act() == {}
    job.now = PLANNED + 300.0
    assert "stop" in job.act()["u0"][0]


def test_a_checkpoint_that_ends_meanwhile_counts():
    job = Played()
    for index in (1, 2):
        job.in_vain(index)
    job.now = PLANNED + 90.0
    job.whole(0)
    assert job.act().keys() == {"u1", "u2"}
    job.still(1, True)
    job.still(2, True)
    assert "no checkpoint" not in decide(job.state, job.now).sentence
    assert "stop" in job.act()["u0"][0]


def test_if_nobody_writes_when_time_is_over_all_stop():
    job = Played()
    for index in range(3):
        job.in_vain(index)
    decision = decide(job.state, job.now)
    assert (decision.act, decision.reason) == ("stop", "Leave")
    assert "no checkpoint came in time" in decision.sentence
