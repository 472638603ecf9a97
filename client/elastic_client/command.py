"""The common part of all commands: the flags that name a cluster, the forms of output, and how a command is run.

The flags may be before a command and after it, as with kubectl.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer

from elastic_client import stops
from elastic_client.cluster import Cluster, Place, connected
from elastic_client.exits import ClientError, Code
from elastic_client.jobs import all_jobs, check_name
from elastic_client.release import own_version
from elastic_client.screen import Format

P = ParamSpec("P")
T = TypeVar("T")

COMPLETION_SECONDS = 3
"""The time limit for the API server's answer, while the user waits for a completion."""

Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Namespace. Default: the context's.")]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig. Default: the current one.")]
Kubeconfig = Annotated[str | None, typer.Option("--kubeconfig", help="Path of the kubeconfig. Default: $KUBECONFIG.")]
PLACE = {"in_namespace": Namespace, "in_context": Context, "in_kubeconfig": Kubeconfig}
"""Parameters that no command has by itself."""


Output = Annotated[Format, typer.Option("-o", "--output", help="Form of the output.")]


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """Jobs whose names begin with this text, for the shell's completion; none if they cannot be listed quickly."""
    typed = {**(context.parent.params if context.parent else {}), **context.params}
    given = {name: typed.get(name) or typed.get(f"in_{name}") for name in ("namespace", "context", "kubeconfig")}

    async def names() -> list[str]:
        async with asyncio.timeout(COMPLETION_SECONDS), connected(Place(**given)) as cluster:
            return [job.name for job in (await all_jobs(cluster, cluster.namespace)).jobs]

    try:
        return [name for name in asyncio.run(names()) if name.startswith(incomplete)]
    except (ClientError, TimeoutError):
        return []


JobName = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.", autocompletion=job_names)]
JobNames = Annotated[list[str], typer.Argument(metavar="JOB...", help="Names of jobs.", autocompletion=job_names)]


_place: ContextVar[Place] = ContextVar("place")


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"elastic {own_version()}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Print this client's version and exit.")
]


def remember_place(
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    version: Version = False,  # noqa: ARG001 - its callback has answered
) -> None:
    """Remember the flags before the command."""
    _place.set(Place(namespace, context, kubeconfig))


def placed(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its own flags and those that name a cluster."""
    own = inspect.signature(command, eval_str=True)
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own.parameters.values()]
    further = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in PLACE.items()
    ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        given = {name.removeprefix("in_"): value for name in PLACE if (value := values.pop(name)) is not None}
        _place.set(replace(_place.get(), **given))
        command(**values)

    run.__signature__ = inspect.Signature([*parameters, *further])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*parameters, *further]}
    return run


def all_placed(app: typer.Typer) -> typer.Typer:
    """The app whose commands all have the flags that name a cluster."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = placed(command.callback)
    return app


def on_cluster(command: Callable[Concatenate[Cluster, P], Awaitable[Code | None]]) -> Callable[..., None]:
    """A command for typer from a coroutine that needs a cluster, with the flags that name one.

    The coroutine returns the exit code; None is 0.
    """
    cluster, *own = inspect.signature(command, eval_str=True).parameters.values()
    assert cluster.annotation is Cluster, cluster

    @functools.wraps(command)
    def run(**values: Any) -> None:
        _check_names(values)
        with_cluster(functools.partial(command, **values))

    run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return placed(run)


def _check_names(values: Mapping[str, Any]) -> None:
    """Raise ClientError, USAGE for an invalid name, before any login."""
    for job in [values["job"]] if "job" in values else values.get("jobs", ()):
        check_name(job)
    if "policy" in values:
        check_name(values["policy"], kind="policy", example="team-a")


def with_cluster(work: Callable[[Cluster], Awaitable[Code | None]]) -> None:
    """Run a coroutine on the cluster that the flags name. Raises typer.Exit with the code that it returns."""
    if code := result_of(work):
        raise typer.Exit(code)


def result_of(work: Callable[[Cluster], Awaitable[T]], *, namespace: str | None = None) -> T:
    """The result of a coroutine on the cluster. It works in `namespace` if no flag names another one."""

    async def connect_and_work() -> T:
        place = _place.get()
        async with connected(replace(place, namespace=place.namespace or namespace)) as cluster:
            return await work(cluster)

    return stops.run(connect_and_work())
