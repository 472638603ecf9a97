"""Wrong manifests are refused, or end in InvalidSpec, with field, value and remedy; other jobs do not notice."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.mistakes import MISTAKES, Mistake
from tests.apiserver.faults.lab import elastic_job
from tests.apiserver.input.manifests import AT_THE_DOOR, AT_THE_POD, DEEP, NOT_JSON, PRUNED, TOO_LARGE
from tests.apiserver.input.pool import Canary, conditions_of, pods_of
from tests.apiserver.jobs_api import Jobs, accepted, refused
from tests.apiserver.operators import Operator, Operators, eventually

pytestmark = pytest.mark.apiserver

SLOW_SECONDS = 120.0
"""For what gives the API server a lot to do, on a machine that others use, too."""


def untold(mistake: Mistake, told: str) -> list[str]:
    """A complaint, if `told` lacks a part of what the user must be told."""
    missing = [part for part in (mistake.field, mistake.value, mistake.remedy) if part not in told]
    return [f"{mistake}: {missing} missing in {told[:500]!r}"] if missing else []


def assert_healthy(operator: Operator) -> None:
    """It runs, and nothing it met was beyond it."""
    assert operator.lives
    assert "Traceback" not in operator.text()


def test_there_are_more_than_forty_manifests_of_each_kind():
    assert min(len(AT_THE_DOOR), len(MISTAKES), len(AT_THE_POD)) >= 40


def test_what_breaks_the_schema_or_its_rules_is_refused_with_field_value_and_remedy(jobs: Jobs):
    complaints = []
    for mistake in AT_THE_DOOR:
        answer = jobs.create(mistake.job)
        assert answer.status_code in (400, 422), (str(mistake), answer.text)
        complaints += untold(mistake, answer.json()["message"])
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize(("text", "status", "told"), NOT_JSON)
def test_what_is_no_json_object_is_refused(jobs: Jobs, text: str, status: int, told: str):
    headers = {"Content-Type": "application/json"}
    answer = jobs.api.post(jobs.path, params={"fieldValidation": "Strict"}, content=text, headers=headers)
    assert answer.status_code == status
    assert told in (answer.json()["message"] if status == httpx.codes.BAD_REQUEST else answer.text)


def test_a_misspelt_field_that_is_dropped_leaves_its_required_one_missing(jobs: Jobs):
    assert refused(jobs.create(PRUNED, validation="Ignore"))["spec.minReplicas"] == "Required value"


def test_stored_mistake_gets_invalid_spec_with_field_value_and_remedy(operators: Operators, jobs: Jobs, canary: Canary):
    operator = operators.start()
    canary.start()
    wrong = {f"wrong-{number}": mistake for number, mistake in enumerate([*MISTAKES, *AT_THE_POD])}
    for name, mistake in wrong.items():
        accepted(jobs.create({**mistake.job, "metadata": {"name": name}}, validation="Ignore"))
    canary.check()

    def still_open() -> list[tuple[str, str, str]]:
        ready = conditions_of(jobs, "Ready")
        return [(name, str(wrong[name]), ready[name]) for name in wrong if ready[name].get("reason") != "InvalidSpec"]

    eventually("InvalidSpec everywhere", lambda: not still_open(), seconds=SLOW_SECONDS, report=still_open)
    canary.check()
    ready, stalled = conditions_of(jobs, "Ready"), conditions_of(jobs, "Stalled")
    complaints = [complaint for name in wrong for complaint in untold(wrong[name], ready[name]["message"])]
    assert not complaints, "\n".join(complaints)
    assert {(ready[name]["status"], stalled[name]["status"]) for name in wrong} == {("False", "True")}
    assert [name for name in wrong if pods_of(jobs, name)] == []
    assert_healthy(operator)


def reason_of(jobs: Jobs, name: str) -> str:
    """The reason of a job's condition Ready."""
    return conditions_of(jobs, "Ready")[name].get("reason", "")


def test_a_job_nested_thousands_of_levels_ends_in_invalid_spec_and_hides_no_other(
    operators: Operators, jobs: Jobs, canary: Canary
):
    operator = operators.start()
    text = DEEP.replace('"namespace": "default"', f'"namespace": "{jobs.namespace}"')
    headers = {"Content-Type": "application/json"}
    jobs.api.post(jobs.path, content=text, headers=headers).raise_for_status()
    canary.start()
    eventually("InvalidSpec", lambda: status_column(jobs, "deep") == "InvalidSpec", seconds=SLOW_SECONDS)
    canary.check()
    assert_healthy(operator)


def status_column(jobs: Jobs, name: str) -> str:
    """What `kubectl get` shows: of a job that Python's own JSON parser does not read."""
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = jobs.api.get(f"{jobs.path}/{name}", params={"includeObject": "None"}, headers=headers).json()
    names = [column["name"] for column in table["columnDefinitions"]]
    status: str = table["rows"][0]["cells"][names.index("Status")]
    return status


@pytest.mark.extended
def test_of_a_job_so_large_that_its_status_cannot_be_stored_an_event_tells(
    operators: Operators, jobs: Jobs, canary: Canary
):
    operators.start()
    canary.start()
    accepted(jobs.create(TOO_LARGE))

    def told() -> list[str]:
        events = jobs.api.get(f"/api/v1/namespaces/{jobs.namespace}/events").json()["items"]
        return [event["message"] for event in events if event["involvedObject"]["name"] == "large"]

    eventually("an event", lambda: any("request is too large" in message for message in told()), report=told)
    canary.check()


def test_a_job_whose_workers_are_refused_gives_its_masters_place_back(operators: Operators, jobs: Jobs, canary: Canary):
    operators.start()
    canary.start()
    right = elastic_job()["spec"]["template"]
    worker = {"template": {"spec": {**right["spec"], "hostname": "a_b"}}}
    accepted(jobs.create(elastic_job(small=2, big=2, worker=worker)))
    named = "spec.worker.template.spec.hostname"
    eventually("the field to be named", lambda: named in conditions_of(jobs, "Ready")["toy"].get("message", ""))
    eventually("its pods to be gone", lambda: not pods_of(jobs, "toy"))


def test_an_invalid_job_starts_when_its_template_is_corrected_while_it_is_suspended(
    operators: Operators, jobs: Jobs, canary: Canary
):
    operators.start()
    right = elastic_job(gpus=0)["spec"]["template"]
    for name, wrong in (("known", {"restartPolicy": "Always"}), ("told", {"hostname": "a_b"})):
        broken: dict[str, Any] = {"spec": {**right["spec"], **wrong}}
        accepted(jobs.create(elastic_job(name, big=2, template=broken)))
        eventually("InvalidSpec", lambda name=name: reason_of(jobs, name) == "InvalidSpec")
        accepted(jobs.patch(name, {"spec": {"suspend": True}}))
        mended = {**right["spec"], **dict.fromkeys(wrong)}
        accepted(jobs.patch(name, {"spec": {"suspend": False, "template": {"spec": mended}}}))
        eventually("it to run", lambda name=name: reason_of(jobs, name) == "Running")
    assert canary.size == 1
    assert httpx.codes.is_success(jobs.api.get("/readyz").status_code)
