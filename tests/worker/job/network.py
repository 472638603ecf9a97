"""A network for the pods of one local job: each has a network namespace of its own, and can be cut off from the others.

The namespaces hang on a bridge in yet another one, so that jobs that run at the same time have the same addresses and
nothing of this machine's own network is touched.
"""

import itertools
import os
import subprocess

NET = "10.77.0"
SERVICE = f"{NET}.254"
"""Leads to the newest master, as the job's Service does."""
FETCH = "import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1], timeout=2).read().decode())"

_numbers = itertools.count()


class Network:
    """`place` is the name of a pod's namespace."""

    def __init__(self):
        self.name = f"tj{os.getpid()}-{next(_numbers)}"
        self._places, self._master = [], None
        _ip("netns", "add", self.name)
        _ip("-n", self.name, "link", "add", "br0", "type", "bridge")
        _ip("-n", self.name, "link", "set", "br0", "up")

    def add(self):
        """A place for a new pod: its name, its address, and what runs a command there."""
        number = len(self._places) + 1
        place, port = f"{self.name}-{number}", f"p{number}"
        _ip("netns", "add", place)
        self._places.append(place)
        _ip("-n", self.name, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", place)
        _ip("-n", self.name, "link", "set", port, "master", "br0", "up")
        for device in ("lo", "eth0"):
            _ip("-n", place, "link", "set", device, "up")
        _ip("-n", place, "address", "add", f"{NET}.{number}/24", "dev", "eth0")
        return place, f"{NET}.{number}", _inside(place)

    def serve(self, place):
        """From now on the service leads there, for everybody who is not cut off."""
        if self._master is not None:
            _ip("-n", self._master, "address", "delete", f"{SERVICE}/32", "dev", "eth0")
        _ip("-n", place, "address", "add", f"{SERVICE}/32", "dev", "eth0")
        self._master = place
        for other in self._places:
            _ip("-n", other, "neighbour", "flush", "dev", "eth0")

    def cut(self, place):
        """Nothing reaches the pod any more and nothing leaves it; nobody is told."""
        self._set_port(place, state="disabled")

    def heal(self, place):
        """Undo `cut`."""
        self._set_port(place, state="forwarding")

    def get(self, place, port, path):
        """What a server in the pod answers; "" if it does not."""
        url = f"http://127.0.0.1:{port}{path}"
        command = [*_inside(place), "/usr/bin/python3.11", "-SIc", FETCH, url]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def listening(self, place):
        """Local addresses of all sockets that somebody there listens at."""
        return [line.split()[3] for line in _run(*_inside(place), "ss", "-Htln").splitlines()]

    def close(self):
        """Remove everything."""
        for place in [*self._places, self.name]:
            _ip("netns", "delete", place)

    def _set_port(self, place, *, state):
        port = "p" + place.rpartition("-")[2]
        number = {"disabled": "0", "forwarding": "3"}[state]
        _run(*_inside(self.name), "bridge", "link", "set", "dev", port, "state", number)


def _inside(place):
    return ["ip", "netns", "exec", place]


def _ip(*words):
    return _run("ip", *words)


def _run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
