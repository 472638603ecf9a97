"""What the API server says of a refused pod becomes a text about the job's fields."""

from collections.abc import Callable

import pytest

from elastic_api.parse import parse_spec
from elastic_api.refusal import REMEDY, pod_blocked, pod_refusal
from elastic_api.status import MAX_MESSAGE, ConditionType, JobStatus, Retry, shortened
from elastic_operator.plan.facts.job import Job
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.job.observation import Observation
from tests.api.jobs import make_container, make_job, make_template

INVALID = 'Pod "toy-master-0" is invalid: '
DECODING = 'Pod in version "v1" cannot be handled as a Pod: '
ABSENT = "must be absent: there is no such field; check its spelling and its indentation"


def pod_refusal_of(message: str) -> str:
    """What is told of a worker's pod that was refused with that message."""
    return pod_refusal(parse_spec(make_job()), role="worker", message=message)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            INVALID + 'spec.containers[0].imagePullPolicy: Unsupported value: "always": supported values: "Always"',
            'spec.template.spec.containers[0].imagePullPolicy: Unsupported value: "always": supported values: "Always"',
        ),
        (
            INVALID + 'metadata.labels: Invalid value: "a b": name part must consist of alphanumeric characters',
            'spec.template.metadata.labels: Invalid value: "a b": name part must consist of alphanumeric characters',
        ),
        (
            INVALID + "[spec.volumes[0].nfs.server: Required value, spec.volumes[0].nfs.path: Required value]",
            "[spec.template.spec.volumes[0].nfs.server: Required value,"
            " spec.template.spec.volumes[0].nfs.path: Required value]",
        ),
        (
            INVALID
            + 'spec.containers[0].env[19].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.nam": no field',
            "spec.template.spec.containers[0].env[19].valueFrom.fieldRef.fieldPath:"
            ' Invalid value: "metadata.nam": no field',
        ),
        (
            DECODING + 'strict decoding error: unknown field "spec.nodeSelectr", unknown field "spec.x.y"',
            f"spec.template.spec.nodeSelectr: {ABSENT}, spec.template.spec.x.y: {ABSENT}",
        ),
        (
            DECODING + "json: cannot unmarshal number 1.1e21 into Go struct field PodSpec.spec.priority of type int32",
            "spec.template.spec.priority: number 1.1e21: must be of type int32",
        ),
        ("something else.", "something else"),
    ],
)
def test_fields_are_named_where_they_stand_in_the_job(message: str, told: str):
    assert pod_refusal(parse_spec(make_job()), role="worker", message=message) == f"{told}. {REMEDY}"


def test_a_role_with_a_template_of_its_own_is_named():
    spec = parse_spec(make_job(worker={"template": make_template()}))
    message = INVALID + "spec.hostname: Invalid value"
    assert pod_refusal(spec, role="worker", message=message).startswith("spec.worker.template.spec.hostname: ")
    assert pod_refusal(spec, role="master", message=message).startswith("spec.template.spec.hostname: ")


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("containers[1].env[20].value", "containers[1].env[1].value"),
        ("containers[1].env[18].value", "containers[1].env[18].value"),
        ("containers[0].env[20].value", "containers[0].env[20].value"),
        ("containers[2].env[20].value", "containers[2].env[20].value"),
        ("initContainers[1].env[20].value", "initContainers[1].env[20].value"),
    ],
)
def test_a_variable_is_named_by_its_place_among_the_users(place: str, told: str):
    template = make_template(make_container(name="helper"), make_container())
    spec = parse_spec(make_job(template=template))
    message = f"{INVALID}spec.{place}: Invalid value"
    refusal = pod_refusal(spec, role="master", message=message, own_variables=19)
    assert refusal.startswith(f"spec.template.spec.{told}: Invalid value")


@pytest.mark.parametrize("told", [pod_refusal_of, pod_blocked], ids=["refused", "blocked"])
@pytest.mark.parametrize(
    "written",
    ["json: cannot unmarshal ", "spec.containers[0].env[7].name: Invalid value, ", f"containers[{'9' * 5000}].env[0]"],
    ids=["sentences", "variables", "digits"],
)
def test_what_the_api_server_repeats_of_a_large_template_is_cut_in_its_middle(written: str, told: Callable[[str], str]):
    text = shortened(told(f"{INVALID}the first {written * 20_000}exceeded quota"))
    assert len(text) == MAX_MESSAGE
    assert "the first" in text
    assert "characters in all" in text
    assert text.endswith((REMEDY, "have the ResourceQuota raised, or wait."))


def test_a_text_of_a_status_has_at_most_four_thousand_characters():
    obs = Observation(Job("default", "j", "u", 1, 0.0, JobStatus(), None), JobStatus())
    obs = obs.with_condition(ConditionType.READY, False, Reason("InvalidSpec", "x" * 800_000), 0.0)
    obs = obs.with_change(0.0, 1, 2, "Lost", "y" * 800_000)
    status = obs.with_status(retry=Retry(reason="z" * 800_000, not_before=obs.status.history[0].time)).status
    assert len(status.model_dump_json()) < 4 * MAX_MESSAGE
