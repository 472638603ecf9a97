"""Reads the command of a container from typed words: a script under torchrun, or any other command.

The operator adds torchrun to a script in `args`, and sets the number and the rendezvous of the pods. So these options
are removed from a line (each is named), and its `--nproc-per-node` becomes the job's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import basename

from elastic_api.job import MAX_PROCESSES
from elastic_api.launch_line import LAUNCH, LaunchLine, line_of
from elastic_client.convert.converted import ConvertError, Report
from elastic_worker import flags
from elastic_worker.flags import MEETING, MEMBERS, Option

TORCHRUN = "torchrun"
NPROC = "--nproc-per-node"
NNODES = "--nnodes"
ADDED = "torchrun is added"
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_UNBUFFERED = "-u"
_ALONE = re.compile(r"-[bBdEiIOPqsSuvx]+|-[WX].+")
_WITH_VALUE = ("-W", "-X")
NO_PYTHON = "--no-python"
_MEETS = re.compile(r"torchrun|torch\.distributed|accelerate")
AS_MODULE = ("-m", "torch.distributed.run")
"""Torchrun as a module of the python before it."""


@dataclass(frozen=True, slots=True)
class Program:
    """The program of the main container. Without a `command`, `args` are a script, or a whole line of torchrun.

    `nproc` is the line's number of processes per pod, None if it has none; `nnodes` its number of pods, "" if it has
    none. `dropped` are the options that the operator sets instead. `was_plain`: the line was python without torchrun,
    which each pod would have run alone.
    """

    command: tuple[str, ...]
    args: tuple[str, ...]
    nproc: int | str | None = None
    nnodes: str = ""
    dropped: tuple[Option, ...] = ()
    was_plain: bool = False

    @property
    def is_torchrun(self) -> bool:
        """Whether torchrun starts the program, in this container or added by the operator."""
        return not self.command or basename(self.command[0]) == TORCHRUN or "torch.distributed.run" in self.command

    @property
    def is_alone(self) -> bool:
        """Whether the command names neither torchrun nor accelerate, which calls torchrun."""
        return bool(self.command) and not any(map(_MEETS.search, (*self.command, *self.args)))

    @property
    def script(self) -> str:
        """The name of the script, else of the module, else of the program."""
        words = [*self.command, *self.args]
        found = re.search(r"[\w.-]+\.(py|sh)\b", " ".join(words))
        return found[0] if found else words[words.index("-m") + 1] if "-m" in words[:-1] else words[0]

    def name_dropped(self, report: Report, source: str = TORCHRUN) -> None:
        """Report each removed option."""
        for option in self.dropped:
            report.lose(f"{source}: {' '.join(option.words)}", reason_of(option))


def reason_of(option: Option) -> str:
    """Why a job needs no such option."""
    if option.name == NNODES:
        return "spec.minReplicas and spec.maxReplicas are the job's size"
    return {**flags.WITH_VALUE, **flags.WITHOUT_VALUE}[option.name].replace("(spec.elasticity)", "(spec.minReplicas)")


def program_of(words: Sequence[str], *, lift_nproc: bool = True) -> Program:
    """The program in these words. With `lift_nproc` a number of processes becomes the job's, else it stays in the
    line.

    Raises:
        ConvertError: there are no words, or torchrun would refuse them.
    """
    if not words:
        raise ConvertError("no command: write it after --, such as `-- train.py --lr 0.1`")
    line = _line(words)
    if line is not None:
        return _torchrun(line, lift_nproc=lift_nproc)
    at = script_at(words)
    if not at:
        return Program(tuple(words), ())
    if has_options(words, at):
        return _with_options(words)
    launcher = () if _PYTHON.fullmatch(words[0]) else (*words[:at], *AS_MODULE)
    return Program(launcher, tuple(words[at:]), was_plain=True)


def _with_options(words: Sequence[str]) -> Program:
    """Whether python has options: torchrun would start the script by a python without them."""
    if _PYTHON.fullmatch(words[0]):
        return Program((), (TORCHRUN, NO_PYTHON, *words), was_plain=True)
    return Program((words[0], *AS_MODULE), (NO_PYTHON, *words), was_plain=True)


def has_options(words: Sequence[str], at: int) -> bool:
    """Whether python has other options than -u before its script, which is word number `at`."""
    return any(word != _UNBUFFERED for word in words[1:at])


def script_at(words: Sequence[str]) -> int:
    """The index of python's script, or of `-m` and a module; 0 if these words are not python with a script."""
    if not words or not _PYTHON.fullmatch(basename(words[0])):
        return 0
    at = 1
    while at < len(words) and (words[at] in _WITH_VALUE or _ALONE.fullmatch(words[at])):
        at += 2 if words[at] in _WITH_VALUE else 1
    rest = words[at:]
    is_module = len(rest) > 1 and rest[0] == "-m" and not rest[1].startswith(("torch.", "accelerate."))
    return at if is_module or (rest and not rest[0].startswith("-")) else 0


def _line(words: Sequence[str]) -> LaunchLine | None:
    """The words as a call of torchrun; None if they are something else."""
    is_script = words[0].startswith("-") or words[0].endswith(".py")
    line = line_of({"args" if is_script else "command": list(words)})
    if line is None and (is_script or basename(words[0]) == TORCHRUN):
        try:
            flags.read(words if is_script else words[1:])
        except flags.UsageError as error:
            raise ConvertError(f"{' '.join(words)}: {error}") from None
    return line


def _torchrun(line: LaunchLine, *, lift_nproc: bool) -> Program:
    dropped = tuple(option for option in line.options if is_dropped(option))
    nproc = _processes(line.value(NPROC)) if lift_nproc else None
    taken = [*dropped, *(o for o in line.options if nproc is not None and o.name == NPROC)]
    rest = tuple(line.without(taken))
    nnodes = line.value(NNODES)
    if not _is_replaceable(line.launcher):
        return Program(line.launcher, rest, nproc, nnodes, dropped)
    is_script = rest == line.program
    return Program((), rest if is_script else (TORCHRUN, *rest), nproc, nnodes, dropped)


def is_dropped(option: Option) -> bool:
    """Whether the operator sets the value of this option of torchrun."""
    return option.name != NPROC and {**flags.WITH_VALUE, **flags.WITHOUT_VALUE}.get(option.name) in (MEMBERS, MEETING)


def _is_replaceable(launcher: Sequence[str]) -> bool:
    """Whether the image's torchrun is equivalent. A path may belong to another environment, and options may matter."""
    if len(launcher) < 2:
        return list(launcher) in ([], [TORCHRUN])
    program, *options, module = launcher
    is_plain = all(option in (_UNBUFFERED, "-m") for option in options)
    return module != LAUNCH and is_plain and _PYTHON.fullmatch(program) is not None


def _processes(value: str) -> int | str | None:
    """The job's nprocPerNode; None for a value that only torchrun understands, such as `cpu` or a variable."""
    if value in ("auto", "gpu"):
        return "auto"
    return int(value) if value.isdecimal() and 1 <= int(value) <= MAX_PROCESSES else None
