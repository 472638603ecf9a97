"""How a broken rule is told."""

from __future__ import annotations


class ViolationError(AssertionError):
    """A rule that must hold does not."""


class RestlessError(ViolationError):
    """The cluster never comes to rest. That may follow from any rule that is broken."""


def require(holds: object, otherwise: str) -> None:
    """Raises ViolationError with that text unless it holds."""
    if not holds:
        raise ViolationError(otherwise)
