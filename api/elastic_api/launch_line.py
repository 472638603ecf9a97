"""The torchrun line in a pod template: the flags that the job does not follow, and the line without these (130).

Lines are pasted from tutorials with addresses and numbers of their own. torchrun prefers a flag to the variable of that
name, so pods would look for each other at a wrong address, and wait there in silence. A flag is therefore treated like
its variable (`PET_NNODES` for `--nnodes`). If a template must not set the variable, the flag is removed and named. It
is refused instead, if its removal would change the job, or if a shell reads the line. A value that refers to a
variable, such as `$(MASTER_ADDR)`, stays.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from posixpath import basename
from typing import Any

from elastic_api.invalid import FieldError, Path
from elastic_api.job import JobSpec
from elastic_api.template import main_container
from elastic_api.template_rules import POINTS_AT_MASTER, RESERVED_BECAUSE
from elastic_worker import contract, flags
from elastic_worker.flags import Option

NOT_USED = "has no effect, remove it: the operator decides this, because {reason}"
IN_A_SHELL = "must be removed, or its value be a variable's: the operator decides this, because {reason}"
STANDALONE = "must be removed, or maxReplicas be 1: with it each pod would train alone"
BACKEND = "must be removed with its endpoint: the operator brings a c10d rendezvous, which needs no server beside it"
RANK_OF_POD = (
    "must stand in a job of one size in Torchrun mode; else write the script into args, and nprocPerNode: 1, and RANK"
    " and WORLD_SIZE are those of the pods there are"
)
BY_ITSELF = (
    "must be torchrun in Elastic mode: it starts the processes of its machine by itself, and each pod would train alone"
)
BY_ACCELERATE = (
    "must be `torchrun SCRIPT`, under which the same script runs, or have --multi_gpu, --rdzv_backend=c10d,"
    " --rdzv_conf=$(PET_RDZV_CONF) and --max_restarts=$(PET_MAX_RESTARTS) ($PET_RDZV_CONF in a shell): as it stands the"
    " pods would not meet, or each would train alone"
)

OTHER_BACKENDS = ("etcd", "etcd-v2", "static")
"""Torch's backends other than c10d. A backend that torch does not know belongs to the image, and has its own
endpoint.
"""
OTHER_LAUNCHERS = ("deepspeed", "composer", "mpirun", "mpiexec", "horovodrun")
"""Programs that start training processes without torch's agent. The launcher finds out others (140)."""
ACCELERATE_GROUPS = {"--multi_gpu", "--use_fsdp", "--use_deepspeed", "--use_megatron_lm", "--config_file"}
"""Options of `accelerate launch` with which it calls torchrun, or with which its configuration may do so."""
LAUNCH = "torch.distributed.launch"
MAX_NAMED = 8
"""The most flags in the message of a condition."""
MAX_BEFORE_LAUNCH = 8
"""Words of a command before the module that python runs."""
MAX_TEXT = 16_384
"""The most characters that are read of a text for a shell."""
_MODULES = ("torch.distributed.run", LAUNCH)
_PYTHON = re.compile(r"python(\d(\.\d+)?)?")
_PYTHON_OPTION = re.compile(r"-[bBdEiIOPqsSuv]+")
_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
_NNODES = re.compile(r"([0-9]{1,6})(?::([0-9]{1,6}))?")
_SHELL_TEXT = re.compile(r"-[a-z]*c")
_BEFORE_A_COMMAND = re.compile(r"[;&|(){\n]+|then|do|else|exec|time|[A-Za-z_]\w*=.*")


@dataclass(frozen=True, slots=True)
class LaunchLine:
    """A call of torchrun: the words that start it (none if torchrun is added), and the words after them."""

    launcher: tuple[str, ...]
    options: tuple[Option, ...]
    program: tuple[str, ...]

    def value(self, name: str) -> str:
        """The value of an option; the last one counts."""
        return next((option.value for option in reversed(self.options) if option.name == name), "")

    def without(self, taken: Sequence[Option]) -> list[str]:
        """The words after the launcher, without these options."""
        kept = (word for option in self.options if option not in taken for word in option.words)
        return [*kept, *self.program]


@dataclass(frozen=True, slots=True)
class _Command:
    """The command of a template's main container, parsed once, because a text for a shell is a tenant's and may be
    long.

    `at` is the container's path. `text` is the number of the word that is such a text, as in `bash -c TEXT`, 0 if there
    is none; `in_text` are the words of that text.
    """

    at: Path
    main: Mapping[str, Any]
    words: tuple[str, ...]
    line: LaunchLine | None
    text: int
    in_text: Sequence[str]

    def path(self, number: int) -> Path:
        """The path of a word, counted from the first of `command` and on through `args`."""
        command = self.main.get("command") or ()
        return (*self.at, *(("command", number) if number < len(command) else ("args", number - len(command))))

    def path_of(self, option: Option) -> Path:
        """The path of an option in the line."""
        assert self.line is not None
        return self.path(len(self.line.launcher) + option.at)

    def line_in_text(self) -> LaunchLine | None:
        """The call of torchrun in the text that trains: the last one. Earlier ones may check nodes one by one."""
        words = self.in_text
        found = None
        for number, word in enumerate(words):
            if basename(word) == "torchrun" or (word in _MODULES and words[number - 1] == "-m"):
                found = _read(words[number + 1 : number + 2 + 2 * flags.MOST_OPTIONS], ()) or found
        return found


def line_of(main: Mapping[str, Any]) -> LaunchLine | None:
    """The main container's call of torchrun; None if it calls something else, or torchrun wrongly."""
    words = _words(main)
    launcher = _launcher(words)
    if not launcher and main.get("command"):
        return None
    return _read(words, launcher)


def as_run(main: Mapping[str, Any], spec: JobSpec) -> dict[str, Any]:
    """The main container with a torchrun line that the job can follow in `command` and `args`; all else is unchanged.

    A whole line in `args`, as in `[torchrun, --nnodes=1:3, train.py]`, has no launcher left, because torchrun is added.
    """
    line = line_of(main)
    if line is None:
        return dict(main)
    taken = [] if spec.is_elastic else [option for option, _ in _not_followed(line, spec)]
    if not main.get("command"):
        command = {"command": list(line.launcher)} if LAUNCH in line.launcher else {}
        return {**main, **command, "args": line.without(taken)}
    return {**main, "command": list(line.launcher), "args": line.without(taken)} if taken else dict(main)


def flags_not_used(spec: JobSpec, templates: Mapping[Path, Mapping[str, Any]]) -> str:
    """A warning about the flags that the job does not use, by the paths of its templates; "" if there are none."""
    found = [error for path, template in templates.items() for error in _flags_to_name(template, spec, at=path)]
    hidden = len(found) - MAX_NAMED
    return "; ".join([*map(str, found[:MAX_NAMED]), *([f"and {hidden} more"] if hidden > 0 else [])])


def _flags_to_name(template: Mapping[str, Any], spec: JobSpec, *, at: Path) -> Iterator[FieldError]:
    """Flags that are not used. If the job has run before, also flags for which a new job would be refused."""
    command = _command(template, at=at)
    yield from _errors(command, spec)
    line, number = command.line, 0
    if line is None and spec.is_elastic:
        line, number = command.line_in_text(), command.text
    if line is None:
        return
    for option, reason in _not_followed(line, spec):
        if not _is_as_the_job(option, spec):
            place = command.path(number) if number else command.path_of(option)
            yield FieldError(place, NOT_USED.format(reason=reason), _written(option))


def launch_errors(template: Mapping[str, Any], spec: JobSpec, *, at: Path) -> Iterator[FieldError]:
    """Errors for parts of the torchrun line in the template at this path that can be neither kept nor removed."""
    yield from _errors(_command(template, at=at), spec)


def _errors(command: _Command, spec: JobSpec) -> Iterator[FieldError]:
    yield from _rank_errors(command, spec)
    if spec.is_elastic:
        yield from _other_launchers(command)
        return
    if spec.sizes() == (1,):
        return
    yield from _accelerate_errors(command, spec)
    if command.line is not None:
        for option, remedy in _refused(command.line):
            yield FieldError(command.path_of(option), remedy, _written(option))
    elif line := command.line_in_text():
        refused = [*_refused(line), *((o, IN_A_SHELL.format(reason=why)) for o, why in _not_followed(line, spec))]
        for option, remedy in refused:
            if not (option.name == "--nnodes" and _allows(option.value, spec)):
                yield FieldError(command.path(command.text), remedy, _written(option))


def _rank_errors(command: _Command, spec: JobSpec) -> Iterator[FieldError]:
    """Errors for a script that reads its pod's rank: it waits for WORLD_SIZE pods, which is maxReplicas."""
    for index, variable in enumerate(command.main.get("env") or ()):
        value = variable.get("value") or ""
        if f"$({contract.ENV_POD_RANK})" in value and (spec.is_elastic or len(spec.sizes()) > 1):
            yield FieldError((*command.at, "env", index, "value"), RANK_OF_POD, value)


def _other_launchers(command: _Command) -> Iterator[FieldError]:
    """Errors for a command that never calls torchrun: the job would fail, but only after each pod has trained alone to
    its end (140).

    In a text for a shell, the last command trains: before it, nodes may be checked under mpirun.
    """
    called = command.in_text if command.text else command.words
    starts = (n for n in range(len(called)) if n == 0 or _BEFORE_A_COMMAND.fullmatch(called[n - 1]))
    program = called[max(starts) if command.text else 0] if called else ""
    if basename(program) in OTHER_LAUNCHERS and not {"torchrun", *_MODULES} & set(map(basename, called)):
        yield FieldError(command.path(command.text), BY_ITSELF, program)


def _accelerate_errors(command: _Command, spec: JobSpec) -> Iterator[FieldError]:
    """Errors for an `accelerate launch` that trains: it calls torchrun with a rendezvous of its own if it is not given
    the job's.

    In a job of one size, the pod's rank and an address may be given instead, as for machines that are set up by hand.
    In Elastic mode the launcher sees torchrun's arguments (131).
    """
    called = command.in_text if command.text else command.words
    first = range(len(called) if command.text else min(len(called), MAX_BEFORE_LAUNCH))
    start = max((n for n in first if _is_accelerate(called, n)), default=None)
    if start is None or {"torchrun", *_MODULES} & set(map(basename, called[start:])):
        return
    given = dict(_given(called[start:]))
    groups = not given.keys().isdisjoint(ACCELERATE_GROUPS)
    meets = given.get("--rdzv_backend") == "c10d" and "$" in given.get("--rdzv_conf", "")
    is_ranked = len(spec.sizes()) == 1 and "$" in given.get("--machine_rank", "")
    if not (groups and (meets or is_ranked)):
        yield FieldError(command.path(command.text), BY_ACCELERATE, " ".join(called[start : start + 2]))


def _is_accelerate(words: Sequence[str], number: int) -> bool:
    """Whether a call of accelerate's launcher begins with that word."""
    program, following = basename(words[number]), [*words[number + 1 : number + 2]]
    if program == "-m":
        return following == ["accelerate.commands.launch"]
    is_first = number == 0 or _BEFORE_A_COMMAND.fullmatch(words[number - 1]) is not None
    return is_first and (program == "accelerate-launch" or (program == "accelerate" and following == ["launch"]))


def _given(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """By option, with underscores in its name, its value, or the next word."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            yield f"--{name[2:].replace('-', '_')}", value if equals else following


def _command(template: Mapping[str, Any], *, at: Path) -> _Command:
    main = main_container(template)
    words = _words(main)
    text = _shell_text(words)
    in_text = _words_in(words[text]) if text else []
    place = (*at, "spec", "containers", template["spec"]["containers"].index(main))
    return _Command(place, main, words, line_of(main), text, in_text)


def _words(main: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of the main container's command."""
    return (*(main.get("command") or ()), *(main.get("args") or ()))


def _launcher(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words that start torchrun, () if these do not."""
    if words and basename(words[0]) == "torchrun":
        return words[:1]
    if not words or not _PYTHON.fullmatch(basename(words[0])):
        return ()
    number = 1
    while number < len(words) and _PYTHON_OPTION.fullmatch(words[number]):
        number += 1
    is_module = words[number : number + 1] == ("-m",) and words[number + 1 : number + 2]
    return words[: number + 2] if is_module and words[number + 1] in _MODULES else ()


def _read(words: Sequence[str], launcher: tuple[str, ...]) -> LaunchLine | None:
    """The call; None if torchrun would not accept it, which torchrun then reports."""
    try:
        line = flags.read(words[len(launcher) :], is_launch=LAUNCH in launcher)
    except flags.UsageError:
        return None
    return LaunchLine(launcher, line.options, line.program)


def _not_followed(line: LaunchLine, spec: JobSpec) -> Iterator[tuple[Option, str]]:
    """The options that the job does not follow, with the reason."""
    names = {option.name for option in line.options}
    endpoint, backend = line.value("--rdzv-endpoint"), line.value("--rdzv-backend")
    for option in line.options:
        reason = _reason(option.name)
        if not reason or "$" in option.value:
            continue
        if spec.is_elastic:
            if option.name != "--rdzv-backend" or backend != "c10d":
                yield option, reason
        elif option.name == "--nnodes":
            yield option, reason
        elif "--standalone" in names or option.name == "--rdzv-backend" or backend not in ("", "c10d"):
            # torch itself, or the image, brings the rendezvous.
            continue
        elif option.name == "--rdzv-id":
            # Without an address of its own the flag does no harm, and pods that run already have it.
            if endpoint and "$" not in endpoint:
                yield option, reason
        elif option.name != "--rdzv-conf" or "is_host" not in option.value:
            yield option, reason


def _reason(name: str) -> str:
    """Why a template must not set an option's variable; "" if it may, or if torchrun ignores it."""
    variable = f"PET_{name.removeprefix('--').replace('-', '_').upper()}"
    if name == "--node-rank":
        return ""
    if variable.startswith(contract.RESERVED_ENV_PREFIX):
        return POINTS_AT_MASTER
    return RESERVED_BECAUSE[variable] if variable in contract.RESERVED_ENV else ""


def _refused(line: LaunchLine) -> Iterator[tuple[Option, str]]:
    for option in line.options:
        if option.name == "--standalone":
            yield option, STANDALONE
        if option.name == "--rdzv-backend" and option.value in OTHER_BACKENDS:
            yield option, BACKEND


def _is_as_the_job(option: Option, spec: JobSpec) -> bool:
    """Whether an --nnodes agrees with the job."""
    return option.name == "--nnodes" and _nnodes(option.value) == (spec.minimum, spec.max_replicas)


def _allows(nnodes: str, spec: JobSpec) -> bool:
    """Whether torchrun would take every size of the job."""
    limits = _nnodes(nnodes)
    return limits is None or (limits[0] <= spec.minimum and spec.max_replicas <= limits[1])


def _nnodes(value: str) -> tuple[int, int] | None:
    found = _NNODES.fullmatch(value)
    return (int(found[1]), int(found[2] or found[1])) if found else None


def _written(option: Option) -> str:
    return " ".join(option.words)


def _shell_text(words: Sequence[str]) -> int:
    """The index of the word that is a program for a shell, as in `bash -c TEXT`; 0 if there is none."""
    if not words or basename(words[0]) not in _SHELLS:
        return 0
    texts = (number for number, word in enumerate(words[1:-1], 2) if _SHELL_TEXT.fullmatch(word))
    return next(texts, 0)


def _words_in(text: str) -> list[str]:
    """The words of a text for a shell, and the separators of its commands; none if it cannot be split.

    A longer text is not read, because a tenant's text must not take much of the operator's time.
    """
    if len(text) > MAX_TEXT:
        return []
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    try:
        return list(lexer)
    except ValueError:
        return []
