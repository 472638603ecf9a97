"""Which fields of a status the API server drops, from its answers."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from elastic_operator.cluster.pruned_fields import PrunedFields

CHANGES = [{"to": 2, "excused": True}, {"to": 1}]
SENT: dict[str, Any] = {"replicas": 2, "retry": {"attempt": 1, "edits": 1}, "spent": {"since": 5}, "history": CHANGES}
STORED: dict[str, Any] = {"replicas": 2, "retry": {"attempt": 1}, "history": [{"to": 2}, {"to": 1}]}


def test_what_was_sent_and_is_missing_from_the_answer_is_left_out_at_any_depth():
    pruned_fields = PrunedFields("jobs")
    assert pruned_fields.without(SENT) is SENT
    pruned_fields.compare(SENT, STORED)
    assert pruned_fields.without(SENT) == STORED
    assert pruned_fields.without(SENT | {"replicas": 3}) != pruned_fields.without(STORED)


def test_an_answer_that_has_all_is_no_reason_to_leave_anything_out(caplog: pytest.LogCaptureFixture):
    pruned_fields = PrunedFields("jobs")
    pruned_fields.compare(SENT, SENT)
    assert (pruned_fields.fields, caplog.records) == (frozenset(), [])


def test_a_field_that_comes_back_is_compared_again_and_one_that_was_not_sent_stays_known():
    pruned_fields = PrunedFields("jobs")
    pruned_fields.compare(SENT, STORED)
    pruned_fields.compare({"replicas": 2, "spent": {"since": 5}}, {"replicas": 2, "spent": {"since": 5}})
    assert pruned_fields.fields == {"retry.edits", "history[].excused"}


def test_a_dropped_field_is_logged_once(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    pruned_fields = PrunedFields("jobs")
    pruned_fields.compare({"spent": {"since": 5}}, {})
    pruned_fields.compare(SENT, STORED)
    (record,) = caplog.records
    assert "The API server drops fields of jobs: status.spent." in record.message
