"""The stand-in for torchrun in a command's processes: it sends its command line to the launcher, and exits with the
exit code that the launcher answers.

It is reached in two ways. `bin/torchrun`, first on PATH, runs this file. Any other program that starts torch's agent (a
virtual environment's torchrun, `python -m torch.distributed.run`) finds `handler` through torch's entry point for
rendezvous backends, and the agent starts no process (131). This file imports nothing of this package, since it may run
in any interpreter of the image.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any, NoReturn

LAUNCHER_GONE = 1
LOCAL_RANK = "--local-rank=${local_rank}"
TORCHS_OWN = ("c10d", "static", "etcd", "etcd-v2")
"""torch's rendezvous backends. In a pod, each of them stands for the job's group, too."""

HERE = ("127.0.0.1:", "localhost:")
"""The beginnings of endpoints that no user wrote: torch's default, and the endpoint of --standalone."""


def main() -> int:
    """Let the launcher run this command line; returns the exit code, a shell's (128 + number) for a signal."""
    return call({"argv": sys.argv[1:]})


def call(request: dict[str, Any]) -> int:
    """Send the request to the launcher, and wait for the exit code, a shell's for a signal.

    Returns LAUNCHER_GONE, and says why on stderr, if the launcher cannot be reached or ends.
    """
    path = os.environ.get("ELASTIC_SOCKET", "")
    if not path:
        return _failed("ELASTIC_SOCKET is not set: this torchrun works only in the container that the launcher started")
    place = {"directory": os.getcwd(), "environ": dict(os.environ)}  # noqa: PTH109
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(json.dumps({**request, **place}).encode() + b"\n")
            with connection.makefile() as answers:
                answer = answers.readline()
    except OSError as error:
        return _failed(f"the launcher does not answer: {error}")
    if not answer:
        return _failed("the launcher has ended")
    code = int(json.loads(answer)["code"])
    return code if code >= 0 else 128 - code


def handler() -> Any:
    """Entry point in torch's group `torchrun.handlers`: returns a function that makes a rendezvous handler.

    Registers it also for torch's backends, since launch lines copied from elsewhere name them.
    """
    from torch.distributed.elastic.rendezvous import api

    registry = getattr(api.rendezvous_handler_registry, "_registry", None)
    if isinstance(registry, dict):
        registry.update(dict.fromkeys(TORCHS_OWN, hand_over))
    return hand_over


def hand_over(_parameters: object) -> NoReturn:
    """Run the agent's program in the launcher, and exit. torch's agent calls this before it starts a process."""
    python = {"executable": sys.executable, "prefix": sys.prefix, "version": list(sys.version_info[:2])}
    sys.exit(call({"argv": _argv_of(_agent()), "python": python}))


def _agent() -> dict[str, Any]:
    """The arguments of torch.distributed.launcher's `launch_agent`: `config`, `entrypoint` and `args`."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "launch_agent":
            return dict(frame.f_locals)
    raise RuntimeError("the launcher was called in a way that is not known; call torchrun SCRIPT")


def _argv_of(agent: dict[str, Any]) -> list[str]:
    """The command line of torchrun that would have started that agent."""
    entrypoint, args = agent["entrypoint"], [str(arg) for arg in agent["args"]]
    options = _options_of(agent["config"])
    if callable(entrypoint):
        if entrypoint.__name__ != "run_script_path":
            raise RuntimeError("a function cannot be run in Elastic mode; call torchrun SCRIPT")
        return [*options, "--run-path", *args]
    if args[:1] != ["-u"]:
        return [*options, "--no-python", entrypoint, *args]
    del args[0]
    return [*options, "--module", *args[1:]] if args[:1] == ["-m"] else [*options, "--", *_as_spelled(args)]


def _options_of(config: Any) -> list[str]:
    """The number of processes, and the user's other options: the launcher logs those that it does not follow."""
    nodes = (getattr(config, "min_nodes", 1), getattr(config, "max_nodes", 1))
    endpoint, restarts = getattr(config, "rdzv_endpoint", ""), getattr(config, "max_restarts", 0)
    options = [f"--nnodes={nodes[0]}:{nodes[1]}"] if nodes != (1, 1) else []
    options += [f"--rdzv-endpoint={endpoint}"] if endpoint and not endpoint.startswith(HERE) else []
    options += [f"--max-restarts={restarts}"] if restarts else []
    return [*options, f"--nproc-per-node={config.nproc_per_node}"]


def _as_spelled(args: list[str]) -> list[str]:
    """The script and its arguments, with --local-rank in the spelling that the script knows.

    torch.distributed.launch puts it first; before torch 2 it was --local_rank.
    """
    if args[1:2] != [LOCAL_RANK]:
        return args
    try:
        with open(args[0], "rb") as file:  # noqa: PTH123
            text = file.read()
    except OSError:
        return args
    is_older = b"--local_rank" in text and b"--local-rank" not in text
    return [args[0], LOCAL_RANK.replace("--local-rank", "--local_rank"), *args[2:]] if is_older else args


def _failed(why: str) -> int:
    print(f"torchrun: {why}", file=sys.stderr)
    return LAUNCHER_GONE


if __name__ == "__main__":
    sys.exit(main())
