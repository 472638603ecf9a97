"""The warm parent: it has imported the modules of training processes, and forks one in some milliseconds.

It runs no tensor operation, opens no socket, uses no GPU and has a single Python thread, since threads, sockets and GPU
contexts would be broken or shared in the processes forked from it. A module that breaks this rule is logged, and the
next parent is started without it (`fitness`).
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
from pathlib import Path

from elastic_worker.protocol.warm_parent import Fork, Forked, Imported, Importing, NotForked, NotImported, Unfit

from . import linux, ticket
from .control import MESSAGE_BYTES, ParentConfig, encode
from .fitness import Fitness, quiet_fork

OWN_THREADS = "torch"
"""The package whose native threads are known: forks have been tried with them."""
WHY_CHARACTERS = 1_000
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that the parent ignores: it ends with its launcher."""


def serve(path: Path) -> ticket.Ticket:
    """Import the modules of the configuration at `path`, and fork until the launcher ends.

    Returns in each forked process only, with the ticket of its program.
    """
    config = ParentConfig.take(path)
    linux.attach(config.launcher)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    control = socket.socket(fileno=config.control)
    control.set_inheritable(False)
    _preload(config.modules, control)
    gc.collect()
    gc.freeze()
    control.send(encode(Imported()))
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 2, socket.MSG_CMSG_CLOEXEC)
        if not data:
            os._exit(0)
        request = Fork.from_json(json.loads(data))
        if _fork(request, control):
            return _set_up(config, request, control, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _preload(modules: tuple[str, ...], control: socket.socket) -> None:
    # With this, torch counts GPUs through NVML and does not initialise CUDA. Forked processes get another environment.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    fitness = Fitness()
    for module in modules:
        control.send(encode(Importing(module)))
        failed = _import(module)
        if failed:
            control.send(encode(NotImported(module, failed[-WHY_CHARACTERS:])))
        if module.partition(".")[0] == OWN_THREADS:
            fitness.accept()
        if unfit := fitness.problem():
            control.send(encode(Unfit(module, unfit)))
            os._exit(0)


def _import(module: str) -> str:
    """Import one module; return why that failed, "" if it did not. The parent survives any exception of the module."""
    try:
        importlib.import_module(module)
    except BaseException as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return ""


def _fork(request: Fork, control: socket.socket) -> bool:
    """Fork twice, so that the new process becomes the launcher's child. True in the new process."""
    try:
        between = quiet_fork()
    except OSError as error:
        control.send(encode(NotForked(str(error), request.id)))
        return False
    if between:
        status = os.waitstatus_to_exitcode(os.waitpid(between, 0)[1])
        if status:
            control.send(encode(NotForked(f"the second fork failed: {os.strerror(status)}", request.id)))
        return False
    try:
        child = quiet_fork()
    except OSError as error:
        os._exit(error.errno or 1)
    if child:
        os._exit(0)
    return True


def _set_up(config: ParentConfig, request: Fork, control: socket.socket, descriptors: list[int]) -> ticket.Ticket:
    """In the new process: read the ticket, report to the launcher, take over stdout and stderr.

    After the report the launcher may stop this process. The parent ignores these signals, so they are blocked until
    `after_fork` has set the handlers: Linux keeps a signal that is blocked, even if it would be ignored.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
    linux.attach(config.launcher)
    try:
        taken = ticket.take(Path(request.ticket))
        control.send(encode(Forked(os.getpid(), request.id)))
    except OSError:
        # The launcher does not wait for this process any more, and has started another one instead.
        os._exit(1)
    control.close()
    for target, source in enumerate(descriptors, start=1):
        os.dup2(source, target)
        os.close(source)
    return taken
