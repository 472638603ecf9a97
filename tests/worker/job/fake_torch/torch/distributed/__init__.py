"""A group whose members each have a socket to each other one; they find each other in a store, as gloo's do.

A member that is gone ends what the others do with it by an error; one that is silent makes them wait, as does a
network that is cut. Only the store that a launcher serves is known.
"""

import json
import os
import signal
import socket
import struct
import threading
import time
from array import array
from contextlib import contextmanager

STORE_SECONDS = 300.0
COLLECTIVE_SECONDS = 1800.0
RETRY_SECONDS = 0.01
LENGTH = struct.Struct("=q")

_group = None


class DistNetworkError(RuntimeError):
    """The store cannot be reached."""


class DistStoreError(RuntimeError):
    """The store does not give what is waited for."""


class TCPStore:
    """Texts by name; who asks for one that is not there waits for it."""

    def __init__(self, host_name, port, is_master=False, wait_for_workers=True):
        del wait_for_workers
        self.port = port
        if is_master:
            self._texts, self._changed = {}, threading.Condition()
            server = socket.create_server(("", port))
            self.port = server.getsockname()[1]
            threading.Thread(target=self._serve, args=(server,), daemon=True).start()
            host_name = "127.0.0.1"
        self._line = _dial(host_name, self.port)
        self.address = self._line.getsockname()[0]
        self._answers = self._line.makefile("r")

    def set(self, name, text):
        self._ask({"name": name, "text": text})

    def get(self, name):
        return self._ask({"name": name})

    def _ask(self, request):
        try:
            self._line.sendall(json.dumps(request).encode() + b"\n")
            answer = self._answers.readline()
        except TimeoutError:
            raise DistStoreError(f"wait timeout after {STORE_SECONDS:.0f} s, keys: {request['name']}") from None
        except OSError as error:
            raise DistNetworkError(f"failed to recv, got {error}") from None
        if not answer:
            raise DistNetworkError("failed to recv, got 0 bytes. Connection was likely closed")
        return json.loads(answer)

    def _serve(self, server):
        while True:
            line, _ = server.accept()
            threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line):
        with line, line.makefile("r") as requests:
            for request in map(json.loads, requests):
                with self._changed:
                    if "text" in request:
                        self._texts[request["name"]] = request["text"]
                        self._changed.notify_all()
                    self._changed.wait_for(lambda name=request["name"]: name in self._texts)
                    found = self._texts[request["name"]]
                line.sendall(json.dumps(found).encode() + b"\n")


class ProcessGroup:
    """`lines` are the sockets to all other ranks."""

    def __init__(self, store, rank, world, seconds):
        self.store, self.rank, self.world, self.seconds = store, rank, world, seconds
        with socket.create_server((store.address, 0), backlog=world) as server:
            store.set(f"{rank}", list(server.getsockname()[:2]))
            addresses = {peer: store.get(f"{peer}") for peer in range(world)}
            self.lines = {peer: self._call(addresses[peer]) for peer in range(rank)}
            server.settimeout(seconds)
            for _ in range(rank + 1, world):
                line, _ = server.accept()
                line.settimeout(seconds)
                self.lines[int.from_bytes(_read(line, 1), "big")] = line
        for line in self.lines.values():
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _call(self, address):
        try:
            line = socket.create_connection(address, timeout=self.seconds)
        except OSError as error:
            raise RuntimeError(f"gloo/transport/tcp/pair.cc: connect {address}: {error}") from None
        line.sendall(bytes([self.rank]))
        return line

    def exchange(self, mine):
        """What each rank has, in the order of ranks."""
        with _handlers_wait():
            for line in self.lines.values():
                try:
                    line.sendall(LENGTH.pack(len(mine)) + mine)
                except OSError as error:
                    raise RuntimeError(f"gloo/transport/tcp/pair.cc: {error.strerror}") from None
            theirs = {
                peer: _read(line, LENGTH.unpack(_read(line, LENGTH.size))[0]) for peer, line in self.lines.items()
            }
        return [theirs.get(rank, mine) for rank in range(self.world)]


def init_process_group(backend=None, timeout=None):
    """Where the variables say that torchrun sets."""
    del backend
    global _group
    environ = os.environ
    assert environ["TORCHELASTIC_USE_AGENT_STORE"] == "True", "the fake has no other"
    store = TCPStore(environ["MASTER_ADDR"], int(environ["MASTER_PORT"]))
    seconds = COLLECTIVE_SECONDS if timeout is None else timeout.total_seconds()
    _group = ProcessGroup(store, int(environ["RANK"]), int(environ["WORLD_SIZE"]), seconds)


def destroy_process_group():
    global _group
    for line in _group.lines.values():
        line.close()
    _group = None


def is_initialized():
    return _group is not None


def get_rank():
    return _group.rank


def get_world_size():
    return _group.world


def all_reduce(tensor):
    tensor.values[:] = array("d", map(sum, zip(*_gathered(tensor), strict=True)))


def broadcast(tensor, src):
    tensor.values[:] = _gathered(tensor)[src]


def barrier():
    _group.exchange(b"")


def _gathered(tensor):
    return [array("d", each) for each in _group.exchange(tensor.values.tobytes())]


def _dial(host, port):
    """Again and again while nobody listens there, or no network leads there."""
    end = time.monotonic() + STORE_SECONDS
    while True:
        try:
            return socket.create_connection((host, port), timeout=STORE_SECONDS)
        except OSError as error:
            if time.monotonic() > end:
                raise DistNetworkError(f"The client socket has failed to connect to {host}:{port}: {error}") from None
            time.sleep(RETRY_SECONDS)


def _read(line, length):
    read = b""
    while len(read) < length:
        try:
            more = line.recv(length - len(read))
        except TimeoutError:
            raise RuntimeError("gloo/transport/tcp/unbound_buffer.cc: Timed out waiting for recv operation") from None
        except OSError as error:
            raise RuntimeError(f"gloo/transport/tcp/pair.cc: {error.strerror}") from None
        if not more:
            raise RuntimeError("gloo/transport/tcp/pair.cc: Connection closed by peer")
        read += more
    return read


@contextmanager
def _handlers_wait():
    """Python runs a handler between two of its own instructions, and there is none in a collective of torch's."""
    handled = {number for number in signal.valid_signals() if callable(signal.getsignal(number))}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
