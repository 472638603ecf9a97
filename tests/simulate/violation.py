"""The errors that report a broken rule."""

from __future__ import annotations


class ViolationError(AssertionError):
    """A rule is broken."""


class RestlessError(ViolationError):
    """The cluster never comes to rest. Any broken rule may be the cause."""


def require(holds: object, otherwise: str) -> None:
    """Raises ViolationError with that text unless it holds."""
    if not holds:
        raise ViolationError(otherwise)
