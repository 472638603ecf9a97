"""Pods that listen and pods that try to connect, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from devcluster.images import BASE_REF
from tests.cluster.lab import Object, Team

PORTS = (7001, 7002)
OPEN, REFUSED, BLOCKED = "open", "refused", "blocked"
"""Refused: it came through, and nobody listens there. Blocked: nothing came back."""
ANSWER_SECONDS = 1.5
"""A kernel answers at once, also on a busy machine; in so long a lost first packet is sent again."""

LISTEN = f"""
import selectors, socket
waiting = selectors.DefaultSelector()
for port in {PORTS}:
    waiting.register(socket.create_server(("", port)), selectors.EVENT_READ)
while True:
    for key, _ in waiting.select():
        key.fileobj.accept()[0].close()
"""

TRY = f"""
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def outcome(place):
    try:
        socket.create_connection(tuple(place), timeout={ANSWER_SECONDS}).close()
    except ConnectionRefusedError:
        return "{REFUSED}"
    except OSError:
        return "{BLOCKED}"
    return "{OPEN}"
places = json.loads(sys.argv[1])
print(json.dumps(list(ThreadPoolExecutor(len(places)).map(outcome, places))))
"""


LISTENING = """
import json, pathlib
files = [pathlib.Path("/proc/net/tcp"), pathlib.Path("/proc/net/tcp6")]
lines = [line.split() for file in files if file.exists() for line in file.read_text().splitlines()[1:]]
print(json.dumps([words[1] for words in lines if words[3] == "0A"]))
"""
"""What /proc/net/tcp calls the places, ADDRESS:PORT in hexadecimal, where somebody listens."""
LOOPBACK = ("0100007F", "00000000000000000000000001000000")


def prober(name: str, *, node: str) -> Object:
    """A pod on a node that listens on PORTS, named p7001 and so on, and from which `attempts` can be made."""
    ports = [{"name": f"p{port}", "containerPort": port} for port in PORTS]
    command = ["python3", "-c", LISTEN]
    main = {"name": "main", "image": BASE_REF, "imagePullPolicy": "Never", "command": command, "ports": ports}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"prober": name}},
        "spec": {"terminationGracePeriodSeconds": 0, "nodeName": node, "containers": [main]},
    }


def address(team: Team, pod: str) -> str:
    """The pod's address, once it has one and is ready."""

    def found() -> str:
        status = pod_object(team, pod)["status"]
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", []))
        return str(status["podIP"]) if ready else ""

    return team.wait(f"{pod} to be ready", found)


def pod_object(team: Team, pod: str) -> Object:
    """The pod as the API has it."""
    found: Object = team.lab.get(f"/api/v1/namespaces/{team.name}/pods/{pod}")
    return found


def restarts(team: Team, pod: str) -> int:
    """How often its container was started again; 0 while it does not run."""
    main = pod_object(team, pod)["status"]["containerStatuses"][0]
    return int(main["restartCount"]) if main["ready"] else 0


def attempts(team: Team, pod: str, places: Iterable[tuple[str, int]]) -> list[str]:
    """What comes of connecting from the pod to each address and port: OPEN, REFUSED or BLOCKED."""
    told = team.kubectl("exec", pod, "--", "python3", "-c", TRY, json.dumps(list(places)))
    outcomes: list[str] = json.loads(told)
    return outcomes


def attempts_of(pods: Iterable[tuple[Team, str]], places: Iterable[tuple[str, int]]) -> list[list[str]]:
    """The same of several pods at once."""
    wanted = list(places)
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda each: attempts(*each, wanted), pods))


def listening(team: Team, pod: str) -> list[tuple[str, int]]:
    """The pod's address with each port at which something in it listens for others than itself."""
    places: list[str] = json.loads(team.kubectl("exec", pod, "--", "python3", "-c", LISTENING))
    ports = {int(port, 16) for own, port in (place.split(":") for place in places) if own not in LOOPBACK}
    ip = address(team, pod)
    return [(ip, port) for port in sorted(ports)]


def policy(name: str, *, selects: Object | None = None, **rules: list[Object]) -> Object:
    """A NetworkPolicy for the pods that the selector `selects` (all by default); `rules` are ingress and egress."""
    types = [kind.title() for kind in rules]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": {"podSelector": selects or {}, "policyTypes": types, **rules},
    }
