"""What all commands have in common: the flags that name a cluster, the forms of output, and how a command is run.

The flags may stand before a command and after it, as kubectl's may.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Concatenate, ParamSpec, get_type_hints

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


def remember_place(
    context: typer.Context, namespace: Namespace = None, context_name: Context = None, kubeconfig: Kubeconfig = None
) -> None:
    """Flags that stand before the command."""
    context.obj = Place(namespace, context_name, kubeconfig)


def on_cluster(command: Callable[Concatenate[Cluster, P], Awaitable[Code | None]]) -> Callable[..., None]:
    """A command for typer from a coroutine that wants a cluster: it gets the flags that name one.

    What the coroutine returns is the exit code; None is 0.
    """
    inner = inspect.signature(command, eval_str=True)
    (_, *own) = inner.parameters.values()
    further = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in PLACE.items()
    ]
    asked = inspect.Parameter("typer_context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

    def run(*, typer_context: typer.Context, **values: Any) -> None:
        given = {name: value for name in PLACE if (value := values.pop(name)) is not None}
        place = replace(typer_context.obj or Place(), **given)
        if code := asyncio.run(_run(connected(place), command, values)):
            raise typer.Exit(code)

    as_keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    run.__signature__ = inspect.Signature([*as_keywords, asked, *further])  # type: ignore[attr-defined]
    hints = get_type_hints(command, include_extras=True)
    run.__annotations__ = {parameter.name: hints[parameter.name] for parameter in own}
    run.__annotations__ |= PLACE | {"typer_context": typer.Context}
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    return run


async def _run(
    connection: AbstractAsyncContextManager[Cluster],
    command: Callable[..., Awaitable[Code | None]],
    values: dict[str, Any],
) -> Code | None:
    async with connection as cluster:
        return await command(cluster, **values)
