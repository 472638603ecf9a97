"""Enforces the cluster's network policies on one node: watches policies, pods and namespaces, and updates nft's rules.

It runs inside a node as `python -m devcluster.policy_agent`. When it ends, its rules stay until the end of the node's
network. A pod is not restricted between its first packet and the moment when its address is in the API.
"""

from __future__ import annotations

import argparse
import subprocess
import threading
import time
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from devcluster.api import Api
from devcluster.networkpolicies import ruleset

PODS = "/api/v1/pods"
NAMESPACES = "/api/v1/namespaces"
POLICIES = "/apis/networking.k8s.io/v1/networkpolicies"
# The interval between lists. A new list also ends a watch whose server has vanished.
WATCH_SECONDS = 20
RETRY_SECONDS = 0.2
# Changes come in bursts.
GATHER_SECONDS = 0.05


@dataclass(slots=True)
class Mirror:
    """The present objects of one kind; None before the first list."""

    api: Api
    path: str
    changed: threading.Event
    items: dict[str, Any] | None = field(default=None)

    def follow(self) -> None:
        """List and watch for ever, whatever errors the API server returns."""
        while True:
            try:
                self._list_and_watch()
            except (OSError, HTTPException, ValueError) as error:
                print(f"{self.path} cannot be watched error={error!r}", flush=True)
                time.sleep(RETRY_SECONDS)

    def _list_and_watch(self) -> None:
        listed = self.api.get(self.path)
        self._set({item["metadata"]["uid"]: item for item in listed["items"]})
        version = listed["metadata"]["resourceVersion"]
        for event in self.api.watch(self.path, resource_version=version, seconds=WATCH_SECONDS):
            if event["type"] == "ERROR":
                return
            changed = {**(self.items or {}), event["object"]["metadata"]["uid"]: event["object"]}
            if event["type"] == "DELETED":
                del changed[event["object"]["metadata"]["uid"]]
            self._set(changed)

    def _set(self, items: dict[str, Any]) -> None:
        """Make a new dictionary each time, so that a reader always sees a complete one."""
        self.items = items
        self.changed.set()


def enforce(api: Api, node: str) -> None:
    """Watch all kinds and apply the changes, until killed."""
    changed = threading.Event()
    pods, namespaces, policies = mirrors = [Mirror(api, path, changed) for path in (PODS, NAMESPACES, POLICIES)]
    for mirror in mirrors:
        threading.Thread(target=mirror.follow, daemon=True).start()
    applied = ""
    while changed.wait():
        time.sleep(GATHER_SECONDS)
        changed.clear()
        if pods.items is None or namespaces.items is None or policies.items is None:
            continue
        found = [list(each.values()) for each in (pods.items, namespaces.items, policies.items)]
        wanted = ruleset(node, pods=found[0], namespaces=found[1], policies=found[2])
        if wanted != applied and _apply(wanted):
            applied = wanted
            print(f"applied policies={len(found[2])} chains={wanted.count('chain ')}", flush=True)


def _apply(rules: str) -> bool:
    done = subprocess.run(["nft", "-f", "-"], input=rules, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"nft refuses error={done.stderr!r} rules={rules!r}", flush=True)
    return done.returncode == 0


def main() -> None:
    """Enforce until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node", required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--pki", type=Path, required=True)
    options = parser.parse_args()
    enforce(Api.of(options.server, pki_folder=options.pki), options.node)


if __name__ == "__main__":
    main()
