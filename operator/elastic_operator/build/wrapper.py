"""The process with id 1 of the main container: a POSIX shell script that runs torchrun, or the user's command (12).

Neither can be process 1 itself. torchrun has no signal handler during its first rendezvous, and the kernel drops
signals that process 1 does not handle. bash waits for its child and forwards nothing. Either way a deleted pod would
wait for its whole grace period. The script needs only `/bin/sh`, and setsid if there is one. Beside the child, it logs
the group that torchrun has put the pod into (`torchrun_group.py`).

A wrapped container skips the image's ENTRYPOINT, like every container with a `command`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elastic_operator.build.python import ASK_FOR_TORCH, NEEDED
from elastic_operator.build.torchrun_group import PRINT_GROUP
from elastic_worker.contract import EXIT_DO_NOT_RETRY

NAME = "elastic-pytorch"
"""$0 of the script: its messages in the log begin with it."""

# The python of a torchrun on PATH stands in its first line, as `/opt/conda/bin/python` or `/usr/bin/env python3`, so it
# must be split into words. A python that stands there in another form is not asked.
FIND_TORCHRUN = f"""\
cannot() {{
  echo "$0: $1. Use an image with {NEEDED}, or give the container a command." >&2
  exit {EXIT_DO_NOT_RETRY}
}}
ask='{ASK_FOR_TORCH}'
if command -v torchrun >/dev/null 2>&1; then
  IFS= read -r line <"`command -v torchrun`"
  case $line in
    '#!'*python*) unfit=`${{line#??}} -c "$ask" 2>/dev/null` || [ -z "$unfit" ] || cannot "torchrun: $unfit" ;;
  esac
  set -- torchrun "$@"
else
  for python in python3 python; do
    if unfit=`"$python" -c "$ask" torch 2>/dev/null`; then
      set -- "$python" -m torch.distributed.run "$@"
      found=1
      break
    fi
    tried="$tried; $python: ${{unfit:-it cannot run}}"
  done
  [ -n "$found" ] || cannot "torchrun: not found in the image: it is not on PATH ($PATH)$tried"
fi
"""

# The script must not contain what the kubelet would expand: a dollar sign before a parenthesis or before another dollar
# sign.
#
# 1. A process group of its own for the child, so that everything it started gets the signal too. A shell without
#    terminal makes one by `set -m` in bash, but not in dash or busybox; those come with a setsid in every usual image.
#    Without both, the child alone gets the signal, and torchrun passes it on.
# 2. `kill -TERM -$p` is the one form that dash, busybox and bash all take for a group. The group does not exist yet
#    when the signal comes early. A forked child that is still the shell has its traps, and would swallow the signal
#    (busybox: 40 of 150 tries, dash: 6): so the group is waited for, for a second. There is none at all where there is
#    no setsid; then the child itself is meant.
# 3. When a signal arrives, `wait` returns early, with a number that is not the child's. It is called again, and returns
#    127 if it had returned the child's status the first time.
# 4. Whatever signal the image names as STOPSIGNAL, the child gets SIGTERM: a shell starts its background processes
#    with SIGINT and SIGQUIT ignored.
_RUN = """\
stop() {
  stopping=1
  interrupted=1
  [ -n "$p" ] || return
  for try in 1 2 3 4 5 6 7 8 9 10; do
    kill -TERM -$p 2>/dev/null && return
    sleep 0.1 2>/dev/null && kill -0 $p 2>/dev/null || break
  done
  kill -TERM $p 2>/dev/null
}
p= stopping= found= tried=
trap stop TERM INT QUIT HUP
{FIND}[ -z "$stopping" ] || exit 143
if command -v setsid >/dev/null 2>&1; then
  setsid "$@" &
else
  set -m 2>/dev/null
  "$@" &
fi
p=$!
set +m
say_group $p &
[ -z "$stopping" ] || stop
status=127
while :; do
  interrupted=
  wait $p
  result=$?
  [ $result = 127 ] || status=$result
  [ -n "$interrupted" ] || exit $status
done
"""

RUN_COMMAND = PRINT_GROUP + _RUN.replace("{FIND}", "")
RUN_TORCHRUN = PRINT_GROUP + _RUN.replace("{FIND}", FIND_TORCHRUN)


def wrapped(container: Mapping[str, Any]) -> dict[str, Any]:
    """`container` with the script as its first process; `args` stay where they are.

    A container without `command` runs torchrun with its `args`; one with a `command` runs that as it is.
    """
    command = container.get("command") or []
    script = RUN_COMMAND if command else RUN_TORCHRUN
    return {**container, "command": ["/bin/sh", "-c", script, NAME, *command]}
