"""Where the pods of a local job live: all on loopback, or each in a network of its own that can be cut off."""

import itertools
import json
import os
import subprocess


class Loopback:
    """All pods share one address; nothing can be cut."""

    service, interface = "127.0.0.1", "lo"

    def add(self, uid, *, is_master):
        """The address of a new pod."""
        return "127.0.0.1"

    def inside(self, uid):
        """What runs a command where the pod is."""
        return []

    def close(self):
        """Nothing is left of it."""


class Bridge:
    """Each pod has a network namespace on a bridge; `service` is an address that leads to the newest master."""

    interface = "eth0"
    _numbers = itertools.count()

    def __init__(self):
        self.name = f"tj{os.getpid() % 100_000}-{next(self._numbers)}"
        self._net = f"10.{200 + os.getpid() % 50}.{next(self._numbers) % 250}"
        self.service = f"{self._net}.254"
        self._places, self._master = {}, None
        _ip("link", "add", self.name, "type", "bridge")
        _ip("address", "add", f"{self._net}.1/24", "dev", self.name)
        _ip("link", "set", self.name, "up")

    def add(self, uid, *, is_master):
        """The address of a new pod; a master's takes the service over from the one before."""
        number = len(self._places) + 2
        place = self._places[uid] = f"{self.name}-{number}"
        _ip("netns", "add", place)
        _ip("link", "add", place, "type", "veth", "peer", "name", self.interface, "netns", place)
        _ip("link", "set", place, "master", self.name, "up")
        _ip("-n", place, "link", "set", "lo", "up")
        _ip("-n", place, "link", "set", self.interface, "up")
        _ip("-n", place, "address", "add", f"{self._net}.{number}/24", "dev", self.interface)
        if is_master:
            self._move_service(uid)
        return f"{self._net}.{number}"

    def inside(self, uid):
        """What runs a command where the pod is."""
        return ["ip", "netns", "exec", self._places[uid]]

    def cut(self, uid):
        """Nothing reaches the pod any more and nothing leaves it; nobody is told."""
        _run("bridge", "link", "set", "dev", self._places[uid], "state", "0")

    def heal(self, uid):
        """Undo `cut`."""
        _run("bridge", "link", "set", "dev", self._places[uid], "state", "3")

    def connections(self):
        """Connections and listeners that are left in any pod."""
        left = {}
        for uid, place in self._places.items():
            found = _run("ip", "netns", "exec", place, "ss", "-Htan", "state", "connected", "state", "listening")
            left[uid] = [line for line in found.splitlines() if "TIME-WAIT" not in line]
        return {uid: lines for uid, lines in left.items() if lines}

    def close(self):
        """Remove everything."""
        for place in self._places.values():
            _ip("netns", "delete", place)
        _ip("link", "delete", self.name)

    def _move_service(self, uid):
        """As kube-proxy does: from now on the address leads to this pod, for everybody."""
        address = f"{self.service}/32"
        if self._master is not None:
            _ip("-n", self._places[self._master], "address", "delete", address, "dev", self.interface)
        _ip("-n", self._places[uid], "address", "add", address, "dev", self.interface)
        self._master = uid
        _ip("neighbour", "flush", "dev", self.name)
        for place in self._places.values():
            _ip("-n", place, "neighbour", "flush", "dev", self.interface)


def leftovers(name):
    """Namespaces and links whose names begin so."""
    links = json.loads(_run("ip", "-json", "link", "show"))
    spaces = json.loads(_run("ip", "-json", "netns", "list") or "[]")
    return [
        thing for thing in [*(li["ifname"] for li in links), *(ns["name"] for ns in spaces)] if thing.startswith(name)
    ]


def _ip(*words):
    return _run("ip", *words)


def _run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
