"""Creates the job that `convert` has made from the flags of `run` or `submit-dist`; reads jobs for `export`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from elastic_client import screen
from elastic_client.cluster import Cluster
from elastic_client.code import ship
from elastic_client.command import result_of
from elastic_client.commands.logs import follow_logs
from elastic_client.commands.wait import await_end
from elastic_client.commands.when import ask
from elastic_client.exits import ClientError, Code
from elastic_client.jobs import find_job

if TYPE_CHECKING:
    from elastic_client.convert.commands import After
    from elastic_client.convert.converted import Converted

NEXT = ("why {}", "logs -f {}", "wait {}")


def submit(made: Converted, after: After) -> None:
    """Create the job and do the following steps, or only ask about it. Raises typer.Exit with the code of a wait."""
    namespace = made.manifest["metadata"].get("namespace")
    if after.when:
        ask(made.manifest)
        return
    work = functools.partial(create, made=made, wait=after.wait, logs=after.logs)
    if code := result_of(work, namespace=namespace):
        raise typer.Exit(code)


def read_job(name: str) -> Mapping[str, Any]:
    """The job of that name. Raises ClientError, NOT_FOUND if it does not exist."""
    return result_of(functools.partial(find_job, name=name))


async def create(cluster: Cluster, *, made: Converted, wait: bool, logs: bool) -> Code:
    """Create the job. Raises ClientError, REFUSED if a field is wrong or the name is in use."""
    try:
        job = await ship.create(cluster, made.manifest, made.code)
    except ClientError as error:
        if "already exists" not in str(error):
            raise
        name = made.manifest["metadata"]["name"]
        message = f"{error}: choose another --name, or begin with {cluster.command(f'delete {name}')}"
        raise ClientError(error.code, message) from None
    name = job["metadata"]["name"]
    screen.console().print(f"job {name} is created in namespace {cluster.namespace}", soft_wrap=True)
    if logs:
        await follow_logs(cluster, job)
    if wait:
        return await await_end(cluster, name, None, uid=job["metadata"]["uid"])
    if not logs:
        screen.note("next: " + ", ".join(cluster.command(words.format(name)) for words in NEXT))
    return Code.DONE
