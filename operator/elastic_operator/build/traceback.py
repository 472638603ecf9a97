"""Why a pod failed, from the end of its main container's log: the rank, its exit code and its traceback.

torchrun ends with a summary that names the first failing rank of its pod, but has the traceback only if the script uses
torch's `@record`. Otherwise the training process itself has printed it, long before the summary and among the output of
the other ranks; torch writes `[rank3]: ` before its lines once the process group exists. All of this is text that users
can change. So a missing part is None or empty, nothing raises, and the time is linear in the size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from elastic_operator.build.torchrun_group import last_rank
from elastic_operator.build.wrapper import NAME
from elastic_worker.last_lines import shown

TAIL_LINES = 500
"""The last lines of a log that are worth reading: the summary of eight ranks takes 70, each traceback 20 to 40."""
MAX_LOG = 16_384
"""The most characters of a log that are read, the last ones."""
MAX_TRACEBACK = 4096
"""The most characters that are kept. The beginning is cut, because the exception is at the end."""
_MAX_MESSAGE_LINES = 20
_MAX_LAST_OUTPUT = 10

_SUMMARY = "Root Cause (first observed failure):"
_HEADER = re.compile(r"Traceback \(most recent call last\):")
_CHAINED = ("The above exception was the direct cause of", "During handling of the above exception, another")
_AGENT_LOG = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ .*\] ?")
_AGENT_FAILED = re.compile(r"failed \(exitcode: -?\d+\) local_rank: \d+")
_AGENT_RAISES = re.compile(r"torch\.distributed\.elastic\..*\.ChildFailedError:")
_TEE_PREFIX = re.compile(r"\[[A-Za-z_][\w.-]*+(?<=\d)\]:(?=$|[^ ])")
_TEE_RANK = re.compile(r"\[[A-Za-z_][\w.-]*?(\d{1,9})\]:(?=$|[^ ])")
_RANK_PREFIX = re.compile(r"\[rank(\d{1,9})\]: ?")
_RANK = re.compile(r"^ +rank +: (\d{1,9})(?!\d)", re.MULTILINE)
_LOCAL_RANK = re.compile(r"^ +rank +: \d{1,9} \(local_rank: (\d{1,9})\)", re.MULTILINE)
_EXIT_CODE = re.compile(r"^ +exitcode +: (-?\d{1,9})(?!\d)", re.MULTILINE)
_RECORDED = re.compile(r"^ +traceback : (?=Traceback )", re.MULTILINE)
_RULE = re.compile(r"^=+$", re.MULTILINE)
_PEER_GONE = re.compile(
    r"Connection closed by peer|Connection reset by peer|Broken pipe|Socket closed|connectFullMesh failed"
    r"|ncclRemoteError|DistNetworkError|RendezvousConnectionError|RendezvousClosedError|SignalException"
)
_SIGTERM = 15
_HINTS = {
    "error: unrecognized arguments: --local-rank=": (
        "torch.distributed.launch passes --local-rank. Let the script take it too: add_argument('--local_rank',"
        " '--local-rank', type=int); or launch it by torchrun: args as in [train.py, '--local_rank=${local_rank}']."
    )
}
"""The remedies for ends that do not explain themselves."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a pod failed.

    `rank` is the first failing rank of the pod, in the whole job's count, and `exit_code` that process's code, negative
    for a signal. Both are None if torchrun printed no summary. `traceback` is that rank's last Python traceback with
    its causes, else the last lines before the end.
    """

    rank: int | None = None
    exit_code: int | None = None
    traceback: str = ""

    @property
    def secondary(self) -> bool:
        """Whether the failure looks like the consequence of another pod's end: terminated, or a lost connection."""
        last_lines = self.traceback.strip().rsplit("\n  ", 1)[-1]
        return self.exit_code == -_SIGTERM or bool(_PEER_GONE.search(last_lines))


def failure_of(log_tail: str) -> Failure:
    """The failure, from the last lines of a main container's log (see TAIL_LINES)."""
    lines = _lines_of(log_tail)
    summary = _summary(lines)
    rank, exit_code = (_number(pattern, summary) for pattern in (_RANK, _EXIT_CODE))
    text = _recorded(summary)
    if not text:
        text = _printed_by(rank, _last_attempt(lines) if summary else lines)
    hints = [f"\n{hint}" for sign, hint in _HINTS.items() if sign in text]
    return Failure(rank, exit_code, (text.strip("\n") + "".join(hints))[-MAX_TRACEBACK:])


def last_lines_of(log_tail: str) -> tuple[str, ...]:
    """The last output of the process that failed first, from the last lines of a main container's log.

    If torchrun's summary names its rank, prefixed lines of other ranks and of torchrun are left out. Otherwise they are
    the last lines of the whole container.
    """
    lines = _lines_of(log_tail)
    summary = _summary(lines)
    if not summary:
        return shown(lines)
    earlier = _before_failure(_last_attempt(lines))
    return shown(_of_rank(_number(_RANK, summary), _number(_LOCAL_RANK, summary), earlier))


def _lines_of(log_tail: str) -> list[str]:
    """The lines of the end of a log, without those of process 1 about the torchrun group: it writes them from a loop of
    its own, so they may come after the script's error (146).
    """
    return [
        line
        for line in log_tail[-MAX_LOG:].splitlines()
        if not (line.startswith(f"{NAME}: ") and last_rank(line) is not None)
    ]


def _of_rank(rank: int | None, local_rank: int | None, lines: list[str]) -> list[str]:
    """The lines that may be the rank's, without the prefixes by which `--tee` and torch tell ranks apart."""
    for prefix, wanted in ((_TEE_RANK, local_rank), (_RANK_PREFIX, rank)):
        found = [(line, prefix.match(line)) for line in lines]
        lines = [
            line[match.end() :] if match else line
            for line, match in found
            if match is None or wanted is None or int(match[1]) == wanted
        ]
    return lines


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return int(match[1]) if match else None


def _summary(lines: Sequence[str]) -> str:
    """torchrun's section on the root cause, empty if there is none."""
    starts = _where(lines, lambda line: line == _SUMMARY)
    return "\n".join(lines[starts[-1] :]) if starts else ""


def _recorded(summary: str) -> str:
    """The traceback in torchrun's section, from there to the line that ends the section."""
    begin = _RECORDED.search(summary)
    end = _RULE.search(summary, begin.end()) if begin else None
    if begin is None or end is None:
        return ""
    return "\n".join(line.removeprefix("  ") for line in summary[begin.end() : end.start()].splitlines())


def _last_attempt(lines: Sequence[str]) -> Sequence[str]:
    """The output after the last restart and before the agent itself raises its error, as it does at its end."""
    noticed = _where(lines, _AGENT_FAILED.search)
    start = noticed[-2] + 1 if len(noticed) > 1 else 0
    ends = _where(lines, _AGENT_RAISES.match)
    headers = _where(lines[: ends[-1]], _HEADER.match) if ends else []
    return lines[start : headers[-1]] if headers else lines[start:]


def _printed_by(rank: int | None, lines: Sequence[str]) -> str:
    """The last traceback that `rank` printed, else the last one without a rank, else the last output."""
    lines = [_TEE_PREFIX.sub("", line) for line in lines]
    both = [(line, _RANK_PREFIX.match(line)) for line in lines]
    own = [line[prefix.end() :] for line, prefix in both if prefix and int(prefix[1]) == rank]
    plain = [line for line, prefix in both if not prefix]
    return _last_traceback(own) or _last_traceback(plain) or "\n".join(_before_failure(plain)[-_MAX_LAST_OUTPUT:])


def _last_traceback(lines: Sequence[str]) -> str:
    """The last traceback in `lines` with the ones that are chained to it."""
    headers = _where(lines, _HEADER.match)
    if not headers:
        return ""
    start = headers.pop()
    body = start + 1 + sum(1 for _ in takewhile(lambda line: line.startswith(" "), lines[start + 1 :]))
    message = takewhile(lambda line: not _AGENT_LOG.match(line), lines[body : body + _MAX_MESSAGE_LINES])
    end = body + sum(1 for _ in message)
    while headers and any(line.startswith(_CHAINED) for line in lines[headers[-1] : start]):
        start = headers.pop()
    return "\n".join(lines[start:end])


def _before_failure(lines: Sequence[str]) -> list[str]:
    """The lines before the agent noticed the failure, without the agent's own."""
    noticed = _where(lines, _AGENT_FAILED.search)
    return [line for line in lines[: noticed[-1] if noticed else None] if not _AGENT_LOG.match(line)]


def _where(lines: Sequence[str], is_found: Callable[[str], object]) -> list[int]:
    """The numbers of these lines, from 0."""
    return [number for number, line in enumerate(lines) if is_found(line)]
