"""The snapshot in docs/: two teams on four GPUs, one of which wants its own back.

`make golden` renews the file.
"""

from __future__ import annotations

from pathlib import Path

from elastic_operator.plan.facts.snapshot import Snapshot
from elastic_operator.tools import snapshot_file
from tests.plan.allocate.world import make_job, make_node, make_snapshot, make_team

FILE = Path(__file__).parents[2] / "docs" / "cluster.json"


def two_teams() -> Snapshot:
    """Vision has grown into all four GPUs; a job of language waits for the two that its team is guaranteed."""
    teams = (
        make_team("research", 4),
        make_team("vision", 2, borrow=2, parent="research"),
        make_team("language", 2, weight=3, parent="research"),
    )
    jobs = (
        make_job("resnet", 2, 4, team="vision", on="node-1 node-2 node-3 node-4", age=3600),
        make_job("bert", 2, 4, team="language"),
    )
    return make_snapshot([make_node(f"node-{n}", 1) for n in range(1, 5)], jobs, teams=teams)


def text() -> str:
    """The file's content."""
    return snapshot_file.encode(two_teams())


if __name__ == "__main__":
    FILE.write_text(text())
