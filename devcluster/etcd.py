"""What is done to etcd itself, by the JSON it speaks beside gRPC: its history is taken away."""

from __future__ import annotations

import json
import sys
from typing import Any

from devcluster import control_plane, network
from devcluster.names import Layout

_POST = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], sys.argv[2].encode(), 30).read().decode())"
_ANY_KEY = "AA=="


def compact(layout: Layout) -> int:
    """Forget all that was before now, as the API server has it done every five minutes; returns the revision of now.

    Until it is started again the API server still knows the latest changes. Then whoever watches from before is told
    `410 Gone`.
    """
    revision = _ask(layout, "range", {"key": _ANY_KEY})["header"]["revision"]
    _ask(layout, "compaction", {"revision": revision, "physical": True})
    return int(revision)


def _ask(layout: Layout, method: str, body: dict[str, Any]) -> Any:
    anchor, url = network.anchor(layout, network.CONTROL_PLANE), f"{control_plane.ETCD_URL}/v3/kv/{method}"
    return json.loads(network.inside(anchor, sys.executable, "-c", _POST, url, json.dumps(body)))
