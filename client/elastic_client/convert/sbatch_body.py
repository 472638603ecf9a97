"""The commands of a batch script: the one that trains, those that only find nodes, and the rest for a pod.

A statement that asks Slurm for nodes is removed, then those that only process its answer. Nothing is removed from an
`if`, a loop or a function: these stay whole, and their uses of Slurm's variables are named.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from posixpath import basename
from typing import TYPE_CHECKING, Any

from elastic_client.convert import slurm_options
from elastic_client.convert.converted import ConvertError, Report
from elastic_client.convert.job_line import OPERATOR_S, REFERENCE
from elastic_client.convert.launch import (
    AS_MODULE,
    NNODES,
    NO_PYTHON,
    NPROC,
    Program,
    has_options,
    program_of,
    reason_of,
    script_at,
)
from elastic_client.convert.sbatch_launch import SRUN, STARTS, Edit, Launch, find_launch, first_line, torchrun_at
from elastic_client.convert.shell import Statement, Word, statements, variables
from elastic_client.convert.slurm_options import Option
from elastic_worker import contract, flags

if TYPE_CHECKING:
    from elastic_client.convert.sbatch import Shape

ASKS_SLURM = re.compile(r"\b(scontrol|sinfo|squeue|sacct|srun)\b|SLURM_(?:JOB_|STEP_)?NODELIST")
SETS_UP = ("module", "ml", "spack")
PRINTS = ("echo", "printf")
NODE_RANK = "NODE_RANK"
RENDEZVOUS = (contract.ENV_MASTER_ADDR, contract.ENV_MASTER_PORT, contract.ENV_WORLD_SIZE, NODE_RANK)
IN_A_POD = {
    contract.ENV_WORLD_SIZE: "is the number of pods here: write another name where it counts processes",
    NODE_RANK: f"is not set in a pod: write ${contract.ENV_POD_RANK} in a job of one size",
}
_PLACES = re.compile(r"--(nnodes|rdzv[-_]\w+|master[-_](addr|port)|node[-_]rank|standalone)\b")
FINDS_NODES = "it finds nodes or addresses, which the operator does"
NOT_SET = "nothing sets it in a pod"
ENDS = (";", "&", "|", "\n")


@dataclass(frozen=True, slots=True)
class Body:
    """A script's commands without those that only Slurm needs."""

    launch: Launch
    others: tuple[Statement, ...]
    args: tuple[str, ...]
    step_options: tuple[Option, ...]

    @property
    def launch_line(self) -> int:
        """The number of the line with the command that trains."""
        return self.launch.statement.line

    @property
    def script(self) -> str:
        """The training script's name."""
        words = [word.value or word.text for word in self.launch.words]
        return next((word for word in words if word.endswith(".py")), words[0])

    def finish(self, shape: Shape, report: Report, exported: Mapping[str, str]) -> tuple[Program, list[dict[str, Any]]]:
        """The command of a pod of this shape, and its variables. Raises ConvertError."""
        literals = _literals(self.others)
        program = self._program({**_of_a_node(shape), **literals}, report)
        is_job_s = program.nproc is not None
        needed = replace(self, others=tuple(_without_unused(self, report, nproc=is_job_s)))
        nproc = _processes(program, shape, self._is_torchrun, report)
        self._note_places(program, shape, report)
        plain = None if self.args else needed._plain(literals, nproc=is_job_s)
        if plain is None:
            return needed._in_bash(program, nproc, shape, report, exported)
        for name, value in plain.items():
            report.keep(f"{name}={value}", "env")
        words = (*program.command, *program.args)
        slurm = _slurm_variables(" ".join(words), shape, report)
        env, literal = _env(exported, slurm, plain), _literally({*exported, *slurm, *plain})
        command, args = (tuple(map(literal, part)) for part in (program.command, program.args))
        return replace(program, command=command, args=args, nproc=nproc), env

    def _note_places(self, program: Program, shape: Shape, report: Report) -> None:
        """Report commands that each pod runs and under Slurm one node, and commands that do not connect the pods."""
        if shape.most == 1:
            return
        if not self.launch.step:
            name = basename(self.launch.words[0].text)
            report.note(
                f"line {self.launch_line}: {name} stands without srun: under Slurm one node runs it, here each pod."
            )
        if program.is_alone:
            name = " ".join(word.text for word in self.launch.words[:2])
            report.note(f"Each pod runs `{name}` by itself: the pods meet only if it calls torchrun there.")

    def _by_torchrun(self, report: Report) -> Edit:
        """The same python, which runs torchrun: under Slurm each task is a process of the group."""
        words = self.launch.words
        at = script_at([word.value or word.text for word in words])
        values = [word.value or word.text for word in words]
        start, added = words[at - 1].end, " ".join(AS_MODULE)
        if has_options(values, at):
            start, added = words[0].end, f"{added} {NO_PYTHON} {words[0].text}"
        report.keep(f"line {self.launch_line}: {words[0].text}", f"{words[0].text} {added}: the pods meet by torchrun")
        return start, start, f" {added}"

    def _may_be_replaced(self) -> bool:
        """Whether the command can take the shell's place, so that a signal to the pod reaches it."""
        prefix = self.launch.statement.text[: self.launch.words[0].start].split()
        is_simple = not any(word.text in ENDS for word in self.launch.after)
        return is_simple and not {"exec", "time"} & set(prefix)

    @property
    def _is_torchrun(self) -> bool:
        return torchrun_at(self.launch.words) is not None

    def _program(self, literals: Mapping[str, str], report: Report) -> Program:
        """The launch line with the values of variables that are known; its dropped options are named."""
        words = [word.value if word.value is not None else _resolved(word.text, literals) for word in self.launch.words]
        dropped = self._dropped()
        program = program_of(words)
        if self._is_torchrun:
            for word in dropped:
                name = word[0].value or word[0].text
                report.lose(f"line {self.launch_line}: {' '.join(part.text for part in word)}", _reason(name))
        return program

    def _dropped(self, *, nproc: bool = False) -> list[tuple[Word, ...]]:
        """The words of each option of torchrun that the operator sets; with `nproc` also of the number of processes.

        Raises ConvertError.
        """
        at = torchrun_at(self.launch.words)
        if at is None:
            return []
        words = self.launch.words[at + 1 :]
        try:
            line = flags.read([word.value if word.value is not None else word.text for word in words])
        except flags.UsageError as error:
            raise ConvertError(f"line {self.launch_line}: {error}") from None
        gone = [o for o in line.options if _reason(o.name) or (nproc and o.name == NPROC)]
        return [tuple(words[o.at : o.at + len(o.words)]) for o in gone]

    def _plain(self, literals: Mapping[str, str], *, nproc: bool) -> dict[str, str] | None:
        """The variables to set if the rest needs no shell; else None."""
        gone = {word.start for option in self._dropped(nproc=nproc) for word in option}
        stays = [word for word in self.launch.words if word.start not in gone]
        is_literal = all(word.value is not None for word in stays) and not self.launch.after
        commands = [command for command in self.others if command.is_command]
        is_before = all(command.line < self.launch_line for command in commands)
        if not (is_literal and is_before and all(_assigned(command) in literals for command in commands)):
            return None
        exported = [_assigned(command) for command in commands if command.text.lstrip().startswith("export")]
        return {name: literals[name] for name in exported}

    def _in_bash(
        self, program: Program, nproc: int | str | None, shape: Shape, report: Report, exported: Mapping[str, str]
    ) -> tuple[Program, list[dict[str, Any]]]:
        is_last = not any(other.is_command and other.line > self.launch_line for other in self.others)
        is_job_s = program.nproc is not None
        cut = [*self.launch.step, *(word for option in self._dropped(nproc=is_job_s) for word in option)]
        edits = [(word.start, word.end, "") for word in cut]
        if program.was_plain:
            edits.append(self._by_torchrun(report))
        if is_last and self._may_be_replaced():
            start = self.launch.words[0].start
            edits.append((start, start, "exec "))
        text = self.launch.text(edits)
        parts = {other.line: other.text for other in self.others} | {self.launch_line: text}
        whole = "\n".join(parts[line] for line in sorted(parts)).strip("\n") + "\n"
        report.keep(
            f"line {self.launch_line}: the script's commands", "command: bash -c, with the text as it is written"
        )
        for other in self.others:
            if other.is_command and other.words()[0].text in SETS_UP:
                report.note(f"line {other.line}: `{other.text.strip()}` stays: the image must have it.")
            elif other.is_command and basename(other.words()[0].text) in STARTS:
                report.note(
                    f"line {other.line}: `{first_line(other)}` runs in each pod; under Slurm on the first node only."
                )
        slurm = _slurm_variables(whole, shape, report)
        env, literal = _env(exported, slurm), _literally({*exported, *slurm})
        args = ["script", *self.args] if self.args else []
        command = ("bash", "-c", *map(literal, (whole, *args)))
        return replace(program, command=command, args=(), nproc=nproc), env


def read_body(script: str, report: Report, *, args: Sequence[str] = ()) -> Body:
    """The commands of the script; each removed one is a line of the report. Raises ConvertError."""
    parts = [part for part in statements(script) if not part.text.startswith(("#SBATCH", "#!"))]
    launch = find_launch(parts)
    others = [part for part in parts if part is not launch.statement]
    kept = _without_queries(others, launch, report)
    words = [word.value if word.value is not None else word.text for word in launch.step[1:]]
    options, _ = slurm_options.read(words)
    return Body(launch, tuple(kept), tuple(args), tuple(options))


def _without_queries(parts: Sequence[Statement], launch: Launch, report: Report) -> list[Statement]:
    """The statements without those that ask Slurm for nodes, and those that only handle the answer."""
    _check_launcher(parts, launch)
    answers: set[str] = set()
    taken: dict[str, int] = {}
    kept = []
    for part in parts:
        name = _assigned(part)
        asks = ASKS_SLURM.search(part.text) is not None or bool(variables(part.text) & answers)
        is_printed = part.is_command and part.words()[0].text in (*PRINTS, SRUN)
        if part.is_command and (name in RENDEZVOUS or (asks and (name or is_printed))):
            report.lose(f"line {part.line}: {first_line(part)}", FINDS_NODES)
            taken[name] = part.line
            answers |= {name} if name and name not in RENDEZVOUS[:2] else set()
        else:
            kept.append(part)
            answers -= {name} if name else set()
    _note_others(taken, kept, launch, report)
    return kept


def _note_others(taken: Mapping[str, int], kept: Sequence[Statement], launch: Launch, report: Report) -> None:
    """Report the value in a pod of a variable that the script set by itself and still reads."""
    read = variables("\n".join([launch.statement.text, *(part.text for part in kept)]))
    for name in (contract.ENV_WORLD_SIZE, NODE_RANK):
        if name in taken and name in read:
            report.note(f"${name}, which line {taken[name]} sets, {IN_A_POD[name]}.")


def _check_launcher(parts: Sequence[Statement], launch: Launch) -> None:
    """Raise ConvertError if the flags about nodes are in a variable, where they would stay."""
    used = {name for word in launch.words for name in variables(word.text)}
    for part in parts:
        name = _assigned(part)
        if name in used and _PLACES.search(part.text):
            raise ConvertError(
                f"line {part.line}: {name}: has flags about nodes and addresses: write the command out, as in"
                " `srun torchrun --nnodes=... train.py`"
            )


def _without_unused(body: Body, report: Report, *, nproc: bool) -> list[Statement]:
    """The statements without variables that only removed options of torchrun used."""
    launch, parts = body.launch, body.others
    gone = {word.start for option in body._dropped(nproc=nproc) for word in option} if body._is_torchrun else set()
    only = {name for word in launch.words if word.start in gone for name in variables(word.text)}
    rest = " ".join(word.text for word in (*launch.words, *launch.after) if word.start not in gone)
    kept: list[Statement] = []
    for number, part in reversed(list(enumerate(parts))):
        name = _assigned(part)
        used = rest + " ".join(part.text for part in (*parts[:number], *kept))
        is_literal = (found := part.assignment()) is not None and found[1] is not None and found[1].value is not None
        if name in only and not is_literal and name not in variables(used):
            report.lose(f"line {part.line}: {first_line(part)}", FINDS_NODES)
        else:
            kept.insert(0, part)
    return kept


def _assigned(part: Statement) -> str:
    """The variable that a statement sets, if it does nothing else; else ""."""
    found = part.assignment()
    return found[0] if found else ""


def _of_a_node(shape: Shape) -> dict[str, str]:
    """The values of Slurm's variables about GPUs, which are used after --nproc-per-node; none without GPUs."""
    names = ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK")
    return dict.fromkeys(names, str(shape.gpus)) if shape.gpus else {}


def _literals(parts: Sequence[Statement]) -> dict[str, str]:
    """The variables that are set once, to a literal text."""
    found: dict[str, list[str | None]] = {}
    for part in parts:
        assigned = part.assignment()
        if assigned:
            found.setdefault(assigned[0], []).append(assigned[1].value if assigned[1] else None)
    return {name: values[0] for name, values in found.items() if len(values) == 1 and values[0] is not None}


def _resolved(text: str, literals: Mapping[str, str]) -> str:
    """A word with the values of known variables; quotes around it are then removed."""
    plain = text.strip('"')
    for name in variables(plain) & literals.keys():
        plain = re.sub(rf"\$\{{{name}\}}|\${name}\b", literals[name].replace("\\", r"\\"), plain)
    return plain if "$" not in plain else text


def _reason(name: str) -> str:
    """Why a job needs no such option of torchrun; "" if it keeps it."""
    full = flags.SHORT.get(name) or name.partition("=")[0].replace("_", "-")
    options = {**flags.WITH_VALUE, **flags.WITHOUT_VALUE}
    if full == NNODES or options.get(full) in (flags.MEMBERS, flags.MEETING):
        return reason_of(flags.Option(full, "", 0, ()))
    return ""


def _processes(program: Program, shape: Shape, is_torchrun: bool, report: Report) -> int | str | None:
    """Processes of a pod, as under Slurm; None if the line sets them for torchrun, or auto is equivalent."""
    processes = program.nproc
    if processes is None and is_torchrun and any(NPROC[2:7] in word for word in (*program.command, *program.args)):
        return None
    if processes is None:
        processes = 1 if is_torchrun else shape.tasks if program.was_plain else None
        if processes is not None and processes != max(1, shape.gpus):
            report.note(f"nprocPerNode: {processes}, as under Slurm; auto would be one process for each GPU.")
    return None if processes in ("auto", max(1, shape.gpus)) else processes


def _slurm_variables(text: str, shape: Shape, report: Report) -> dict[str, str]:
    """Variables of Slurm that the text uses, with their values in a pod."""
    size, rank = f"$({contract.ENV_WORLD_SIZE})", f"$({contract.ENV_POD_RANK})"
    is_fixed = shape.fewest == shape.most
    values = {
        "SLURM_JOB_ID": f"$({contract.ENV_JOB_UID})",
        "SLURM_JOBID": f"$({contract.ENV_JOB_UID})",
        "SLURM_JOB_NAME": f"$({contract.ENV_JOB_NAME})",
        "SLURM_NNODES": size,
        "SLURM_JOB_NUM_NODES": size,
        "SLURM_NTASKS": size if shape.tasks == 1 else "",
        "SLURM_NTASKS_PER_NODE": str(shape.tasks),
        "SLURM_NODEID": rank if is_fixed else "",
        "SLURM_PROCID": rank if is_fixed and shape.tasks == 1 else "",
        "SLURM_LOCALID": "0" if shape.tasks == 1 else "",
        "SLURM_CPUS_PER_TASK": str(shape.cpus // shape.tasks or ""),
        "SLURM_CPUS_ON_NODE": str(shape.cpus or ""),
        "SLURM_GPUS_ON_NODE": str(shape.gpus),
        "SLURM_GPUS_PER_NODE": str(shape.gpus),
    }
    used = sorted(name for name in variables(text) if name.startswith("SLURM_"))
    for name in used:
        if values.get(name):
            report.keep(f"${name}", f"env: {values[name]}")
        else:
            report.lose(f"${name}", NOT_SET)
    return {name: values[name] for name in used if values.get(name)}


def _env(
    exported: Mapping[str, str], slurm: Mapping[str, str], plain: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """The variables; only those of Slurm refer to others."""
    written = {**exported, **(plain or {})}
    literal = _literally({*written, *slurm})
    values = {**{name: literal(value) for name, value in exported.items()}, **slurm}
    values |= {name: literal(value) for name, value in (plain or {}).items()}
    return [{"name": name, "value": value} for name, value in values.items()]


def _literally(names: Collection[str]) -> Callable[[str], str]:
    """The text escaped so that Kubernetes, which expands `$$` and `$(NAME)`, passes it to the container unchanged."""
    operators = {*names, *OPERATOR_S}

    def doubled(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$$$$"
        return f"${match[0]}" if match[1] in operators else match[0]

    return functools.partial(REFERENCE.sub, doubled)
