"""The command of an Elastic job's main container: a shell script that finds the python that has torch and becomes it.

From then on process 1 is the launcher, which runs the user's script or command. The image may be any with `/bin/sh` and
PyTorch. As every container with a `command`, it skips the image's ENTRYPOINT.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elastic_api.job import Runtime
from elastic_operator.build.python import ASK_FOR_LAUNCHER, NEEDED
from elastic_operator.build.wrapper import NAME
from elastic_worker.contract import EXIT_DO_NOT_RETRY, INJECT_FOLDER

# The script must not contain what the kubelet would expand: a dollar sign before a parenthesis or before another dollar
# sign.
#
# 1. Until the launcher takes over, a signal means that it never starts: the signal alone would not end process 1.
# 2. The first argument is spec.runtime.python, empty where the user named none; the others are the launcher's.
_FIND_AND_RUN = f"""\
trap 'exit 143' TERM INT QUIT HUP
ask='{ASK_FOR_LAUNCHER}'
fits() {{
  for python; do
    if ! command -v "$python" >/dev/null 2>&1; then
      tried="$tried; $python: there is no such program on PATH ($PATH)"
    elif unfit=`"$python" -c "$ask" MODULES 2>/dev/null`; then
      return 0
    else
      tried="$tried; $python: ${{unfit:-it cannot run}}"
    fi
  done
  return 1
}}
wanted=$1
tried=
shift
if [ -n "$wanted" ]; then
  fits "$wanted"
else
  fits python3 python
fi || {{
  echo "$0: no python in the image can run the job$tried. HINT" >&2
  exit {EXIT_DO_NOT_RETRY}
}}
exec "$python" LAUNCHER "$@"
"""
_HINT = f"Use an image with {NEEDED}, or write the path of its python into spec.runtime.python."
_HINT_INSTALLED = f"{_HINT} With spec.runtime.inject false, the package elastic_worker must be installed there, too."

RUN_INJECTED = _FIND_AND_RUN.replace("MODULES", "torch").replace("HINT", _HINT).replace("LAUNCHER", INJECT_FOLDER)
RUN_INSTALLED = (
    _FIND_AND_RUN.replace("MODULES", "torch elastic_worker")
    .replace("HINT", _HINT_INSTALLED)
    .replace("LAUNCHER", "-m elastic_worker")
)


def launched(container: Mapping[str, Any], runtime: Runtime) -> dict[str, Any]:
    """`container` with the script as its first process; `args` stay where they are, and the kubelet appends them.

    The launcher gets `-- SCRIPT ARGUMENTS...` or `--command -- PROGRAM ARGUMENTS...`.
    """
    script = RUN_INJECTED if runtime.inject else RUN_INSTALLED
    command = container.get("command") or []
    arguments = ["--command", "--", *command] if command else ["--"]
    return {**container, "command": ["/bin/sh", "-c", script, NAME, runtime.python, *arguments]}
