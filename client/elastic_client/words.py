"""Small texts: ages, counts, similar names, and text of others that is safe to print."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from datetime import UTC, datetime

from elastic_api.times import span

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
LONGEST_NAME = 253
"""The most characters of an object's name."""
MOST_NAMES = 3


def printable(text: str) -> str:
    """`text` without control characters, because anybody may have written the texts of a cluster."""
    return _CONTROLS.sub(" ", text)


def is_name(text: str) -> bool:
    """Whether the text is a valid name of an object, and so exactly one segment of a path."""
    return len(text) <= LONGEST_NAME and _NAME.fullmatch(text) is not None


def now() -> datetime:
    """The present moment."""
    return datetime.now(UTC)


def age(since: datetime, now: datetime) -> str:
    """The time from `since` to `now` in its two largest units, as in `3m10s`; a future time counts as 0 s."""
    return span(max(0.0, (now - since).total_seconds()))


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 pod`, `2 pods`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def sizes(small: int, big: int) -> str:
    """The sizes of a job: `4`, or `2 to 8`."""
    return str(small) if small == big else f"{small} to {big}"


def near(name: str, names: Iterable[str], *, lead: str = "there are ") -> str:
    """A hint with names similar to `name`, else with some existing ones after `lead`; `""` if there are none."""
    existing = sorted(set(names))
    close = difflib.get_close_matches(name, existing, n=MOST_NAMES, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    if not existing:
        return ""
    more = f" and {len(existing) - MOST_NAMES} more" if len(existing) > MOST_NAMES else ""
    return f"{lead}{', '.join(existing[:MOST_NAMES])}{more}"
