"""What the master tells of a run: ranks for the prefixes, changes for the table."""

from __future__ import annotations

from datetime import UTC, datetime

from elastic_client.local.status import Seen

BEGUN = datetime(2026, 11, 1, tzinfo=UTC)


def change(generation, before, after, reason="Join", **costs):
    time = BEGUN.timestamp() + 10 * generation
    return {"generation": generation, "time": time, "reason": reason, "from": before, "to": after, **costs}


def test_ranks_follow_the_order_of_the_members_with_each_pods_processes():
    seen = Seen(BEGUN, processes=2)
    seen.take({"members": ["toy-master-0", "toy-worker-1", "toy-worker-0"]})
    assert seen.ranks == {"toy-master-0": 0, "toy-worker-1": 2, "toy-worker-0": 4}
    seen.take({"members": []})
    assert seen.ranks["toy-worker-1"] == 2, "between two groups the last ranks are the best guess"


def test_a_change_is_told_once_and_its_costs_may_come_later():
    seen = Seen(BEGUN, processes=1)
    assert seen.take({"epoch": 1, "changes": [change(1, 0, 2, "Start")]}) == [change(1, 0, 2, "Start")]
    grown = change(2, 2, 3)
    assert seen.take({"epoch": 1, "changes": [grown, change(1, 0, 2, "Start")]}) == [grown]
    assert seen.take({"epoch": 1, "changes": [{**grown, "pauseSeconds": 0.25, "lostSteps": 0}]}) == []
    assert seen.rows() == [["10s", "0 -> 2", "Start", None, None], ["20s", "2 -> 3", "Join", "0.25 s", 0]]


def test_changes_of_a_master_that_was_lost_stay_in_the_table():
    seen = Seen(BEGUN, processes=1)
    seen.take({"epoch": 1, "changes": [change(1, 0, 2, "Start")]})
    seen.take({"epoch": 2, "changes": [change(2, 2, 2, "MasterLost")]})
    assert [row[2] for row in seen.rows()] == ["Start", "MasterLost"]


def test_nobody_answers_is_no_news():
    seen = Seen(BEGUN, processes=1, ranks={"toy-master-0": 0}, step=7)
    assert seen.take({}) == []
    assert (seen.ranks, seen.step) == ({"toy-master-0": 0}, 7)
