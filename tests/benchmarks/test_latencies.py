"""Latencies are right about an audit log whose moments are known."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import pytest

from benchmarks.live.audit import AuditLog, Write
from benchmarks.live.errors import BenchError
from benchmarks.live.place import Place
from benchmarks.live.quantile import quantile
from benchmarks.react.latencies import CREATE, DELETE, JOB_STATUS, POD_READY, SCALE, reaction, status_lags
from benchmarks.react.scenario import GPUS_PER_NODE, Scenario

OPERATOR = "operator"


def write(what, name, done, *, user=OPERATOR, took=0.0, ready=None):
    return Write(what, name, user, received=done - took, done=done, ready_replicas=ready)


def event(name, *, verb="create", subresource=None, code=201, second=0, micros=0, body=None):
    moment = datetime(2026, 1, 1, 12, 0, second, micros, UTC).isoformat().replace("+00:00", "Z")
    return {
        "verb": verb,
        "user": {"username": OPERATOR},
        "objectRef": {"resource": "pods", "name": name, **({"subresource": subresource} if subresource else {})},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": moment,
        "stageTimestamp": moment,
        **({"requestObject": body} if body else {}),
    }


def test_a_reaction_ends_with_the_operators_next_creation_whatever_others_create():
    cause = write(DELETE, "foreign-0", 10.0, user="admin", took=0.004)
    others = [write(CREATE, "a-worker-0", 9.0), write(CREATE, "x", 10.01, user="admin"), cause]
    assert reaction(others, cause, operator=OPERATOR) is None
    found = reaction([*others, write(CREATE, "a-worker-1", 10.02)], cause, operator=OPERATOR)
    assert found is not None
    assert found.created.name == "a-worker-1"
    assert found.from_fact == pytest.approx(0.02)
    assert found.from_request == pytest.approx(0.024)


def test_a_creation_that_was_under_way_before_the_cause_is_no_answer_to_it():
    cause = write(DELETE, "foreign-0", 10.0, took=0.01)
    assert reaction([cause, write(CREATE, "a-worker-0", 10.02, took=0.1)], cause, operator=OPERATOR) is None


def test_a_scale_is_answered_by_the_last_of_the_jobs_own_new_pods():
    cause = write(SCALE, "a", 5.0)
    created = [write(CREATE, f"{name}-worker-3", 5.0 + late) for name, late in (("a", 0.1), ("ab", 0.2))]
    assert reaction(created, cause, operator=OPERATOR, pods=2, job="a") is None
    last = write(CREATE, "a-worker-4", 5.3)
    found = reaction([*created, last], cause, operator=OPERATOR, pods=2, job="a")
    assert found is not None
    assert found.created is last


def test_a_status_lags_until_it_counts_the_pod_that_became_ready():
    writes = [
        write(POD_READY, "a-master-0", 1.0),
        write(POD_READY, "a-worker-0", 1.1),
        write(JOB_STATUS, "a", 1.2, ready=1),
        write(JOB_STATUS, "a", 1.3),
        write(JOB_STATUS, "b", 1.4, ready=2),
        write(JOB_STATUS, "a", 1.5, ready=2),
    ]
    assert status_lags(writes, ["a", "b"]) == pytest.approx([0.2, 0.4])


def test_a_pod_in_the_place_of_one_that_is_gone_is_counted_when_the_number_is_reached_again():
    writes = [
        write(POD_READY, "a-master-0", 1.0),
        write(POD_READY, "a-worker-0", 1.0),
        write(JOB_STATUS, "a", 1.1, ready=2),
        write(DELETE, "a-worker-0", 2.0),
        write(JOB_STATUS, "a", 2.1, ready=1),
        write(POD_READY, "a-worker-0", 2.2),
        write(POD_READY, "a-worker-0", 2.3),
        write(JOB_STATUS, "a", 2.7, ready=2),
    ]
    assert status_lags(writes, ["a"]) == pytest.approx([0.1, 0.1, 0.5])


def test_pods_of_nobodys_jobs_have_no_lag():
    writes = [write(POD_READY, "foreign-0", 1.0), write(JOB_STATUS, "foreign", 2.0, ready=1)]
    assert status_lags(writes, ["a"]) == []


def test_a_quantile_is_one_of_the_values():
    values = [float(number) for number in range(20, 0, -1)]
    assert [quantile(values, share) for share in (0.5, 0.95, 0.99, 1)] == [10, 19, 20, 20]
    assert math.isnan(quantile([], 0.5))


def test_the_log_is_read_on_as_it_grows_and_refused_writes_are_left_out(tmp_path):
    file = tmp_path / "audit.log"
    lines = [json.dumps(event("first", micros=250000)), json.dumps(event("refused", code=409))]
    half = json.dumps(event("a", verb="patch", subresource="status", code=200, body={"status": {"readyReplicas": 3}}))
    file.write_text("\n".join([*lines, half[:40]]))
    log = AuditLog(file)
    assert [found.name for found in log.read()] == ["first"]
    file.write_text("\n".join([*lines, half, ""]))
    found = log.read()
    assert [(each.what, each.name, each.ready_replicas) for each in found] == [
        ("patch pods/status", "a", 3),
        ("create pods", "first", None),
    ]
    assert found[1].done - found[0].done == pytest.approx(0.25)


def test_a_write_that_the_log_does_not_have_yet_is_awaited_where_an_older_one_has_its_name(tmp_path):
    file = tmp_path / "audit.log"
    old, new = (json.dumps(event("a-worker-0", second=second)) + "\n" for second in (1, 9))
    file.write_text(old)

    class Late(AuditLog):
        """The log gets the new write after the first look at it."""

        def read(self):
            found = list(super().read())
            file.write_text(old + new)
            return found

    [first] = AuditLog(file).read()
    place = Place(cluster=None, http=None, audit=Late(file))
    found = place.last_write(CREATE, "a-worker-0", since=first.done + 1)
    assert found.done - first.done == 8


def test_the_pools_are_exactly_full_and_roomy():
    plan = Scenario(jobs=250, pods=1000, tries=20)
    full = len(plan.full_jobs) * plan.size + len(plan.foreign_pods)
    assert full == plan.full_nodes * GPUS_PER_NODE
    assert len(plan.foreign_pods) >= plan.tries
    assert len(plan.full_jobs) + len(plan.roomy_jobs) == 250
    assert plan.roomy_nodes * GPUS_PER_NODE >= 20 * 6


@pytest.mark.parametrize(("wrong", "field"), [({"pods": 1001}, "pods=1001"), ({"jobs": 10, "pods": 40}, "tries=20")])
def test_a_scenario_that_cannot_be_laid_out_says_which_number_to_change(wrong, field):
    with pytest.raises(BenchError, match=field):
        Scenario(**wrong)
