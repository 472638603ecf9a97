"""The snapshot in docs/: two teams on four GPUs, one of which wants its own back.

`make golden` renews the file.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from elastic_operator.tools import snapshot_file
from elastic_operator.tools.cluster_snapshot import ClusterSnapshot
from tests.api.policies import make_flavor
from tests.plan.allocate.world import make_job, make_node
from tests.plan.policies.builders import labelled, make_policy
from tests.tools.snapshots import at_rest, make_cluster_snapshot, recorded

FILE = Path(__file__).parents[2] / "docs" / "cluster.json"
NOON, HOUR = 1_800_014_400.0, 3600.0


def two_teams() -> ClusterSnapshot:
    """Vision has grown into all four GPUs; a job of language waits for the two that its team is guaranteed."""
    language = {"guaranteed": 2, "borrowing": {"weight": 3}}
    policies = (
        make_policy("research", flavors=[make_flavor(guaranteed=4)]),
        _of_research("vision", guaranteed=2, borrowing={"limit": 2}),
        _of_research("language", **language),
    )
    resnet = make_job("resnet", 2, 4, team="vision", on="node-1 node-2 node-3 node-4")
    bert = make_job("bert", 2, 4, team="language")
    before = make_cluster_snapshot(
        [make_node(f"node-{n}", 1) for n in range(1, 5)],
        [recorded(replace(resnet, created=NOON - HOUR))],
        now=NOON,
        policies=policies,
        namespaces=(labelled("language", team="language"), labelled("vision", team="vision")),
    )
    return replace(at_rest(before), jobs=(*at_rest(before).jobs, recorded(replace(bert, created=NOON))))


def _of_research(name: str, **quota: object) -> object:
    return make_policy(name, parent="research", namespaces=[name], flavors=[make_flavor(**quota)])


def text() -> str:
    """The file's content."""
    return snapshot_file.encode(two_teams())


if __name__ == "__main__":
    FILE.write_text(text())
