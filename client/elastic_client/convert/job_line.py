"""How a job is started where there is no operator: its command line and its variables, as text for a shell.

What Kubernetes expands, `$(NAME)`, becomes a variable of the shell. Where torchrun starts the script, it is told by
flags where the machines meet; any other command is told by the variables that the operator sets.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_api.job import JobSpec
from elastic_api.launch_line import LAUNCH, line_of
from elastic_api.template import main_container, nproc_of
from elastic_client.convert.launch import NPROC, TORCHRUN, is_dropped
from elastic_worker import contract

MAX_RESTARTS = 10
"""What the operator tells torchrun; each change of size costs one."""
MAX_RESTARTS_FLAG = "--max-restarts"
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][-A-Za-z0-9_.]*)\)")


@dataclass(frozen=True, slots=True)
class Place:
    """Where machines meet, each part as text for a shell. `conf` may be ""."""

    nnodes: str
    endpoint: str
    address: str
    port: str
    run_id: str
    size: str
    conf: str = ""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the container. `missing` says where its value was, if it is not in the manifest."""

    name: str
    value: str
    missing: str = ""

    @property
    def needs_rank(self) -> bool:
        """Whether each machine has another value."""
        return f"$({contract.ENV_POD_RANK})" in self.value


class JobLine:
    """The command line of the pods of one role."""

    def __init__(self, spec: JobSpec, role: str) -> None:
        self._spec = spec
        self._main = main_container(spec.template_of(role))
        self.nproc = nproc_of(spec, role)
        self.variables = [_variable(one) for one in self._main.get("env") or []]
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
        """The operator's variables that the command reads, as text for a shell: all, where it is not torchrun."""
        values = _settings(place, self.nproc)
        return {name: value for name, value in values.items() if not self.is_torchrun or name in self._referred()}

    def _referred(self) -> set[str]:
        """The variables that Kubernetes would put into the words and into other variables."""
        words = [*(self._main.get("command") or ()), *(self._main.get("args") or ())]
        texts = [*words, *(variable.value for variable in self.variables)]
        return {match[1] for text in texts for match in _REFERENCE.finditer(text) if match[1]}

    def quoted(self, text: str) -> str:
        """A text of the manifest as a word for a shell, with variables where Kubernetes would have put values."""
        known = {variable.name for variable in self.variables} | OPERATOR_S
        if not any(match[1] in known for match in _REFERENCE.finditer(text)):
            plain = text.replace("$$(", "$(")
            return f'"{_in_quotes(plain)}"' if "$" in plain or "`" in plain else shlex.quote(plain)
        parts, at = [], 0
        for match in _REFERENCE.finditer(text):
            parts.append(_in_quotes(text[at : match.start()]))
            whole = match[0]
            parts.append(f"${{{match[1]}}}" if match[1] in known else _in_quotes("$" if whole == "$$" else whole))
            at = match.end()
        return '"' + "".join([*parts, _in_quotes(text[at:])]) + '"'

    def _parts(self) -> tuple[list[str], list[str], list[str]]:
        """Torchrun's own options that stay, the program with its arguments, and the words that start torchrun."""
        if self._line is None:
            return [], [self.quoted(word) for word in self._main.get("args", ())], [TORCHRUN]
        options = [one for one in self._line.options if not is_dropped(one) and one.name != NPROC]
        own = [self.quoted(word) for option in options for word in option.words]
        launcher = self._line.launcher if LAUNCH not in self._line.launcher else (TORCHRUN,)
        return own, [self.quoted(word) for word in self._line.program], list(launcher) or [TORCHRUN]

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
    return {
        contract.ENV_MASTER_ADDR: place.address,
        contract.ENV_MASTER_PORT: place.port,
        contract.ENV_WORLD_SIZE: place.size,
        contract.ENV_NNODES: place.nnodes,
        contract.ENV_NPROC_PER_NODE: str(nproc),
        contract.ENV_RDZV_BACKEND: "c10d",
        contract.ENV_RDZV_ENDPOINT: place.endpoint,
        contract.ENV_RDZV_ID: place.run_id,
        **({contract.ENV_RDZV_CONF: place.conf} if place.conf else {}),
        contract.ENV_MAX_RESTARTS: str(MAX_RESTARTS),
    }


OPERATOR_S = {*_settings(Place("", "", "", "", "", ""), 1), contract.ENV_POD_RANK}
"""Variables of the operator that a manifest may refer to."""


def left_out(part: Mapping[str, Any], known: Sequence[str]) -> list[str]:
    """The fields of a part of the manifest that are not among these, and are not empty."""
    return [key for key, value in part.items() if key not in known and value not in (None, "", [], {})]


def _variable(one: Mapping[str, Any]) -> Variable:
    source = one.get("valueFrom") or {}
    kind, reference = next(iter(source.items()), ("", {}))
    if not kind:
        return Variable(one["name"], one.get("value") or "")
    parts = " ".join(str(value) for value in reference.values()) if isinstance(reference, Mapping) else ""
    return Variable(one["name"], "", f"{kind} {parts}".strip())


def _in_quotes(text: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", text)
