"""What the API server says of a refused pod becomes a text about the job's fields."""

import pytest

from elastic_operator.api.parse import parse_spec
from elastic_operator.api.refusal import REMEDY, pod_refusal
from tests.api.jobs import make_container, make_job, make_template

INVALID = 'Pod "toy-master-0" is invalid: '
DECODING = 'Pod in version "v1" cannot be handled as a Pod: '
ABSENT = "must be absent: there is no such field; check its spelling and its indentation"


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
