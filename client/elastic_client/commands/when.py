"""`when`: asks the operator's planner what a job would get now, and when it would start.

It creates a suspended job with an annotation (`elastic_api.what_if`), waits for the answer in its status, and deletes
the job. No pod is created. If the client is killed before it can delete the job, the operator deletes it.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Annotated, Any

import typer

from elastic_api.job import API_VERSION, KIND
from elastic_api.status import ConditionType, Phase
from elastic_api.what_if import ANNOTATION_WHAT_IF, ONCE
from elastic_client import screen
from elastic_client.cluster import Cluster, Object
from elastic_client.command import Output, result_of
from elastic_client.commands.wait import duration, states
from elastic_client.convert.commands import (
    Claims,
    Cpu,
    Gpus,
    MaxReplicas,
    Memory,
    MinReplicas,
    PriorityClass,
    Workers,
    manifest_of,
    one_line,
)
from elastic_client.documents import WhenReport, status_of, when_report
from elastic_client.exits import ClientError, Code
from elastic_client.jobs import jobs_path
from elastic_client.screen import Format, printed
from elastic_client.words import now

NAME_BYTES = 4
ANSWER_SECONDS = 30.0
"""The default time limit for the operator's answer."""
NO_IMAGE = "not-asked-about"
"""The image of a job that only asks."""


async def when(cluster: Cluster, *, manifest: Mapping[str, Any], seconds: float, output: Format) -> Code:
    """Ask about the job of that manifest, and print the answer. Raises ClientError, TIMED_OUT without one."""
    report = await asked(cluster, manifest, seconds=seconds)
    if not printed(report, output):
        screen.print_when(screen.console(), report, now())
    return Code.DONE


async def asked(cluster: Cluster, manifest: Mapping[str, Any], *, seconds: float) -> WhenReport:
    """The operator's answer. Raises ClientError: TIMED_OUT without an answer, REFUSED for a wrong field."""
    body: Object = {}
    async with _made(cluster, question(manifest)) as job:
        with suppress(TimeoutError):
            made = job["metadata"]
            changes = states(cluster, made["name"], uid=made["uid"])
            async with asyncio.timeout(seconds), aclosing(changes) as bodies:
                async for body in bodies:
                    _refuse_if_invalid(body)
                    if (report := when_report(body)) is not None:
                        return report
    raise ClientError(Code.TIMED_OUT, _no_answer(cluster, body, seconds))


def question(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The job that asks: the one of the manifest, but suspended and with a new name."""
    metadata = manifest.get("metadata") or {}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": f"when-{secrets.token_hex(NAME_BYTES)}",
            "labels": dict(metadata.get("labels") or {}),
            "annotations": {**(metadata.get("annotations") or {}), ANNOTATION_WHAT_IF: ONCE},
        },
        "spec": {**manifest["spec"], "suspend": True},
    }


@asynccontextmanager
async def _made(cluster: Cluster, body: Mapping[str, Any]) -> AsyncIterator[Object]:
    """The job that asks, deleted at the end of the context, also at Ctrl-C before its creation was answered."""
    path = jobs_path(cluster.namespace)
    job: Object | None = None
    may_be_there = True
    try:
        job = await cluster.post(path, body, fieldValidation="Strict")
        yield job
    except ClientError as error:
        may_be_there = job is not None or error.code == Code.UNREACHABLE
        raise
    finally:
        if may_be_there:
            only = {"uid": job["metadata"]["uid"]} if job is not None else None
            with suppress(ClientError):  # the answer counts more; the operator deletes a remaining job
                await cluster.delete(f"{path}/{body['metadata']['name']}", preconditions=only)


def _refuse_if_invalid(job: Object) -> None:
    """Raise ClientError, REFUSED for a job that the API server accepts and the operator does not."""
    ready = status_of(job).condition(ConditionType.READY)
    if ready is not None and ready.reason == Phase.INVALID_SPEC:
        raise ClientError(Code.REFUSED, ready.message)


def _no_answer(cluster: Cluster, body: Object, seconds: float) -> str:
    """Why there is no answer, if that can be known."""
    message = f"no answer within {seconds:g} s"
    if not body or not status_of(body).conditions:
        return f"{message}: no operator looks at jobs here: see {cluster.command('doctor')}"
    return (
        f"{message}: the operator looks at jobs, but does not answer: it is of an older release (see"
        f" {cluster.command('doctor')}), or has many such questions: try again, or wait for longer by --timeout"
    )


# -- the command line -----------------------------------------------------------------------------------------------


def ask(manifest: Mapping[str, Any], *, timeout: float | None = None, output: Format = Format.TABLE) -> None:
    """Ask about the job of the manifest, and print the answer."""
    seconds = ANSWER_SECONDS if timeout is None else timeout
    work = functools.partial(when, manifest=manifest, seconds=seconds, output=output)
    result_of(work, namespace=manifest["metadata"].get("namespace"))


def add_when(app: typer.Typer) -> None:
    """Add `when` to an app."""

    @app.command("when")
    def run(
        context: typer.Context,
        workers: Workers = "",
        gpus: Gpus = "",
        image: Annotated[str, typer.Option("--image", "-i", help="Not needed: the command creates no pod.")] = "",
        min_replicas: MinReplicas = None,
        max_replicas: MaxReplicas = None,
        cpu: Cpu = "",
        memory: Memory = "",
        pvc: Claims = None,
        priority_class: PriorityClass = "",
        filename: Annotated[
            str,
            typer.Option("--filename", "-f", metavar="FILE", help="Instead of flags: a manifest; - is standard input."),
        ] = "",
        timeout: Annotated[
            float | None,
            typer.Option(
                "--timeout", parser=duration, metavar="TIME", help="The longest wait: 90, 90s, 10m. Default: 30s."
            ),
        ] = None,
        output: Output = Format.TABLE,
    ) -> None:
        """Say when a job would start and what it would get: when --workers 2:8 -g 1"""
        with one_line():
            if filename:
                manifest = manifest_of(filename)
                _refuse_flags_beside_a_file(context)
            else:
                manifest = _asked(
                    image=image,
                    workers=workers,
                    min_replicas=min_replicas,
                    max_replicas=max_replicas,
                    gpus=gpus,
                    cpu=cpu,
                    memory=memory,
                    pvc=pvc or (),
                    priority_class=priority_class,
                )
        ask(manifest, timeout=timeout, output=output)


def _asked(**flags: Any) -> Mapping[str, Any]:
    """The job of these flags; its command does not matter. Raises ConvertError."""
    from elastic_client.convert.run import RunFlags, from_flags

    image = flags.pop("image") or NO_IMAGE
    return from_flags(RunFlags(image=image, command=["train.py"], **flags)).manifest


def _refuse_flags_beside_a_file(context: typer.Context) -> None:
    """Refuse flags that describe a job if a file does. Raises ConvertError."""
    from elastic_client.convert.converted import ConvertError

    mine = {"filename", "timeout", "output"}
    given = [
        name for name, value in context.params.items() if value and name not in mine and not name.startswith("in_")
    ]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise ConvertError(f"{flag}: stands in the manifest of -f: write it there, or leave -f out")
