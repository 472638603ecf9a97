"""The reasons of events: one enum has all of them, and the operator gives each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import elastic_operator
from elastic_api.status import PREEMPTED, ChangeReason
from elastic_operator.plan.facts.decisions import EventReason
from elastic_operator.plan.job.warnings import WARNINGS

NAMED_LIKE_CHANGES = sorted({*PREEMPTED, ChangeReason.SCALED_DOWN})
"""The reasons of a smaller size (`why_smaller`), which are those of its event too."""
CODE = "\n".join(path.read_text() for path in Path(elastic_operator.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("name", [*WARNINGS, *NAMED_LIKE_CHANGES])
def test_each_warning_and_each_reason_of_a_smaller_size_is_also_the_reason_of_an_event(name):
    assert EventReason(name) == name


@pytest.mark.parametrize("reason", EventReason)
def test_the_operator_gives_each_reason(reason):
    assert reason in {*WARNINGS, *NAMED_LIKE_CHANGES} or re.search(rf"\bEventReason\.{reason.name}\b", CODE)


def test_no_event_has_a_reason_that_is_not_in_the_enum():
    assert re.findall(r"\bEvent\(\s*(?:reason=)?\s*\"\w*\"", CODE) == []
