"""From the flags of `kubectl elastic run` to an ElasticPyTorchJob.

`--workers` counts pods with the master, as `--nnodes` of torchrun does. The command's own `--nnodes` counts if there is
no `--workers`. `runai.py` reads Run:ai's command lines, whose `--workers` leaves the master out.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from elastic_api.job import RuntimeMode
from elastic_api.quantity import REMEDY, QuantityError, units
from elastic_client.convert import manifest, volumes
from elastic_client.convert.converted import Converted, ConvertError, Report
from elastic_client.convert.launch import NNODES, NPROC, TORCHRUN, Program, program_of
from elastic_client.convert.volumes import Mounted
from elastic_worker import flags as torchrun

SIZE = "write a number of pods, master included, such as 4, or the fewest and the most, such as 2:8"
NO_COMMAND = (
    "no command: write it after --, as in `-- train.py --lr 0.1`; or --image-command 'CMD' with the command that the"
    " image itself has"
)
NO_IMAGE = "--image: write the image with python, torch and your code, as in --image registry.example.com/team/train:1"
IMAGE_COMMAND = "as in --image-command 'python /app/train.py': the operator does not read images"
_SIZE = re.compile(r"(\d{1,6})(?::(\d{1,6}))?")
_VARIABLE = re.compile(r"[A-Za-z_][-A-Za-z0-9_.]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags:
    """The words after `run`. Absent flags are "", None or ().

    `command` are the words after the flags, including torchrun's own flags before the command. `workers` and `nnodes`
    are sizes such as "4" or "2:8". `code` is a folder of this machine. `gpus` is per pod, `cpu` and `memory` are
    quantities per pod. `large_shm` gives /dev/shm more than 64 MB.
    """

    command: Sequence[str] = ()
    image: str = ""
    code: str = ""
    image_command: str = ""
    name: str = ""
    namespace: str = ""
    workers: str = ""
    min_replicas: int | None = None
    max_replicas: int | None = None
    gpus: str = ""
    nproc_per_node: str = ""
    env: Sequence[str] = ()
    cpu: str = ""
    memory: str = ""
    pvc: Sequence[str] = ()
    volume: Sequence[str] = ()
    large_shm: bool = False
    priority_class: str = ""
    mode: str = ""
    working_dir: str = ""


SHORT_FLAGS = ("-g", "-i", "-e", "-v", "-n", "--gpu", "--environment")
AS_IT_IS = {"--module", "--no-python"}
"""Options of torchrun that are followed by a module's name or a program, not by a script."""
RUN_FLAGS = tuple(f"--{field.name.replace('_', '-')}" for field in fields(RunFlags) if field.name != "command")


def from_flags(typed: RunFlags) -> Converted:
    """The job of these flags, with the folder `code` read. Raises ConvertError with the flag and what to write."""
    made = _job(typed)
    if not typed.code:
        return made
    from elastic_client.code import folder, objects

    code = folder.read(typed.code)
    note = f"Code: {code}. The pods have it at {objects.MOUNT}, read-only."
    return replace(made, manifest=objects.with_code(made.manifest, code), notes=(*made.notes, note), code=code)


def _job(typed: RunFlags) -> Converted:
    report = Report()
    program = _program(typed, report)
    if not typed.image:
        raise ConvertError(NO_IMAGE)
    fewest, most = _sizes(typed, program, report)
    for option in program.dropped:
        if option.name != NNODES:
            report.lose(" ".join(option.words), torchrun.WITH_VALUE.get(option.name) or torchrun.MEETING)
    if program.was_plain:
        report.note("torchrun starts the script: by itself, python would be one process that meets no other pod.")
    gpus = whole_gpus(typed.gpus, "--gpus")
    report.notes.insert(0, manifest.counted(fewest, most, gpus))
    note_alone(program, most, report)
    mounts = [*map(volumes.claim, typed.pvc), *map(volumes.volume, typed.volume)]
    metadata = metadata_of(typed.name, typed.namespace, program, report)
    parts = {
        "workingDir": typed.working_dir,
        "env": variables(typed.env, "--env"),
        "resources": resources(gpus, typed.cpu, typed.memory),
    }
    spec = {
        **manifest.sizes(fewest, most),
        "nprocPerNode": _nproc(typed.nproc_per_node, program),
        "template": {"spec": pod(typed.image, program, parts, mounts, large_shm=typed.large_shm)},
        "runtime": _runtime(typed.mode),
        "priorityClassName": typed.priority_class or None,
    }
    return report.converted(manifest.job(metadata, spec))


def _program(typed: RunFlags, report: Report) -> Program:
    own = words_of_image(typed.image_command, report) if typed.image_command else []
    words = [*own, *typed.command]
    if not words:
        raise ConvertError(NO_COMMAND)
    line = None if own else _torchrun_line(typed.command)
    if line is None or not line.options:
        return program_of(words)
    program = program_of(["torchrun", *typed.command])
    if AS_IT_IS & {option.name for option in line.options}:
        return program
    inner = program_of(line.program)
    return program if inner.was_plain is False and not inner.command else _merged(program, inner, line)


def _torchrun_line(words: Sequence[str]) -> torchrun.Line:
    """The words as torchrun's flags and a command. Raises ConvertError for an unknown flag."""
    try:
        return torchrun.read(words)
    except torchrun.UsageError as error:
        raise ConvertError(_instead(words, str(error))) from None


def _instead(words: Sequence[str], error: str) -> str:
    """A hint what to type instead of a flag that torchrun does not know."""
    message = error.split()
    number = next((n for n, word in enumerate(words) if word.partition("=")[0] in message), 0)
    flag = words[number].partition("=")[0]
    if number and (flag in RUN_FLAGS or flag in SHORT_FLAGS):
        previous = words[number - 1]
        form = f", or {words[number - 2]}={previous}" if number > 1 and words[number - 2].startswith("--") else ""
        return f"{flag} stands after {previous}, where run's own flags have ended: write it before{form}"
    near = difflib.get_close_matches(flag, RUN_FLAGS, 1)
    hint = f"did you mean {near[0]}?" if near else "flags of run stand before the command, the command after --"
    return f"{error}, and run neither: {hint}"


def _merged(outer: Program, inner: Program, line: torchrun.Line) -> Program:
    """Merge torchrun's flags with a command that is more than a script."""
    if inner.command:
        given = " ".join(word for option in line.options for word in option.words)
        raise ConvertError(f"{given}: only torchrun reads it, but the command is {inner.command[0]}: write it there")
    kept = outer.args[: len(outer.args) - len(line.program)]
    is_line = inner.args[0] == TORCHRUN
    args = (TORCHRUN, *kept[1:], *inner.args[1:]) if is_line else (*kept, *inner.args)
    return Program((), args, outer.nproc, outer.nnodes, outer.dropped)


def words_of_image(text: str, report: Report) -> list[str]:
    """The command of the image, as the user gives it. Raises ConvertError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConvertError(f"--image-command {text}: {error}: close the quote") from None
    if not words:
        raise ConvertError(f"--image-command '': write the command that the image has, {IMAGE_COMMAND}")
    report.note(f"The image's own command is taken to be `{shlex.join(words)}`.")
    return words


def _sizes(typed: RunFlags, program: Program, report: Report) -> tuple[int, int]:
    """The fewest and most pods: the two bounds alone, else --workers or an equal --nnodes. Raises ConvertError."""
    least, most = typed.min_replicas, typed.max_replicas
    given = [(flag, text) for flag, text in (("--workers", typed.workers), (NNODES, program.nnodes)) if text]
    found = {size(text, flag) for flag, text in given}
    if len(found) > 1:
        raise ConvertError(f"{NNODES} {program.nnodes}: says another size than --workers {typed.workers}: write one")
    if least is None and most is None:
        return found.pop() if found else (1, 1)
    flags = " ".join(
        f"{flag} {value}" for flag, value in (("--min-replicas", least), ("--max-replicas", most)) if value is not None
    )
    written = next(iter(found)) if found else (least or most or 1, most or least or 1)
    fewest, largest = written[0] if least is None else least, written[1] if most is None else most
    if found and written[0] != written[1] and (fewest, largest) != written:
        raise ConvertError(f"{' '.join(given[0])}: says another size than {flags}: write one")
    if found and not fewest <= written[1] <= largest:
        raise ConvertError(f"{' '.join(given[0])}: is not between the bounds, {flags}: write one")
    if found and not {fewest, largest} & set(written):
        report.lose(
            " ".join(given[0]), f"--min-replicas and --max-replicas say the size, {manifest.pods(fewest, largest)}"
        )
    return pair(flags, fewest, largest)


def pair(flags: str, fewest: int | None, most: int | None) -> tuple[int, int]:
    """A size from two flags, of which one may be absent. Raises ConvertError."""
    assert fewest is not None
    assert most is not None
    if not 1 <= fewest <= most:
        raise ConvertError(f"{flags}: write the fewest pods and the most, master included, such as 2 and 8")
    return fewest, most


def size(text: str, flag: str) -> tuple[int, int]:
    """The fewest and most pods of 4 or 2:8. Raises ConvertError."""
    found = _SIZE.fullmatch(text)
    fewest, most = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= fewest <= most:
        raise ConvertError(f"{flag} {text}: {SIZE}")
    return fewest, most


def whole_gpus(text: str, flag: str) -> int:
    """GPUs per pod; 0 if the flag is absent. Raises ConvertError."""
    if text and not text.isdecimal():
        raise ConvertError(f"{flag} {text}: write a whole number of GPUs per pod; parts of a GPU are not supported")
    return int(text or 0)


def variables(pairs: Sequence[str], flag: str) -> list[dict[str, str]]:
    """A container's env. Raises ConvertError."""
    found = []
    for text in pairs:
        name, equals, value = text.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise ConvertError(f"{flag} {text}: write NAME=VALUE, as in {flag} LOGLEVEL=INFO")
        found.append({"name": name, "value": value})
    return found


def resources(
    gpus: int, cpu: str, memory: str, *, cpu_limit: str = "", memory_limit: str = "", more: dict[str, str] | None = None
) -> dict[str, Any]:
    """A container's resources: its requests and its limits. Raises ConvertError."""
    requests = {"cpu": quantity(cpu, "--cpu"), "memory": quantity(memory, "--memory")}
    for flag, least, most in (("cpu", cpu, cpu_limit), ("memory", memory, memory_limit)):
        if least and most and units(quantity(least, f"--{flag}")) > units(quantity(most, f"--{flag}-limit")):
            raise ConvertError(f"--{flag}-limit {most}: must be at least --{flag} {least}")
    limits = {
        "cpu": quantity(cpu_limit, "--cpu-limit"),
        "memory": quantity(memory_limit, "--memory-limit"),
        manifest.GPU: gpus or None,
        **(more or {}),
    }
    named: dict[str, dict[str, Any]] = {"requests": requests, "limits": limits}
    parts = {kind: {name: v for name, v in amounts.items() if v} for kind, amounts in named.items()}
    return {kind: amounts for kind, amounts in parts.items() if amounts}


def quantity(text: str, flag: str) -> str:
    """The amount as written; "" if the flag is absent. Raises ConvertError."""
    try:
        amount = units(text) if text else 1
    except QuantityError:
        amount = 0
    if amount < 1:
        raise ConvertError(f"{flag} {text}: write {REMEDY}")
    return text


def note_alone(program: Program, most: int, report: Report) -> None:
    """Report if several pods run a command that does not call torchrun."""
    if most > 1 and program.is_alone:
        command = shlex.join([*program.command, *program.args][:2])
        report.note(f"Each pod runs `{command}` by itself: the pods meet only if it calls torchrun there.")


def metadata_of(name: str, namespace: str, program: Program, report: Report) -> dict[str, str]:
    """The job's name and namespace. Raises ConvertError."""
    named = manifest.metadata_for(name, program.script, report)
    return {**named, "namespace": namespace} if namespace else named


def pod(
    image: str, program: Program, parts: dict[str, Any], mounts: Sequence[Mounted], *, large_shm: bool
) -> dict[str, Any]:
    """The spec of a pod with one container."""
    shared = [Mounted(*manifest.shared_memory())] if large_shm else []
    of_pod, of_container = volumes.mounted([*mounts, *shared])
    container = manifest.container(image, program.command, program.args, parts={**parts, **of_container})
    return {"containers": [container], **of_pod}


def _nproc(flag: str, program: Program) -> int | str | None:
    written = program.nproc
    if flag:
        asked = program_of([NPROC, flag, "x.py"]).nproc
        if asked is None:
            raise ConvertError(f"{NPROC} {flag}: write a whole number from 1 to 1024, or auto for one process per GPU")
        if written is not None and written != asked:
            raise ConvertError(f"{NPROC} {flag}: the command says {written}: write one of them")
        written = asked
    return None if written == "auto" else written


def _runtime(mode: str) -> dict[str, str] | None:
    modes = {choice.value.lower(): choice.value for choice in RuntimeMode}
    if mode and mode.lower() not in modes:
        raise ConvertError(f"--mode {mode}: write one of {', '.join(modes.values())}")
    return {"mode": modes[mode.lower()]} if mode and modes[mode.lower()] != RuntimeMode.TORCHRUN else None
