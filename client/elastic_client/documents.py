"""The output of `-o json` and `-o yaml`: a stable schema, published as `schema.json`, made here from API objects.

Fields are only ever added within one `apiVersion`. The operator's values in a status are copied, never computed again.
`make generated` renews the schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.json_schema import models_json_schema

from elastic_api.invalid import FieldError
from elastic_api.job import GROUP, JobSpec
from elastic_api.policy import FlavorAmounts, JobCounts, PolicyStatus
from elastic_api.status import (
    AvoidedNode,
    Change,
    Condition,
    ConditionType,
    Forecast,
    JobStatus,
    LastFailure,
    PodStatus,
    QueuePosition,
    Retry,
    Time,
    Training,
)

SCHEMA_VERSION: Final = "client.elastic-pytorch.dev/v1"
NOT_WARNINGS = frozenset(
    {
        ConditionType.READY,
        ConditionType.FULL_SIZE,
        ConditionType.ADMITTED,
        ConditionType.RESIZING,
        ConditionType.SUSPENDED,
        ConditionType.SUCCEEDED,
        ConditionType.FAILED,
        ConditionType.STALLED,
    }
)
"""Conditions that need no attention while they are True, or that repeat Ready."""
CODE_ANNOTATION = f"{GROUP}/code"
"""The annotation of a job whose code was shipped from a folder; see `code/objects.py`."""
UNKNOWN = "Unknown"
"""The state of a job that no operator has looked at."""


class Model(BaseModel):
    """A part of a command's output; its fields are camelCase there."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class Document(Model):
    """The root of an output."""

    api_version: Literal["client.elastic-pytorch.dev/v1"] = Field(
        default=SCHEMA_VERSION, description="The version of this schema."
    )


class JobRow(Model):
    """A job in one line, with the columns of `kubectl get`."""

    namespace: str = Field(description="Its namespace.")
    name: str = Field(description="Its name.")
    status: str = Field(description="The reason of the condition Ready; Unknown where no operator has looked at it.")
    pods: int = Field(description="Pods in the running group.")
    min_pods: int = Field(description="Fewest pods it runs with.")
    max_pods: int = Field(description="Most pods it runs with.")
    gpus: int = Field(default=0, description="GPUs that its pods hold.")
    limited_by: str = Field(default="", description="The reason of the condition FullSize.")
    restarts: int = Field(default=0, description="Failures and lost pods.")
    progress_percentage: int | None = Field(default=None, description="0 to 100, where the script reports it.")
    eta: str | None = Field(default=None, description="How long the rest takes, as 3h20m, where that is known.")
    world_size: int = Field(default=0, description="Training processes.")
    step: int | None = Field(default=None, description="Optimizer steps done, where that is known.")
    loss: str | None = Field(default=None, description="As the script reports it.")
    goodput: float | None = Field(default=None, description="0 to 1, where that is known.")
    queue_position: int | None = Field(
        default=None, description="Where it stands in line; from 11 on only the first digit is exact."
    )
    estimated_start_time: Time | None = Field(default=None, description="When it starts, if that is known.")
    created: Time = Field(description="When it was created.")


class JobList(Document):
    """`list`."""

    kind: Literal["JobList"] = "JobList"
    jobs: list[JobRow] = Field(description="By namespace and name.")


class EventRow(Model):
    """Something that happened to a job or to one of its pods."""

    time: Time = Field(description="When it happened last.")
    type: str = Field(description="Normal or Warning.")
    reason: str = Field(description="What happened, as one CamelCase word.")
    object: str = Field(description="To what: the job, or a pod's name.")
    message: str = Field(description="What happened, as a sentence.")
    count: int = Field(default=1, description="How often it happened.")


class EventList(Document):
    """`events`."""

    kind: Literal["EventList"] = "EventList"
    events: list[EventRow] = Field(description="Oldest first.")


class JobReport(Document):
    """The output of `describe` and `why`, and of commands that change a job."""

    kind: Literal["JobReport"] = "JobReport"
    job: JobRow = Field(description="The job in one line.")
    up_to_date: bool = Field(description="Whether the operator has seen the last edit of the spec.")
    state: Condition | None = Field(default=None, description="The condition Ready: what the job does now, and why.")
    limit: Condition | None = Field(default=None, description="The condition FullSize: why the job is not bigger.")
    warnings: list[Condition] = Field(description="Further conditions that are true and need attention.")
    retry: Retry | None = Field(
        default=None, description="When the job starts over, or gets its next pods, after failures or losses."
    )
    failed_size: Retry | None = Field(
        default=None,
        description="The size that could not be had, or new nodes that did not come, and when they are tried again.",
    )
    held_until: Time | None = Field(default=None, description="Until when its size is held.")
    avoided_nodes: list[AvoidedNode] = Field(description="Nodes that its pods are kept from.")
    training: Training | None = Field(default=None, description="How far the training is.")
    queue: QueuePosition | None = Field(default=None, description="Where it stands in line, while it waits.")
    forecast: Forecast | None = Field(default=None, description="What it would get, if it is suspended and asks.")
    history: list[Change] = Field(description="Changes of size, newest first.")
    last_failure: LastFailure | None = Field(default=None, description="What failed last, and what it printed last.")
    pods: list[PodStatus] = Field(description="Its pods.")
    pods_not_listed: int = Field(default=0, description="How many pods the list leaves out.")
    code: str | None = Field(default=None, description="What `run --code` shipped: the folder, its size, its SHA-256.")
    events: list[EventRow] | None = Field(default=None, description="`describe` only: oldest first.")
    unknown_fields: list[str] = Field(description="Fields of the job that this client does not know.")


class WhenReport(Document):
    """`when`."""

    kind: Literal["WhenReport"] = "WhenReport"
    namespace: str = Field(description="The namespace that was asked about.")
    min_pods: int = Field(description="Fewest pods of the job.")
    max_pods: int = Field(description="Most pods of the job.")
    forecast: Forecast = Field(description="What it would get now.")
    queue: QueuePosition | None = Field(default=None, description="Where it would stand in line, if it does not fit.")


class QuotaRow(Model):
    """A policy in one line. Amounts are GPUs."""

    name: str = Field(description="Its name.")
    guaranteed: int = Field(default=0, description="Guaranteed.")
    used: int = Field(default=0, description="In use by its namespaces.")
    borrowed: int = Field(default=0, description="In use beyond the guarantee.")
    lent: int = Field(default=0, description="Of the guarantee, in use by others.")
    limit: int | None = Field(default=None, description="The most it may use; absent: no limit.")
    pending: int = Field(default=0, description="Waited for.")
    ready: str = Field(default="", description="True, False or Unknown; empty where no operator has looked at it.")
    created: Time = Field(description="When it was created.")


class QuotaList(Document):
    """`quota list`."""

    kind: Literal["QuotaList"] = "QuotaList"
    quotas: list[QuotaRow] = Field(description="By name.")


class QuotaReport(Document):
    """`quota describe`."""

    kind: Literal["QuotaReport"] = "QuotaReport"
    quota: QuotaRow = Field(description="The policy in one line.")
    namespaces: list[str] = Field(description="Namespaces that it names.")
    selects: bool = Field(description="Whether it also selects namespaces by their labels.")
    parent: str | None = Field(default=None, description="The policy that it is a part of.")
    flavors: list[FlavorAmounts] = Field(description="By kind of GPU.")
    jobs: JobCounts | None = Field(default=None, description="Jobs of its namespaces.")
    conditions: list[Condition] = Field(description="What the operator says of it.")


class Check(Model):
    """One line of `doctor`."""

    name: str = Field(description="What was checked.")
    ok: bool | None = Field(default=None, description="Absent: unknown, because you may not look.")
    told: str = Field(description="What was found.")
    remedy: str = Field(default="", description="What to do about it.")


class CheckList(Document):
    """`doctor`."""

    kind: Literal["CheckList"] = "CheckList"
    checks: list[Check] = Field(description="In the order in which they were made.")


DOCUMENTS: tuple[type[Document], ...] = (
    JobList,
    JobReport,
    WhenReport,
    EventList,
    QuotaList,
    QuotaReport,
    CheckList,
)


def schema() -> str:
    """The JSON schema of all documents, as `schema.json` holds it."""
    chosen, made = models_json_schema([(document, "serialization") for document in DOCUMENTS], by_alias=True)
    roots = [chosen[document, "serialization"] for document in DOCUMENTS]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA_VERSION}
    return json.dumps({**head, "oneOf": roots, "$defs": made["$defs"]}, indent=2) + "\n"


def table_rows(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cells of a server's table by column, with the row's metadata as `metadata`."""
    names = [re.sub(r"[^a-z]", "", column["name"].lower()) for column in table.get("columnDefinitions") or ()]
    rows = table.get("rows") or ()
    return [{**dict(zip(names, row["cells"], strict=False)), "metadata": row["object"]["metadata"]} for row in rows]


def job_row(cells: Mapping[str, Any]) -> JobRow:
    """A row of the jobs' table. A column that an older release lacks counts as empty."""
    meta = cells["metadata"]
    return JobRow(
        namespace=meta["namespace"],
        name=meta["name"],
        status=cells.get("status") or UNKNOWN,
        pods=cells.get("pods") or 0,
        min_pods=cells.get("min") or 0,
        max_pods=cells.get("max") or 0,
        gpus=cells.get("gpus") or 0,
        limited_by=cells.get("limitedby") or "",
        restarts=cells.get("restarts") or 0,
        progress_percentage=cells.get("progress"),
        eta=cells.get("eta") or None,
        world_size=cells.get("world") or 0,
        step=cells.get("step"),
        loss=cells.get("loss") or None,
        goodput=_number(cells.get("goodput")),
        queue_position=cells.get("queue"),
        estimated_start_time=cells.get("starts") or None,
        created=meta["creationTimestamp"],
    )


def quota_row(cells: Mapping[str, Any]) -> QuotaRow:
    """A row of the policies' table."""
    amounts = {name: cells.get(name) or 0 for name in ("guaranteed", "used", "borrowed", "lent", "pending")}
    meta = cells["metadata"]
    limit, ready = cells.get("limit"), cells.get("ready") or ""
    return QuotaRow(name=meta["name"], **amounts, limit=limit, ready=ready, created=meta["creationTimestamp"])


def status_of(job: Mapping[str, Any]) -> JobStatus:
    """The job's status; invalid parts, which others than the operator wrote, count as absent."""
    from elastic_api.parse import parse_status  # imports the models of pods, for which `list` need not wait

    return parse_status(job)


def job_report(job: Mapping[str, Any], events: list[EventRow] | None = None) -> JobReport:
    """The report from the job's own object."""
    status = status_of(job)
    ready = status.condition(ConditionType.READY)
    generation = job["metadata"].get("generation", 0)
    return JobReport(
        job=_row_of(job, status),
        up_to_date=ready is not None and status.observed_generation >= generation,
        state=ready,
        limit=status.condition(ConditionType.FULL_SIZE),
        warnings=[
            condition
            for condition in status.conditions
            if condition.status == "True" and condition.type not in NOT_WARNINGS
        ],
        retry=status.retry,
        failed_size=status.failed_size,
        held_until=status.held_until,
        avoided_nodes=status.avoided_nodes,
        training=status.training,
        queue=status.queue,
        forecast=status.forecast,
        history=status.history,
        last_failure=status.last_failure,
        pods=status.pods,
        pods_not_listed=status.pods_not_listed,
        code=(job["metadata"].get("annotations") or {}).get(CODE_ANNOTATION),
        events=events,
        unknown_fields=_unknown_fields(job),
    )


def when_report(job: Mapping[str, Any]) -> WhenReport | None:
    """The operator's answer to a job that asks; None while its present spec has none."""
    status, spec, meta = status_of(job), job["spec"], job["metadata"]
    if status.forecast is None or status.forecast.observed_generation != meta.get("generation", 0):
        return None
    return WhenReport(
        namespace=meta["namespace"],
        min_pods=spec["minReplicas"],
        max_pods=spec["maxReplicas"],
        forecast=status.forecast,
        queue=status.queue,
    )


def quota_report(policy: Mapping[str, Any]) -> QuotaReport:
    """The report from the policy's own object."""
    spec, meta = policy.get("spec") or {}, policy["metadata"]
    status = PolicyStatus.model_validate(policy.get("status") or {})
    total = status.total.model_dump() if status.total else {}
    ready = next((condition.status for condition in status.conditions if condition.type == "Ready"), "")
    return QuotaReport(
        quota=QuotaRow(name=meta["name"], created=meta["creationTimestamp"], ready=ready, **total),
        namespaces=spec.get("namespaces") or [],
        selects=spec.get("namespaceSelector") is not None,
        parent=spec.get("parent"),
        flavors=status.flavors,
        jobs=status.jobs,
        conditions=status.conditions,
    )


def event_row(event: Mapping[str, Any]) -> EventRow:
    """An event of the core API, written through either of the two APIs."""
    about, series = event.get("involvedObject") or {}, event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    kind = about.get("kind", "")
    return EventRow(
        time=last or event.get("firstTimestamp") or event["metadata"]["creationTimestamp"],
        type=event.get("type") or "Normal",
        reason=event.get("reason") or "",
        object=about.get("name", "") if kind == "Pod" else "job",
        message=event.get("message") or "",
        count=series.get("count") or event.get("count") or 1,
    )


def _row_of(job: Mapping[str, Any], status: JobStatus) -> JobRow:
    meta, spec = job["metadata"], job.get("spec") or {}
    ready, limit = status.condition(ConditionType.READY), status.condition(ConditionType.FULL_SIZE)
    training = status.training or Training()
    return JobRow(
        namespace=meta["namespace"],
        name=meta["name"],
        status=ready.reason if ready else UNKNOWN,
        pods=status.replicas,
        min_pods=spec.get("minReplicas", 0),
        max_pods=spec.get("maxReplicas", 0),
        gpus=status.gpus,
        limited_by=limit.reason if limit else "",
        restarts=status.restarts,
        progress_percentage=training.progress_percentage,
        eta=training.eta,
        world_size=status.world_size,
        step=training.step,
        loss=next((metric.value for metric in training.metrics if metric.name == "loss"), None),
        goodput=training.goodput,
        queue_position=status.queue.position if status.queue else None,
        estimated_start_time=status.queue.estimated_start_time if status.queue else None,
        created=meta["creationTimestamp"],
    )


def _unknown_fields(job: Mapping[str, Any]) -> list[str]:
    """Fields that are newer than this client: in the status' first level, and in the spec outside pods."""
    names = {field.alias for field in JobStatus.model_fields.values()}
    in_status = [f"status.{name}" for name in job.get("status") or {} if name not in names]
    try:
        JobSpec.model_validate(job.get("spec") or {})
    except ValidationError as error:
        extra = [part["loc"] for part in error.errors(include_url=False) if part["type"] == "extra_forbidden"]
        return [*(FieldError(("spec", *path), "").field for path in extra), *in_status]
    return in_status


def _number(cell: Any) -> float | None:
    return None if cell in (None, "") else float(cell)
