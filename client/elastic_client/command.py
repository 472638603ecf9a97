"""What all commands have in common: the flags that name a cluster, the forms of output, and how a command is run.

The flags may stand before a command and after it, as kubectl's may.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from elastic_client.cluster import Cluster, Place, connected
from elastic_client.exits import Code

P = ParamSpec("P")

Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Namespace. Default: the context's.")]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig. Default: the current one.")]
Kubeconfig = Annotated[str | None, typer.Option("--kubeconfig", help="Path of the kubeconfig. Default: $KUBECONFIG.")]
PLACE = {"namespace": Namespace, "context": Context, "kubeconfig": Kubeconfig}


class Format(StrEnum):
    """Forms of output."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


Output = Annotated[Format, typer.Option("-o", "--output", help="Form of the output.")]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")]


_place: ContextVar[Place] = ContextVar("place")


def remember_place(namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Flags that stand before the command."""
    _place.set(Place(namespace, context, kubeconfig))


def placed(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the flags that name a cluster, beside its own."""
    own = inspect.signature(command, eval_str=True)
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own.parameters.values()]
    further = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in PLACE.items()
    ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        given = {name: value for name in PLACE if (value := values.pop(name)) is not None}
        _place.set(replace(_place.get(), **given))
        command(**values)

    run.__signature__ = inspect.Signature([*parameters, *further])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*parameters, *further]}
    return run


def on_cluster(command: Callable[Concatenate[Cluster, P], Awaitable[Code | None]]) -> Callable[..., None]:
    """A command for typer from a coroutine that wants a cluster: it gets the flags that name one.

    What the coroutine returns is the exit code; None is 0.
    """
    cluster, *own = inspect.signature(command, eval_str=True).parameters.values()
    assert cluster.annotation is Cluster, cluster

    @functools.wraps(command)
    def run(**values: Any) -> None:
        with_cluster(functools.partial(command, **values))

    run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return placed(run)


def with_cluster(work: Callable[[Cluster], Awaitable[Code | None]]) -> None:
    """Runs a coroutine on the cluster that the flags name. Raises typer.Exit with the code that it returns."""

    async def connect_and_run() -> Code | None:
        async with connected(_place.get()) as cluster:
            return await work(cluster)

    if code := asyncio.run(connect_and_run()):
        raise typer.Exit(code)
