"""The result of each converter: the new object, and line by line the new form of the old one's parts.

A converter reads its input through a `Source`, which knows the unread parts. At the end `Report.lose_unread` names all
unread parts, so no field is dropped silently, not even one that is newer than this code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from elastic_api.invalid import ABSENT, FieldError, Path

if TYPE_CHECKING:
    from elastic_client.code.folder import Code

UNKNOWN = "nothing is known here by that name"


class ConvertError(ValueError):
    """The input cannot be converted; the one line names the field or flag, its value, and what to write instead."""


@dataclass(frozen=True, slots=True)
class Converted:
    """An ElasticPyTorchJob made from something else.

    `kept` are the parts of the input that have another name or form now, `lost` the parts that are not in the manifest,
    each with the reason. Parts with the same name and value are in neither. `notes` explain the job. `code` is the code
    that the manifest mounts beside the image.
    """

    manifest: dict[str, Any]
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    code: Code | None = None

    def lines(self) -> list[str]:
        """The whole result as text, one line for each part."""
        return [
            *self.notes,
            *(f"kept: {line}" for line in self.kept),
            *(f"not kept: {line}" for line in self.lost),
        ]


@dataclass(slots=True)
class Report:
    """Collects the lines of a conversion. A line begins with the field or flag as the input has it."""

    kept: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def keep(self, at: Path | str, became: str, value: object = ABSENT) -> None:
        """Report the new form of this part of the input."""
        self.kept.append(f"{_shown(at, value)} -> {became}")

    def lose(self, at: Path | str, reason: str, value: object = ABSENT) -> None:
        """Report why this part of the input is not in the manifest."""
        self.lost.append(f"{_shown(at, value)}: {reason}")

    def note(self, text: str) -> None:
        """Report an explanation of the job."""
        self.notes.append(text)

    def lose_unread(self, source: Source) -> None:
        """Report all unread parts."""
        for path, value in source.unread():
            self.lose(path, UNKNOWN, value)

    def converted(self, manifest: dict[str, Any]) -> Converted:
        """The result with that manifest, and the reports so far."""
        return Converted(manifest, tuple(self.kept), tuple(self.lost), tuple(self.notes))


class Source:
    """A tree of mappings and lists that records which of its parts were read."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        self._tree = tree
        self._read: set[Path] = set()

    def take(self, *path: str | int) -> Any:
        """The value at the path, which then counts as read with everything below it; None if there is none."""
        self._read.add(path)
        return self.peek(*path)

    def peek(self, *path: str | int) -> Any:
        """The value at the path, which does not count as read; None if there is none."""
        value: Any = self._tree
        for step in path:
            value = value.get(step) if isinstance(value, Mapping) else None
        return value

    def unread(self) -> Iterator[tuple[Path, Any]]:
        """The parts that were not read, the largest ones."""
        yield from self._unread((), self._tree)

    def _unread(self, at: Path, value: Any) -> Iterator[tuple[Path, Any]]:
        if at in self._read:
            return
        is_entered = any(path[: len(at)] == at for path in self._read)
        if not is_entered or not isinstance(value, Mapping):
            yield at, value
            return
        for key, child in value.items():
            yield from self._unread((*at, key if isinstance(key, str | int) else str(key)), child)


def _shown(at: Path | str, value: object) -> str:
    """The place and the value there, as the messages about invalid specs have them."""
    text = str(FieldError(("",), "", value)).removeprefix(".").removesuffix(": ")
    return (at if isinstance(at, str) else FieldError(at, "").field) + text
