"""Computes how long a preemptor may not preempt after it repeatedly could not use the room (139).

The first futile tries cause no back-off, because the obstacle may have passed. After these tries, the operator does not
know the cause.
"""

from __future__ import annotations

from elastic_operator.plan.facts.times import doubled

FUTILE_TRIES = 3
"""After this many futile tries the preemptor backs off."""
FIRST_FUTILE_SECONDS = 3600.0
MAX_FUTILE_SECONDS = 86_400.0
"""The first back-off, doubled after each further try up to this one."""


def backoff_seconds(times: int) -> float:
    """The back-off after this many futile tries."""
    if times < FUTILE_TRIES:
        return 0.0
    return doubled(FIRST_FUTILE_SECONDS, MAX_FUTILE_SECONDS, times - FUTILE_TRIES + 1)
