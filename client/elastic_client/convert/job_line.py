"""The command line and the variables of a job without an operator, as text for a shell.

A reference that Kubernetes expands, `$(NAME)`, becomes a variable of the shell. Every other character is kept
literally, so that no text of a job is a command of the script. If torchrun starts the script, its flags name the
meeting point of the machines; any other command reads the variables that the operator sets.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elastic_api import torchrun
from elastic_api.job import JobSpec
from elastic_api.launch_line import LAUNCH, line_of
from elastic_api.template import main_container, nproc_of
from elastic_api.torchrun import MAX_RESTARTS
from elastic_client.convert.converted import ConvertError
from elastic_client.convert.launch import NPROC, TORCHRUN, is_dropped
from elastic_worker import contract

MAX_RESTARTS_FLAG = "--max-restarts"
PER_POD = (contract.ENV_POD_RANK, contract.ENV_ROLE)
"""Variables of the operator whose value differs in each pod."""
REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
"""Kubernetes' references in the texts of a container: `$$` is a `$`, `$(NAME)` a variable's value if there is one."""
_OPERATOR_S = re.compile(r"(ELASTIC|PET)_[A-Z_]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHELL_S = re.compile(
    r"BASH\w*|SHELLOPTS|RANDOM|SRANDOM|SECONDS|EPOCH\w+|LINENO|HISTCMD|OPT(ARG|ERR|IND)|E?UID|PPID|GROUPS|FUNCNAME"
    r"|DIRSTACK|COMP_\w+|IFS|PS4|_"
)
"""Variables that bash computes, or that change its behaviour. Setting one may run a command, or fail."""
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Place:
    """The meeting point of the machines, each part as text for a shell. `conf` may be ""."""

    nnodes: str
    endpoint: str
    address: str
    port: str
    run_id: str
    size: str
    conf: str = ""
    own: Mapping[str, str] = field(default_factory=dict)
    """The operator's variables with the identity of the job and the pod, those that are known here."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the container, its value as text for a shell.

    `missing`: one line on the place of its value, if that is not in the manifest. `is_per_pod`: it has another value in
    each pod.
    """

    name: str
    value: str
    missing: str = ""
    is_per_pod: bool = False


class JobLine:
    """The command line of the pods of one role.

    Raises:
        ConvertError: a variable's name is invalid in a shell.
    """

    def __init__(self, spec: JobSpec, role: str) -> None:
        self._spec = spec
        self._main = main_container(spec.template_of(role))
        self.nproc = nproc_of(spec, role)
        self._known = set(OPERATOR_S)
        self._per_pod = set(PER_POD)
        self.variables = [self._variable(entry) for entry in self._main.get("env") or []]
        self.folder = str(self._main.get("workingDir") or "")
        self._line = line_of(self._main)

    @property
    def is_torchrun(self) -> bool:
        """Whether torchrun starts the script."""
        return self._line is not None or not self._main.get("command")

    def words(self, place: Place) -> list[str]:
        """The command line at this place, each word as text for a shell."""
        if not self.is_torchrun:
            return [self.quoted(word) for word in (*self._main.get("command", ()), *self._main.get("args", ()))]
        own, program, launcher = self._parts()
        limit = (
            [] if any(word.startswith(MAX_RESTARTS_FLAG) for word in own) else [f"{MAX_RESTARTS_FLAG}={MAX_RESTARTS}"]
        )
        return [*launcher, *self._meeting(place), *limit, *own, *program]

    def alone(self) -> list[str]:
        """The command line on one machine without others, each word as text for a shell."""
        if not self.is_torchrun:
            return self.words(Place("", "", "", "", "", ""))
        own, program, launcher = self._parts()
        return [*launcher, "--standalone", f"{NPROC}={self.nproc}", *own, *program]

    def settings(self, place: Place) -> dict[str, str]:
        """The operator's variables that the command reads, as text for a shell: all of them, unless it is torchrun."""
        values = _settings(place, self.nproc)
        read = {name: value for name, value in values.items() if not self.is_torchrun or self.mentions(name)}
        return {**read, **{name: value for name, value in place.own.items() if self.mentions(name)}}

    def mentions(self, name: str) -> bool:
        """Whether a word or a variable has that name in its text."""
        values = [str(entry.get("value") or "") for entry in self._main.get("env") or []]
        return any(name in text for text in (*self._texts(), *values))

    def not_set(self) -> list[str]:
        """The operator's variables that a text refers to and that exist in a pod only."""
        values = [str(entry.get("value") or "") for entry in self._main.get("env") or []]
        found = (match[1] or "" for text in (*self._texts(), *values) for match in REFERENCE.finditer(text))
        return list(dict.fromkeys(name for name in found if _OPERATOR_S.fullmatch(name) and name not in self._known))

    def is_per_pod(self, text: str) -> bool:
        """Whether the value of this text differs in each pod."""
        return any(match[1] in self._per_pod for match in REFERENCE.finditer(text))

    def words_per_pod(self) -> int:
        """The number of words from the first one that differs in each pod to the end. Raises ConvertError."""
        texts = self._texts()
        start = next((n for n, text in enumerate(texts) if self.is_per_pod(text)), len(texts))
        number = len(texts) - start
        if self.is_torchrun and self._line is not None and number > len(self._line.program):
            raise ConvertError(f"{texts[start]}: is another word in each pod: write it after the script")
        return number

    def _texts(self) -> list[str]:
        return [*map(str, self._main.get("command") or ()), *map(str, self._main.get("args") or ())]

    def quoted(self, text: str) -> str:
        """A text of the manifest as a word for a shell, with variables where Kubernetes would have put values."""
        parts: list[str] = []
        has_variable, at = False, 0
        for match in REFERENCE.finditer(text):
            parts.append(text[at : match.start()])
            if match[1] in self._known:
                parts.append(f"${{{match[1]}}}")
                has_variable = True
            else:
                parts[-1] += "$" if match[0] == "$$" else match[0]
                parts.append("")
            at = match.end()
        parts.append(text[at:])
        if not has_variable:
            return _word("".join(parts))
        return '"' + "".join(part if number % 2 else _in_quotes(part) for number, part in enumerate(parts)) + '"'

    def _variable(self, entry: Mapping[str, Any]) -> Variable:
        name = str(entry["name"])
        if not _NAME.fullmatch(name):
            raise ConvertError(
                f"env {on_one_line(name)}: a shell has no variable of that name: write letters, digits and _"
            )
        if _SHELL_S.fullmatch(name):
            raise ConvertError(f"env {name}: the shell sets it itself: take another name")
        source = entry.get("valueFrom") or {}
        kind, reference = next(iter(source.items()), ("", {}))
        text = str(entry.get("value") or "")
        # A reference to a later variable is not expanded.
        made = Variable(name, self.quoted(text), _missing(kind, reference), self.is_per_pod(text))
        self._known.add(name)
        if made.is_per_pod:
            self._per_pod.add(name)
        return made

    def _parts(self) -> tuple[list[str], list[str], list[str]]:
        """Torchrun's remaining options, the program with its arguments, and the words that start torchrun."""
        if self._line is None:
            return [], [self.quoted(word) for word in self._main.get("args", ())], [TORCHRUN]
        options = [option for option in self._line.options if not is_dropped(option) and option.name != NPROC]
        own = [self.quoted(word) for option in options for word in option.words]
        launcher = self._line.launcher if LAUNCH not in self._line.launcher else (TORCHRUN,)
        return own, [self.quoted(word) for word in self._line.program], [*map(self.quoted, launcher or (TORCHRUN,))]

    def _meeting(self, place: Place) -> list[str]:
        conf = [f"--rdzv-conf={place.conf}"] if place.conf else []
        return [
            f"--nnodes={place.nnodes}",
            f"{NPROC}={self.nproc}",
            f"--rdzv-id={place.run_id}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={place.endpoint}",
            *conf,
        ]


def _settings(place: Place, nproc: int) -> dict[str, str]:
    return torchrun.variables(
        address=place.address,
        port=place.port,
        world_size=place.size,
        nnodes=place.nnodes,
        nproc=str(nproc),
        endpoint=place.endpoint,
        run_id=place.run_id,
        conf=place.conf,
    )


OPERATOR_S = {
    *_settings(Place("", "", "", "", "", ""), 1),
    contract.ENV_JOB_NAME,
    contract.ENV_JOB_UID,
    *PER_POD,
}
"""Variables of the operator that a manifest may refer to."""


def left_out(part: Mapping[str, Any], known: Sequence[str]) -> list[str]:
    """The fields of a part of the manifest that are not among these, and are not empty."""
    return [key for key, value in part.items() if key not in known and value not in (None, "", [], {})]


def on_one_line(text: str) -> str:
    """The text for a comment: without line ends and control characters."""
    return " ".join(_CONTROLS.sub(" ", text).split())


def _missing(kind: str, reference: object) -> str:
    """The place of a value; "" if it is in the manifest."""
    if not kind:
        return ""
    parts = " ".join(str(value) for value in reference.values()) if isinstance(reference, Mapping) else ""
    return on_one_line(f"{kind} {parts}")


def _word(text: str) -> str:
    """The text as one word for a shell."""
    if _CONTROLS.search(text):
        return f"$'{_escaped(text)}'"
    return f'"{_in_quotes(text)}"' if "$" in text or "`" in text else shlex.quote(text)


def _escaped(text: str) -> str:
    """The text for `$'...'`, control characters by their bytes."""
    plain = re.sub(r"[\\']", r"\\\g<0>", text)
    return _CONTROLS.sub(lambda match: "".join(f"\\x{byte:02x}" for byte in match[0].encode()), plain)


def _in_quotes(text: str) -> str:
    """The text for double quotes. A `!` gets separate quotes, because it expands history in a typed line."""
    quoted = re.sub(r'[\\"$`]', r"\\\g<0>", text).replace("!", "\"'!'\"")
    return _CONTROLS.sub(lambda match: f"\"$'{_escaped(match[0])}'\"", quoted)
