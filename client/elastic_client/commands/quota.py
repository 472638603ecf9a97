"""`quota list` and `quota describe`: the GPUs that teams are guaranteed, use, borrow and lend."""

from __future__ import annotations

from typing import Annotated

import typer

from elastic_api.policy import COLLECTION
from elastic_client import screen
from elastic_client.cluster import TABLE, Cluster, Object
from elastic_client.command import Output
from elastic_client.documents import QuotaList, quota_report, quota_row, table_rows
from elastic_client.exits import ClientError, Code
from elastic_client.jobs import check_name
from elastic_client.screen import Format, printed
from elastic_client.words import near, now

PolicyName = Annotated[str, typer.Argument(metavar="POLICY", help="Name of the GPUQuotaPolicy.")]


async def find_policy(cluster: Cluster, policy: str) -> Object:
    """The policy of that name. Raises ClientError, NOT_FOUND with near names."""
    check_name(policy, kind="policy", example="team-a")
    try:
        return await cluster.get(f"{COLLECTION}/{policy}")
    except ClientError as error:
        if error.code != Code.NOT_FOUND:
            raise
    names = [quota.name for quota in (await _all(cluster)).quotas]
    hint = near(policy, names, lead="it has: ") or "it has no policies"
    raise ClientError(Code.NOT_FOUND, f"policy {policy!r}: the cluster has none of that name; {hint}")


async def list_quotas(cluster: Cluster, *, output: Output = Format.TABLE) -> None:
    """List quotas: GPUs that are guaranteed, used, borrowed, lent."""
    found = await _all(cluster)
    if printed(found, output):
        return
    if not found.quotas:
        screen.note("no quotas: every namespace may use what is idle")
        return
    at = now()
    rows = [screen.quota_cells(quota, at) for quota in found.quotas]
    screen.print_grid(screen.console(), screen.QUOTA_COLUMNS, rows)


async def describe_quota(cluster: Cluster, policy: PolicyName, *, output: Output = Format.TABLE) -> None:
    """Show a quota by kind of GPU, and what the operator says of it."""
    report = quota_report(await find_policy(cluster, policy))
    if not printed(report, output):
        screen.print_quota(screen.console(), report, now())


async def _all(cluster: Cluster) -> QuotaList:
    table = await cluster.get(COLLECTION, accept=TABLE)
    return QuotaList(quotas=sorted(map(quota_row, table_rows(table)), key=lambda quota: quota.name))
