"""Formats and parses lengths of time for readers. This module does not import pydantic, which costs a command line half
of its start.
"""

from __future__ import annotations


def span(seconds: float) -> str:
    """Seconds, rounded down, in their two largest units: `45s`, `3h20m`, `2d`."""
    left, parts = int(seconds), list[str]()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return "".join(parts) or "0s"
