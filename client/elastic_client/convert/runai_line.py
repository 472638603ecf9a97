"""Parses a command line of Run:ai: the flags of both of its clients under one name, and the command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from elastic_client.convert.converted import ConvertError

STARTS = (
    ("submit-dist", "pytorch"),
    ("training", "pytorch", "submit"),
    ("pytorch", "submit"),
    ("distributed", "submit"),
    ("submit",),
    ("training", "submit"),
    ("training", "standard", "submit"),
)
ONE_POD = STARTS[4:]
"""Commands for a job of one pod."""
SHORT = {
    "-a": "annotation",
    "-c": "command",
    "-d": "debug",
    "-e": "environment",
    "-g": "gpu",
    "-h": "help",
    "-i": "image",
    "-l": "label",
    "-p": "project",
    "-q": "quiet",
    "-s": "service-type",
    "-t": "tty",
    "-v": "volume",
}
WITHOUT_VALUE = (
    "allow-privilege-escalation",
    "always-pull-image",
    "attach",
    "command",
    "create-home-dir",
    "debug",
    "help",
    "host-ipc",
    "host-network",
    "interactive",
    "large-shm",
    "local-image",
    "master-no-pvcs",
    "mount-propagation",
    "no-master",
    "preemptible",
    "prevent-privilege-escalation",
    "quiet",
    "run-as-user",
    "stdin",
    "tty",
    "verbose",
)
NEED_VALUE = ("image", "name", "workers", "min-replicas", "max-replicas", "gpu", "environment", "cpu", "memory")
MANY = (
    "add-capability",
    "annotation",
    "configmap-map-volume",
    "environment",
    "extended-resource",
    "host-path",
    "label",
    "nfs",
    "pvc",
    "pvc-exists",
    "toleration",
    "volume",
)
"""Flags that may be repeated, and all count."""
SAME = {
    "gpu-devices-request": "gpu",
    "cpu-core-request": "cpu",
    "cpu-core-limit": "cpu-limit",
    "cpu-memory-request": "memory",
    "cpu-memory-limit": "memory-limit",
    "existing-pvc": "pvc-exists",
    "name-prefix": "job-name-prefix",
    "capability": "add-capability",
}
"""v2's names of flags that v1 has, too."""


@dataclass(slots=True)
class Line:
    """A parsed command line; a flag that is read is removed from `flags`."""

    start: tuple[str, ...]
    name: str
    flags: list[tuple[str, str, str]] = field(default_factory=list)
    """Long name in v1's words, value, and how it was typed."""
    command: tuple[str, ...] = ()

    def all(self, name: str) -> list[str]:
        """Each value of a flag, which counts as read."""
        found = [value for flag, value, _ in self.flags if flag == name]
        self.flags = [flag for flag in self.flags if flag[0] != name]
        return found

    def last(self, name: str) -> str:
        """The last value of a flag, which counts as read; "" if it is absent."""
        return next(reversed(self.all(name)), "")

    def has(self, name: str) -> bool:
        """Whether a flag without a value is given and not false; it counts as read."""
        return any(value.lower() != "false" for value in self.all(name))


def read(words: Sequence[str]) -> Line:
    """Parse the line. Raises ConvertError if it does not submit a job."""
    rest = list(words[1:] if words[:1] == ["runai"] else words)
    start = next((start for start in STARTS if tuple(rest[: len(start)]) == start), None)
    if start is None:
        examples = ", ".join(f"`runai {' '.join(start)}`" for start in STARTS[:2])
        raise ConvertError(f"{' '.join(words[:3]) or 'no command line'}: write one of {examples}, with its flags")
    line = Line(start, "")
    rest = rest[len(start) :]
    while rest:
        word = rest.pop(0)
        if word == "--":
            line.command = tuple(rest)
            break
        if not word.startswith("-"):
            _positional(line, word)
            continue
        _flag(line, word, rest)
    return line


def _positional(line: Line, word: str) -> None:
    if line.name:
        raise ConvertError(f"{word}: the name is {line.name} already: write the command after --")
    line.name = word


def _flag(line: Line, word: str, rest: list[str]) -> None:
    name, equals, value = word.removeprefix("--").partition("=") if word.startswith("--") else _short(word)
    typed = word
    if not equals and name not in WITHOUT_VALUE and rest and not rest[0].startswith("-"):
        value = rest.pop(0)
        typed = f"{word} {value}"
    elif not equals and name not in WITHOUT_VALUE and name in NEED_VALUE:
        raise ConvertError(f"{word}: write a value after it")
    line.flags.append((SAME.get(name, name), value if equals or value else "true", typed))


def _short(word: str) -> tuple[str, str, str]:
    name, value = SHORT.get(word[:2], word.lstrip("-")), word[2:]
    return (name, "=", value.removeprefix("=")) if value and word[:2] in SHORT else (name, "", "")
