"""A program that runs in an image, and finds out which python there can run a job (94)."""

from __future__ import annotations

from elastic_worker.contract import OLDEST_PYTHON, OLDEST_TORCH

NEEDED = "PyTorch {}.{} or later".format(*OLDEST_TORCH)
# The program must not contain what the kubelet would expand (a dollar sign before a parenthesis or before another
# dollar sign), nor a single quote, because the shell scripts quote it by these.
#
# 1. The arguments are modules. A module is looked for, not imported: importing torch takes seconds.
# 2. A version that is not known (a torch without metadata, one that is no number) is taken as new enough.
_QUESTION = """\
import sys
from importlib.util import find_spec

def unfit():
    if sys.version_info < PYTHON:
        return "it is Python %d.%d, and PYTHON_WORD or later is needed" % sys.version_info[:2]
    lacking = [name for name in sys.argv[1:] if not find_spec(name)]
    if lacking:
        return "it lacks " + " and ".join(lacking)
    try:
        from importlib.metadata import version
        torch = version("torch")
        if tuple(map(int, torch.split(".")[:2])) < TORCH:
            return "it has torch %s, and TORCH_WORD or later is needed" % torch
    except Exception:
        pass

told = unfit()
print(told or "")
sys.exit(bool(told))
"""


def question(*, oldest: tuple[int, int] = (0, 0)) -> str:
    """A program for `python -c PROGRAM MODULES...`: exit code 0, or why that python cannot run a job.

    It must have the modules, be as new as `oldest`, and its torch, if it has one, as new as `OLDEST_TORCH`.
    """
    program = _QUESTION
    for name, pair in (("PYTHON", oldest), ("TORCH", OLDEST_TORCH)):
        program = program.replace(f"{name}_WORD", "{}.{}".format(*pair)).replace(f" {name}", f" {pair}")
    return program


ASK_FOR_TORCH = question()
ASK_FOR_LAUNCHER = question(oldest=OLDEST_PYTHON)
