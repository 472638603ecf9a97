"""What `bin/torchrun` runs. Imports nothing of ours: it may run in any interpreter of the image."""

from __future__ import annotations

import json
import os
import socket
import sys

LAUNCHER_GONE = 1


def main() -> int:
    """Exit code of the processes that the launcher runs for this call; negative ones become a shell's."""
    path = os.environ.get("ELASTIC_SOCKET", "")
    if not path:
        return _failed("ELASTIC_SOCKET is not set: this torchrun works only in the container that the launcher started")
    request = {"argv": sys.argv[1:], "directory": os.getcwd(), "environ": dict(os.environ)}  # noqa: PTH109
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile() as answers:
                answer = answers.readline()
    except OSError as error:
        return _failed(f"the launcher does not answer: {error}")
    if not answer:
        return _failed("the launcher is gone")
    code = int(json.loads(answer)["code"])
    return code if code >= 0 else 128 - code


def _failed(why: str) -> int:
    print(f"torchrun: {why}", file=sys.stderr)
    return LAUNCHER_GONE


sys.exit(main())
