"""What `-o json` prints: made from API objects of this release, of an older and of a newer one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import elastic_client
from elastic_client.documents import (
    DOCUMENTS,
    JobReport,
    event_row,
    job_report,
    job_row,
    quota_report,
    schema,
    table_rows,
)
from elastic_client.screen import as_json, as_yaml, names_of
from tests.client.objects import TAKEN, WANTS, ago, condition, make_event, running_status, stored_job

SCHEMA = Path(elastic_client.__file__).parent / "schema.json"
COLUMNS = (
    *("Name", "Status", "Pods", "Min", "Max", "GPUs", "Limited by", "Restarts"),
    *("Progress", "ETA", "World", "Step", "Loss", "Goodput", "Age"),
)
META = {"namespace": "team", "name": "toy", "creationTimestamp": ago(60)}


def test_the_published_schema_is_that_of_the_models():
    assert SCHEMA.read_text() == schema(), "renew it: make generated"
    assert len(json.loads(schema())["oneOf"]) == len(DOCUMENTS)


def test_a_row_of_the_table_is_read_by_the_names_of_its_columns():
    cells = ["toy", "Running", 2, 1, 3, 8, "InsufficientNodes", 4, 42, "3h20m", 16, 120, "0.25", "0.97", "1m"]
    table = {
        "columnDefinitions": [{"name": one} for one in COLUMNS],
        "rows": [{"cells": cells, "object": {"metadata": META}}],
    }
    (row,) = map(job_row, table_rows(table))
    assert (row.status, row.pods, row.min_pods, row.max_pods, row.gpus) == ("Running", 2, 1, 3, 8)
    assert (row.progress_percentage, row.eta, row.loss) == (42, "3h20m", "0.25")
    assert (row.limited_by, row.restarts, row.world_size, row.step, row.goodput) == (
        "InsufficientNodes",
        4,
        16,
        120,
        0.97,
    )


def test_a_release_with_fewer_columns_and_a_job_without_a_status_have_a_row_too():
    table = {"columnDefinitions": [{"name": "Name"}], "rows": [{"cells": ["toy"], "object": {"metadata": META}}]}
    (row,) = map(job_row, table_rows(table))
    assert (row.status, row.pods, row.step) == ("Unknown", 0, None)


def test_a_report_has_the_operators_own_words():
    report = job_report(stored_job())
    assert report.limit is not None
    assert report.limit.message == WANTS
    assert (report.history[0].from_, report.history[0].to, report.history[0].message) == (3, 2, TAKEN)
    assert report.up_to_date
    assert report.warnings == []


def test_conditions_that_are_true_and_that_nobody_expects_are_warnings():
    status = running_status()
    status["conditions"] += [
        condition("Flapping", "True", "ChangedTooOften", "held"),
        condition("Flapping2", "True", "OfANewerRelease", "so"),
        condition("PodsGivenUp", "False", "Over"),
    ]
    assert [one.type for one in job_report(stored_job(status=status)).warnings] == ["Flapping", "Flapping2"]


def test_a_job_that_no_operator_has_seen_and_one_that_was_edited_since_are_told_as_such():
    unseen, edited = stored_job(status={}), stored_job()
    edited["metadata"]["generation"] = 2
    assert (job_report(unseen).job.status, job_report(unseen).up_to_date) == ("Unknown", False)
    assert not job_report(edited).up_to_date


def test_fields_of_a_newer_release_are_named():
    job = stored_job(status=running_status(racks={"count": 3}), topology="rack")
    assert job_report(job).unknown_fields == ["spec.topology", "status.racks"]


def test_a_document_can_be_read_again_and_has_no_nulls():
    report = job_report(stored_job(), events=[event_row(make_event("Pod", "toy-master-0", "Pulled", at=ago(9)))])
    text = as_json(report)
    assert JobReport.model_validate_json(text) == report
    assert "null" not in text
    assert "upToDate: true" in as_yaml(report)
    assert names_of(report) == ["elasticpytorchjob.elastic-pytorch.dev/toy"]


@pytest.mark.parametrize(
    ("fields", "time", "count"),
    [
        ({}, ago(9), 1),
        ({"lastTimestamp": None, "eventTime": ago(8)}, ago(8), 1),
        ({"series": {"lastObservedTime": ago(3), "count": 5}}, ago(3), 5),
        ({"lastTimestamp": None}, ago(9), 1),
    ],
)
def test_an_event_has_the_time_of_its_last_coming_whoever_wrote_it(fields, time, count):
    row = event_row(make_event("Pod", "toy-master-0", "Pulled", at=ago(9), **fields))
    assert (row.time.strftime("%Y-%m-%dT%H:%M:%SZ"), row.count, row.object) == (time, count, "toy-master-0")


def test_a_policy_without_a_status_has_a_report():
    policy = {"metadata": {"name": "vision", "creationTimestamp": ago(5)}, "spec": {"namespaces": ["vision"]}}
    report = quota_report(policy)
    assert (report.quota.used, report.quota.limit, report.namespaces, report.selects) == (0, None, ["vision"], False)
