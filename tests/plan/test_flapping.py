"""A job that is changed again and again, though nothing happens, is held at what it has (143)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_api.status import Change, Retry, RetryCause
from elastic_operator.plan.facts.demand import PreemptionBar
from elastic_operator.plan.facts.job import FlapWindow, MainContainer
from elastic_operator.plan.facts.requirements import JobShape, PodShape
from elastic_operator.plan.facts.times import seconds
from elastic_operator.plan.facts.waits import HELD_SECONDS, may_flap
from elastic_operator.plan.job.demand import demand_of
from elastic_operator.plan.job.remaining_pods import frozen_demand
from tests.plan.jobs import START, at, group, make_grant, make_job, make_spec, plan, reasons, see, started

UP, DOWN = "ScaledUp", "PreemptedByJob"
NOW = 200.0


def history(*changes):
    """Changes as (seconds, from, to, reason), the oldest first; the status has the newest first."""
    made = [Change(time=at(t), from_=before, to=after, reason=why, message="") for t, before, after, why in changes]
    return made[::-1]


def withdrawn(count):
    """Growth from 2 to 3 pods, which is withdrawn before the pod is there, so many times."""
    changes = history(*((100 + i, *((2, 3, UP), (3, 2, "ScaledDown"))[i % 2]) for i in range(2 * count)))
    return [change.model_copy(update={"excused": True if change.to == 2 else None}) for change in changes]


def flaps(count, *, every=10, up=UP, down=DOWN, first=100):
    """So many changes from 2 to 3 pods and back."""
    sizes = [(2, 3, up), (3, 2, down)]
    return history(*((first + i * every, *sizes[i % 2]) for i in range(count)))


def job(changes, *, pods=None, no_external_change=0.0, in_turns=False, spec=None, generation=1, **status):
    """A job of two pods with that history, where nothing has changed from outside since `no_external_change`."""
    pods = group(1) if pods is None else pods
    known = started(1, history=changes).model_copy(update=status)
    return make_job(
        pods,
        status=known,
        spec=spec,
        generation=generation,
        flap_window=FlapWindow(START + no_external_change, time_sharing=in_turns),
    )


def held_for(seen, now=NOW):
    """For how many seconds it is held."""
    until = seen.status.held_until
    return None if until is None else seconds(until) - START - now


@pytest.mark.parametrize(("count", "is_held"), [(3, False), (4, True), (7, True)])
def test_more_than_three_changes_in_ten_minutes_are_too_many(count, is_held):
    seen = see(job(flaps(count)))
    assert held_for(seen) == (HELD_SECONDS if is_held else None)
    assert (START + NOW + HELD_SECONDS in seen.requeue_at) is is_held


def test_a_hold_that_begins_within_a_second_is_not_cut_short():
    assert held_for(see(job(flaps(4)), now=200.9)) == HELD_SECONDS + 1


@pytest.mark.parametrize(
    "changes",
    [
        flaps(4, every=250, first=-700),
        history(*((100 + i, i + 2, i + 3, UP) for i in range(6))),
        history(*((100 + i, 9 - i, 8 - i, "PreemptedByJob") for i in range(6))),
        flaps(6, up="PodLost", down="MasterLost"),
        withdrawn(5),
        history(*((100 + i, 3, 2, "QuotaReclaimed") for i in range(3)), (104, 2, 3, UP)),
        flaps(6, up=UP, down="QuotaReclaimed"),
    ],
    ids=[
        "long apart",
        "grows in steps",
        "shrinks in steps",
        "losses",
        "growth is withdrawn",
        "an owner takes",
        "an owner takes thrice",
    ],
)
def test_what_is_long_apart_goes_on_or_is_somebody_s_right_is_not(changes):
    assert held_for(see(job(changes))) is None


def test_growth_that_an_owner_takes_back_each_time_is_too_much_the_fourth_time():
    seen = see(job(flaps(8, every=5, down="QuotaReclaimed")))
    assert held_for(seen) == HELD_SECONDS


def test_moves_to_other_nodes_count_as_changes():
    assert held_for(see(job(history(*((100 + i, 2, 2, DOWN) for i in range(4)))))) == HELD_SECONDS


def test_what_follows_a_change_from_outside_counts_from_there():
    assert held_for(see(job(flaps(6), no_external_change=125))) is None
    assert held_for(see(job(flaps(6), no_external_change=115))) == HELD_SECONDS


def test_turns_of_a_team_that_shares_time_are_due():
    turns = history(*((100 + i, 2 * (i % 2), 2 * (1 - i % 2), "Started" if i % 2 == 0 else DOWN) for i in range(6)))
    assert held_for(see(job(turns, in_turns=True))) is None
    assert held_for(see(job(turns))) == HELD_SECONDS
    in_vain = history(
        *((100 + i, 2 * (i % 2), 2 * (1 - i % 2), "ScaledDown" if i % 2 else "Started") for i in range(4))
    )
    assert held_for(see(job(in_vain, in_turns=True))) == HELD_SECONDS


def test_tries_of_a_size_that_failed_have_a_back_off_of_their_own():
    retry = Retry(reason="no room", not_before=at(300), attempt=3, size=3, cause=RetryCause.UNSCHEDULABLE)
    assert held_for(see(job(flaps(6), failed_size=retry))) is None


def test_a_job_that_is_held_says_why_until_when_and_what_a_person_can_do():
    planned = plan(job(flaps(5)), make_grant(keep=["master-0", "worker-0"]))
    assert reasons(planned)["Flapping"] == ("True", "ChangedTooOften")
    assert reasons(planned)["FullSize"] == ("False", "ChangedTooOften")
    told = planned.status.condition("Flapping").message
    assert "2, 3, 2, 3 pods" in told or "3, 2, 3, 2, 3 pods" in told
    assert "until 2027-01-15T08:13:20Z" in told
    assert "An edit of the job ends this at once" in told
    assert [event.reason for event in planned.events] == ["Flapping"]
    again = plan(replace(job(flaps(5)), status=planned.status), make_grant(keep=["master-0", "worker-0"]))
    assert again.events == ()


def test_gpus_reclaimed_during_a_hold_are_no_changes_for_which_the_job_is_held():
    """The message named these pods as a change without a cause, and was another one after each."""
    known = job(flaps(5), pods=group(2), replicas=3, target_replicas=3)
    status = plan(known, make_grant(keep=["master-0", "worker-0", "worker-1"])).status
    told = status.condition("Flapping").message
    taken = history((300, 3, 2, "QuotaReclaimed"))
    later = status.model_copy(update={"history": [*taken, *status.history], "replicas": 2, "target_replicas": 2})
    held = plan(make_job(group(1), status=later), make_grant(keep=["master-0", "worker-0"]), now=400).status
    assert (held.held_until, held.condition("Flapping").message) == (status.held_until, told)


HELD = {"held_until": at(700)}


def test_while_it_is_held_it_gets_no_more_and_others_may_take_what_is_theirs():
    seen = see(job(flaps(4), pods=group(2), spec=make_spec(maxReplicas=8), **HELD))
    shape = JobShape(PodShape({}), PodShape({}))
    demand = frozen_demand(demand_of(seen, shape))
    assert demand.sizes == (2, 3)
    assert demand.wants_pods
    assert demand.bar.why is PreemptionBar.GETS_NO_PODS


@pytest.mark.parametrize(
    ("change", "now"),
    [({}, 701), ({"generation": 2}, 300)],
    ids=["the time is over", "somebody edits it"],
)
def test_the_hold_ends(change, now):
    known = job(flaps(4), no_external_change=250, **HELD, **change)
    seen = see(known, now=now)
    assert seen.status.held_until is None
    planned = plan(known, make_grant(keep=["master-0", "worker-0"]), now=now)
    assert "Flapping" not in reasons(planned)


def test_a_loss_ends_it_so_that_the_lost_pod_is_replaced():
    status = plan(job(flaps(4), pods=group(2)), make_grant(keep=["master-0", "worker-0", "worker-1"])).status
    assert status.held_until is not None
    seen = see(make_job(group(1), status=status, flap_window=FlapWindow(START)), now=300)
    assert (seen.status.restarts, seen.status.held_until) == (1, None)


@pytest.mark.parametrize("runtime", ["Torchrun", "Elastic"])
def test_a_job_all_of_whose_pods_are_shut_out_is_let_go_and_one_that_keeps_some_is_not(runtime):
    """A job without pods was held for ten minutes, because it had pods when its hold began."""
    spec = make_spec(runtime={"mode": runtime})
    pods = group(1, bound=False, phase="Pending", ready=False, main=MainContainer())
    why = {pod.uid: "node n1 accepts no more pods (cordoned)" for pod in pods}
    held = started(1).model_copy(update=HELD)
    some = see(make_job(pods, spec=spec, status=held, misplaced={"uid-worker-0": "full"}), now=300).status
    none = see(make_job(pods, spec=spec, status=held, misplaced=why), now=300).status
    assert (some.held_until, none.held_until) == (at(700), None)
    assert see(make_job((), spec=spec, status=none), now=301).wants_pods


def test_a_job_without_pods_is_let_go_by_any_change_from_outside_and_waits_till_then():
    waits = job(flaps(4), pods=(), no_external_change=90, replicas=0, **HELD)
    seen = see(waits, now=650)
    assert not seen.wants_pods
    assert reasons(plan(waits, now=650))["Ready"] == ("False", "Queued")
    assert see(job(flaps(4), pods=(), no_external_change=645, replicas=0, **HELD), now=650).wants_pods
    assert see(job(flaps(4), no_external_change=645, **HELD), now=650).status.held_until is not None


def test_a_change_from_outside_in_the_second_in_which_a_hold_began_ends_it():
    held = see(job(flaps(4, first=160), pods=(), replicas=0), now=200.4).status
    assert held.held_until == at(261)
    changed = make_job((), status=held, flap_window=FlapWindow(START + 200.7))
    assert see(changed, now=201).wants_pods


def test_a_job_without_pods_is_held_for_a_minute_only_after_a_change_within_one():
    slow, fast = flaps(6, every=20, first=80), flaps(4, first=160)
    assert held_for(see(job(slow, pods=(), replicas=0))) is None
    seen = see(job(fast, pods=(), replicas=0))
    assert (held_for(seen), seen.status.target_replicas) == (60, 0)


def test_only_of_a_job_that_changed_often_lately_it_matters_how_quiet_it_is():
    assert not may_flap(started(history=flaps(3)), START + NOW)
    assert may_flap(started(history=flaps(4)), START + NOW)
    assert not may_flap(started(history=flaps(4)), START + 800)
    assert may_flap(started(history=flaps(4), **HELD), START + 800)
