"""The torchrun group of a pod: process 1 finds it out and logs it, and the operator reads that line (146).

torchrun itself does not log the group at its default level, and users need not change the level. The environment of its
training processes shows the group, in every supported release.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

POLL_SECONDS = 2

# Started as `say_group PID &`, PID being torchrun or the command that calls it. What the kubelet would expand must not
# stand here: a dollar sign before a parenthesis or before another dollar sign.
#
# 1. While the process that was found lives, the script only checks that it does: torchrun ends all training processes
#    of a pod before it starts those of another group.
# 2. A training process is the topmost process below PID that has the variables. Its own children have them, too, and
#    may outlive it, or start a torchrun of their own.
# 3. The same line is logged once only: a data loader that was found ends before its process does.
# 4. The script needs sleep, grep and tr. If one of them is missing, or /proc does not show the environment, nothing is
#    logged.
PRINT_GROUP = f"""\
parent_of() {{
  read -r line </proc/$1/stat || return
  line=${{line##*) }}
  line=${{line#* }}
  parent=${{line%% *}}
}}
is_topmost() {{
  parent_of $1
  while [ "$parent" != $2 ]; do
    case $parent in '' | 0 | 1) return 1 ;; esac
    case " $found " in *" /proc/$parent/environ "*) return 1 ;; esac
    parent_of $parent || return
  done
}}
say_group() {{
  exec 3>&2 2>/dev/null
  trains= said=
  while sleep {POLL_SECONDS} && [ -e /proc/$1 ]; do
    [ -n "$trains" ] && [ -e /proc/$trains ] && continue
    trains=
    found=`grep -ls GROUP_WORLD_SIZE= /proc/[0-9]*/environ | tr '\\n' ' '`
    for file in $found; do
      pid=${{file#/proc/}}
      pid=${{pid%/environ}}
      is_topmost $pid $1 || continue
      trains=$pid
      for pair in `tr '\\000' '\\n' <$file | grep -E '^(GROUP_RANK|GROUP_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)='`; do
        case $pair in
          GROUP_RANK=*) rank=${{pair#*=}} ;;
          GROUP_WORLD_SIZE=*) size=${{pair#*=}} ;;
          MASTER_ADDR=*) address=${{pair#*=}} ;;
          MASTER_PORT=*) port=${{pair#*=}} ;;
        esac
      done
      says="$0: torchrun trains here as rank $rank of a group of $size, with rank 0 at $address port $port."
      [ "$says" = "$said" ] || echo "$says" >&3
      said=$says
      break
    done
  done
}}
"""

# A progress bar of the script may stand before the text in the same line.
_LINE = re.compile(
    r": torchrun trains here as rank (\d{1,4}) of a group of (\d{1,4}), with rank 0 at (\S{1,64} port \d{1,5})\.\r?$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class GroupRank:
    """A pod's rank in a torchrun group of `size` pods. `group` is the address of its rank 0, with a port of its own."""

    rank: int
    size: int
    group: str


def last_rank(log: str) -> GroupRank | None:
    """The pod's last rank by the log; None if the log shows none."""
    found = deque(_LINE.finditer(log), maxlen=1)
    return GroupRank(int(found[0][1]), int(found[0][2]), found[0][3]) if found else None
