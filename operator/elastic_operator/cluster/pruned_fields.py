"""Finds the fields of statuses that the API server drops, because its definition is of an older release (135 to 137).

A dropped field would look unwritten after each write, and be written again forever. So the answer to each write is
compared with the sent status, and missing fields are left out when a status is compared with the wanted one. They are
still sent with every write, so they are kept from the first write after the definition is upgraded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

log = logging.getLogger(__name__)


class PrunedFields:
    """Dropped fields of one kind; `fields` are paths in the status, such as `history[].excused`."""

    def __init__(self, plural: str) -> None:
        self._plural = plural
        self.fields: frozenset[str] = frozenset()

    def compare(self, sent: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Compare a sent status with the API server's answer."""
        paths = frozenset(_paths(sent, ""))
        missing = paths - frozenset(_paths(answer, ""))
        if missing and not self.fields:
            log.warning(
                "the CRDs are of an older release. The API server drops fields of %s: %s. Features that need these"
                " fields work after the CRDs of this release are applied",
                self._plural,
                ", ".join(f"status.{path}" for path in _outermost(missing)),
            )
        self.fields = self.fields - paths | missing

    def without(self, status: dict[str, Any]) -> dict[str, Any]:
        """The status without these fields, for comparison."""
        return dict(_without(status, self.fields, "")) if self.fields else status


def _paths(value: Any, at: str) -> Iterator[str]:
    """The paths of all fields in the value."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            path = f"{at}.{name}" if at else name
            yield path
            yield from _paths(inner, path)
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner, f"{at}[]")


def _outermost(paths: frozenset[str]) -> list[str]:
    """The paths that are not inside another of these paths."""
    return sorted(path for path in paths if not any(path.startswith((f"{outer}.", f"{outer}[]")) for outer in paths))


def _without(value: Any, fields: frozenset[str], at: str) -> Any:
    if isinstance(value, Mapping):
        named = ((name, inner, f"{at}.{name}" if at else name) for name, inner in value.items())
        return {name: _without(inner, fields, path) for name, inner, path in named if path not in fields}
    if isinstance(value, list):
        return [_without(inner, fields, f"{at}[]") for inner in value]
    return value
