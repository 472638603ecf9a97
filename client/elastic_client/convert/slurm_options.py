"""The options of sbatch, in `#SBATCH` lines and after `srun`, and the readers of their values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from elastic_client.convert.converted import ConvertError

SHORT = {
    "-A": "account",
    "-a": "array",
    "-C": "constraint",
    "-c": "cpus-per-task",
    "-D": "chdir",
    "-d": "dependency",
    "-e": "error",
    "-G": "gpus",
    "-J": "job-name",
    "-k": "no-kill",
    "-l": "label",
    "-N": "nodes",
    "-n": "ntasks",
    "-o": "output",
    "-p": "partition",
    "-q": "qos",
    "-t": "time",
    "-u": "unbuffered",
    "-w": "nodelist",
    "-x": "exclude",
}
WITHOUT_VALUE = (
    "requeue",
    "no-requeue",
    "label",
    "unbuffered",
    "overlap",
    "overcommit",
    "contiguous",
    "hold",
    "verbose",
    "quiet",
    "exact",
    "spread-job",
    "mpi-combine",
    "container-mount-home",
    "no-container-mount-home",
    "container-writable",
    "container-remap-root",
)
MAY_HAVE_VALUE = ("exclusive", "no-kill", "kill-on-bad-exit", "wait-all-nodes", "nice", "oversubscribe", "propagate")
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")
_MEMORY = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
_NODES = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class Option:
    """An option by its long name without dashes; `text` is how it was written."""

    name: str
    value: str
    text: str


def read(words: Sequence[str]) -> tuple[list[Option], int]:
    """The options with which these words begin, and how many words they are."""
    found = []
    at = 0
    while at < len(words) and words[at].startswith("-") and len(words[at]) > 1:
        option, used = _option(words[at : at + 2])
        found.append(option)
        at += used
    return found, at


def directives(script: str) -> Iterator[tuple[int, str, bool]]:
    """The `#SBATCH` lines: number, text after `#SBATCH`, and whether sbatch reads it, since no command is before it."""
    is_read = True
    for number, line in enumerate(script.splitlines(), 1):
        if line.startswith("#SBATCH"):
            yield number, line.removeprefix("#SBATCH").strip(), is_read
        elif line.strip() and not line.lstrip().startswith("#"):
            is_read = False


def words_of(text: str) -> list[str]:
    """The words of a `#SBATCH` line, without its comment. Raises ConvertError."""
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise ConvertError(f"#SBATCH {text}: {error}: close the quote") from None


def seconds(text: str, field: str) -> int:
    """A time limit such as 90 (minutes), 1:30:00 or 2-12 (days and hours). Raises ConvertError."""
    found = _TIME.fullmatch(text)
    if not found:
        raise ConvertError(f"{field}={text}: write minutes, HH:MM:SS or DAYS-HH:MM:SS")
    parts = [int(found[name] or 0) for name in ("first", "second", "third")]
    if found["days"]:
        hours, minutes, rest = parts
        return ((int(found["days"]) * 24 + hours) * 60 + minutes) * 60 + rest
    if found["third"]:
        return (parts[0] * 60 + parts[1]) * 60 + parts[2]
    return parts[0] * 60 + parts[1]


def mebibytes(text: str, field: str) -> int:
    """An amount of memory such as 64G, or 4096 for MB. Raises ConvertError."""
    found = _MEMORY.fullmatch(text)
    if not found:
        raise ConvertError(f"{field}={text}: write an amount of memory such as 64G")
    number, unit = int(found[1]), found[2].upper() or "M"
    return {"K": -(-number // 1024), "M": number, "G": number * 1024, "T": number * 1024**2}[unit]


def nodes(text: str, field: str) -> tuple[int, int]:
    """The fewest and most nodes of 4 or 2-4. Raises ConvertError."""
    found = _NODES.fullmatch(text)
    if not found:
        raise ConvertError(f"{field}={text}: write a number of nodes, or the fewest and the most, such as 2-4")
    return int(found[1]), int(found[2] or found[1])


def gpus(text: str, field: str) -> tuple[int, str]:
    """The number and the kind ("" if none is named) of 4, a100:4, gpu, gpu:4, gpu:a100 or gpu:a100:4.

    After `gpu`, Slurm takes a kind without a number for one GPU of that kind. Raises ConvertError.
    """
    parts = text.split(":")
    if parts[0] == "gpu":
        parts = parts[1:] or ["1"]
        parts = [*parts, "1"] if len(parts) == 1 and not parts[0].isdecimal() else parts
    kind, number = (parts[0], parts[1]) if len(parts) == 2 else ("", parts[0]) if len(parts) == 1 else ("", "")
    if not number.isdecimal():
        raise ConvertError(f"{field}={text}: write a number of GPUs, or a kind and a number, such as a100:4")
    return int(number), kind


def generic_resources(text: str) -> tuple[str, list[str]]:
    """The GPUs of a --gres, "" if it has none, and its other resources."""
    parts = [part for part in text.split(",") if part]
    of_gpus = [part for part in parts if part.split(":")[0] == "gpu"]
    return ",".join(of_gpus), [part for part in parts if part not in of_gpus]


def whole(text: str, field: str) -> int:
    """A whole number, at least 1. Raises ConvertError."""
    if not text.isdecimal() or int(text) < 1:
        raise ConvertError(f"{field}={text}: write a whole number, at least 1")
    return int(text)


def _option(words: Sequence[str]) -> tuple[Option, int]:
    """The option at the beginning of these words, and its number of words."""
    word = words[0]
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        name = name.replace("_", "-")
        if equals:
            return Option(name, value, word), 1
    else:
        name, value = SHORT.get(word[:2], word.lstrip("-")), word[2:]
        if value and word[:2] in SHORT:
            return Option(name, value.removeprefix("="), word), 1
    has_value = name not in WITHOUT_VALUE and name not in MAY_HAVE_VALUE
    if has_value and len(words) > 1 and not words[1].startswith("-"):
        return Option(name, words[1], f"{word} {words[1]}"), 2
    return Option(name, "", word), 1
