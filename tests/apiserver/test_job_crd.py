"""What the API server makes of the job's CRD: defaults, nulls, pruning, columns, subresources, documentation.

What is out of bounds, and fields that nobody knows, are in `tests/apiserver/input`.
"""

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from elastic_api.job import GROUP, KIND, PLURAL, VERSION
from elastic_api.parse import parse_spec, parse_status
from elastic_api.status import (
    MAX_LINE,
    MAX_TAIL,
    Change,
    Condition,
    ConditionType,
    JobStatus,
    LastFailure,
    Metric,
    PodStatus,
    QueuePosition,
    Retry,
    RetryCause,
    Training,
)
from tests.api.jobs import make_job, make_template
from tests.apiserver.jobs_api import Jobs, accepted, refused
from tests.apiserver.operators import eventually

pytestmark = pytest.mark.apiserver

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def make_status(**fields: Any) -> dict[str, Any]:
    """A status as the operator writes it."""
    return JobStatus(**fields).model_dump(mode="json", by_alias=True, exclude_none=True)


def condition(type_: ConditionType, reason: str) -> Condition:
    return Condition(type=type_, status="True", reason=reason, message="Why.", last_transition_time=NOW)


# --- defaults, nulls


def test_what_is_not_written_gets_the_defaults(jobs: Jobs):
    job = make_job()
    stored = accepted(jobs.create(job))["spec"]
    assert stored == {
        **job["spec"],
        "nprocPerNode": "auto",
        "runtime": {"mode": "Torchrun", "inject": True, "python": "", "preload": []},
        "elasticity": {
            "gracePeriodSeconds": 120,
            "scaleUpDelaySeconds": 30,
            "checkpointPath": "",
            "checkpointComplete": "",
            "checkpointSignal": "",
            "alignTimeoutSeconds": 60,
        },
        "recovery": {
            "maxFailuresWithoutProgress": 3,
            "masterLossTimeoutSeconds": 300,
            "nodeLossSeconds": 40,
            "stallSeconds": 1800,
        },
        "priorityClassName": "",
        "preemptible": True,
        "suspend": False,
        "cleanPodPolicy": "Running",
    }


def test_a_section_that_is_written_in_part_gets_the_rest_of_its_defaults(jobs: Jobs):
    stored = accepted(jobs.create(make_job(recovery={"nodeLossSeconds": 5})))["spec"]
    assert stored["recovery"] == {
        "maxFailuresWithoutProgress": 3,
        "masterLossTimeoutSeconds": 300,
        "nodeLossSeconds": 5,
        "stallSeconds": 1800,
    }


def test_the_api_servers_defaults_are_the_models(jobs: Jobs):
    job = make_job()
    assert parse_spec(accepted(jobs.create(job))) == parse_spec(job)


def test_null_is_refused_by_server_side_apply(jobs: Jobs):
    job = make_job()
    job["spec"]["replicaStep"] = None
    assert "must be of type integer" in refused(jobs.apply(job))["spec.replicaStep"]


def test_null_counts_as_absent_in_a_plain_create(jobs: Jobs):
    job = make_job()
    job["spec"] |= {"replicaStep": None, "suspend": None, "recovery": None}
    stored = accepted(jobs.create(job))["spec"]
    assert "replicaStep" not in stored
    assert stored["suspend"] is False
    assert stored["recovery"]["nodeLossSeconds"] == 40


def test_inside_the_template_nothing_is_pruned(jobs: Jobs):
    template = make_template(somethingNew={"a": [1, {"b": 2}]})
    stored = accepted(jobs.create(make_job(template=template, master={"template": template})))["spec"]
    assert stored["template"] == stored["master"]["template"] == template


# --- status


LINES = ["\u00fc" * MAX_LINE] * MAX_TAIL


def test_the_status_reads_back_as_the_operator_wrote_it(jobs: Jobs):
    accepted(jobs.create(make_job()))
    status = JobStatus(
        replicas=2,
        selector="a=b",
        start_time=NOW,
        retry=Retry(reason="r", not_before=NOW, cause=RetryCause.POD_FAILED),
        failed_size=Retry(reason="r", not_before=NOW, size=3, waits_for="Nodes", cause=RetryCause.FAILED_CREATE),
        master_epoch=2,
        membership_generation=9,
        training=Training(
            step=70,
            epoch=2,
            samples_seen=4480,
            last_checkpoint_step=60,
            checkpoint_error="no such folder",
            goodput=0.875,
            last_updated_time=NOW,
        ),
        last_failure=LastFailure(time=NOW, pod="toy-worker-0", rank=1, exit_code=-9, log_tail=LINES),
        pods=[PodStatus(name="toy-master-0", role="master", phase="Running", node="n1", gpus=4, rank=0)],
        history=[Change(time=NOW, from_=1, to=2, reason="Grown", pause_seconds=0.45, lost_steps=3)],
        conditions=[condition(ConditionType.READY, "Running"), condition(ConditionType.FULL_SIZE, "AtMaximum")],
    )
    written = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    accepted(jobs.patch("toy", {"status": written}, subresource="/status"))
    stored = jobs.get("toy")
    assert stored["status"] == written
    assert parse_status(stored) == status


def test_spec_and_status_are_written_through_their_own_doors(jobs: Jobs):
    accepted(jobs.create({**make_job(), "status": {"replicas": 7}}))
    accepted(jobs.patch("toy", {"status": {"replicas": 7}}))
    assert "status" not in jobs.get("toy")
    accepted(jobs.patch("toy", {"spec": {"maxReplicas": 9}, "status": {"replicas": 1}}, subresource="/status"))
    stored = jobs.get("toy")
    assert (stored["spec"]["maxReplicas"], stored["status"]["replicas"]) == (2, 1)


def test_there_is_one_condition_of_each_type(jobs: Jobs):
    accepted(jobs.create(make_job()))
    twice = make_status(
        conditions=[condition(ConditionType.READY, "Running"), condition(ConditionType.READY, "Queued")]
    )
    causes = refused(jobs.patch("toy", {"status": twice}, subresource="/status"))
    assert "Duplicate value" in causes["status.conditions[1]"]


def test_columns_answer_how_it_is_and_why_it_is_not_bigger(jobs: Jobs):
    accepted(jobs.create(make_job(minReplicas=1, maxReplicas=4)))
    conditions = [condition(ConditionType.FULL_SIZE, "InsufficientNodes"), condition(ConditionType.READY, "Running")]
    status = make_status(
        replicas=3,
        gpus=12,
        world_size=11,
        restarts=5,
        training=Training(
            step=70,
            goodput=0.875,
            progress_percentage=42,
            eta="3h20m",
            metrics=[Metric(name="lr", value="1e-4"), Metric(name="loss", value="0.25")],
        ),
        queue=QueuePosition(position=3, estimated_start_time=datetime(2026, 2, 1, tzinfo=UTC)),
        conditions=conditions,
    )
    accepted(jobs.patch("toy", {"status": status}, subresource="/status"))
    table = jobs.get("toy", accept=TABLE)
    columns = table["columnDefinitions"]
    row = dict(zip([column["name"].upper() for column in columns], table["rows"][0]["cells"], strict=True))
    age = row.pop("AGE")
    assert list(row.items()) == [
        ("NAME", "toy"),
        ("STATUS", "Running"),
        ("PODS", 3),
        ("MIN", 1),
        ("MAX", 4),
        ("GPUS", 12),
        ("LIMITED BY", "InsufficientNodes"),
        ("RESTARTS", 5),
        ("PROGRESS", 42),
        ("ETA", "3h20m"),
        ("WORLD", 11),
        ("STEP", 70),
        ("LOSS", "0.25"),
        ("GOODPUT", 0.875),
        ("QUEUE", 3),
        ("STARTS", "2026-02-01T00:00:00Z"),
    ]
    assert age.endswith("s")
    wide = ["World", "Step", "Loss", "Goodput", "Queue", "Starts"]
    assert [column["name"] for column in columns if column["priority"]] == wide


# --- scale


def test_the_scale_subresource_reads_the_pods_and_moves_the_maximum(jobs: Jobs):
    accepted(jobs.create(make_job(minReplicas=1, maxReplicas=2)))
    accepted(jobs.patch("toy", {"status": make_status(replicas=2, selector="a=b")}, subresource="/status"))
    scale = jobs.get("toy/scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 2, "selector": "a=b"})
    scale["spec"]["replicas"] = 5
    accepted(jobs.api.put(f"{jobs.path}/toy/scale", json=scale))
    assert jobs.get("toy")["spec"]["maxReplicas"] == 5


def test_a_job_without_a_status_has_a_scale(jobs: Jobs):
    accepted(jobs.create(make_job()))
    assert jobs.get("toy/scale")["status"] == {"replicas": 0}


def test_scaling_below_the_minimum_is_refused_with_the_remedy(jobs: Jobs):
    accepted(jobs.create(make_job(minReplicas=2, maxReplicas=4)))
    causes = refused(jobs.patch("toy", {"spec": {"replicas": 1}}, subresource="/scale"))
    assert "must be at least minReplicas; for no pods at all set suspend to true" in causes["spec.maxReplicas"]


# --- discovery and documentation


def test_the_short_name_and_the_category_are_served(jobs: Jobs):
    resources = jobs.api.get(f"/apis/{GROUP}/{VERSION}").json()["resources"]
    found = {one["name"]: one for one in resources if one["name"].startswith(PLURAL)}
    assert found.keys() == {PLURAL, f"{PLURAL}/status", f"{PLURAL}/scale"}
    assert (found[PLURAL]["shortNames"], found[PLURAL]["categories"]) == (["eptj"], ["ml"])


def test_kubectl_explain_finds_the_descriptions(jobs: Jobs):
    schema = published_schema(jobs.api)
    spec = schema["properties"]["spec"]["properties"]
    assert "pods, master included" in spec["minReplicas"]["description"]
    assert "unreachable node" in spec["recovery"]["properties"]["nodeLossSeconds"]["description"]


def published_schema(api: httpx.Client) -> dict[str, Any]:
    """The job's schema in /openapi, which follows the CRD after some seconds."""

    def published() -> httpx.Response | None:
        answer = api.get(f"/openapi/v3/apis/{GROUP}/{VERSION}")
        return answer if answer.status_code == httpx.codes.OK else None

    schemas = eventually("the schema", published).json()["components"]["schemas"]
    return next(schema for name, schema in schemas.items() if name.endswith(f".{KIND}"))
