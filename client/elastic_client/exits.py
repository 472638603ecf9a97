"""The ends of commands: the exit codes, and the one error with a message for the user.

Scripts depend on these codes: a code keeps its meaning, and new meanings get new codes.
"""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """The exit codes."""

    DONE = 0
    FAILED = 1
    TIMED_OUT = 2
    USAGE = 3
    NOT_FOUND = 4
    NOT_ALLOWED = 5
    UNREACHABLE = 6
    NOT_INSTALLED = 7
    REFUSED = 8
    DEFECT = 9
    INTERRUPTED = 130
    UNREAD = 141
    STOPPED = 143


MEANINGS = {
    Code.DONE: "done; wait: the job succeeded",
    Code.FAILED: "wait: the job failed; doctor: something is not ok",
    Code.TIMED_OUT: "wait, when: time ran out",
    Code.USAGE: "a flag or a value is wrong; nothing was changed",
    Code.NOT_FOUND: "there is no such job, policy, pod or namespace",
    Code.NOT_ALLOWED: "you lack a right, or your credentials are not accepted",
    Code.UNREACHABLE: "no kubeconfig, no such context, or a cluster that does not answer",
    Code.NOT_INSTALLED: "the cluster has no ElasticPyTorchJob or no GPUQuotaPolicy",
    Code.REFUSED: "the API server refuses the change",
    Code.DEFECT: "an error of this client, or an answer that it does not know",
    Code.INTERRUPTED: "you pressed Ctrl-C",
    Code.UNREAD: "the reader of the output has ended, as `head -1` does",
    Code.STOPPED: "SIGTERM, SIGHUP or SIGQUIT ended it, or its terminal was closed",
}


class ClientError(Exception):
    """An error and its remedy, in one line, with the exit code."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def epilog() -> str:
    """The exit codes as the end of `--help`."""
    return "Exit codes: " + "; ".join(f"{code.value} {meaning}" for code, meaning in MEANINGS.items()) + "."
