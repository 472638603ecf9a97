"""How long no pods go for a taker that could not use the room, time after time (139).

The first tries have no rest: whatever was in the way may have passed. After that, the cause is unknown to the operator.
"""

from __future__ import annotations

from elastic_operator.plan.facts.times import doubled

MAX_IN_VAIN = 3
"""After this many tries in vain the taker rests."""
FIRST_REST_SECONDS = 3600.0
MAX_REST_SECONDS = 86_400.0
"""The first rest, doubled after each further try up to this one."""


def rest_seconds(times: int) -> float:
    """The rest after this many tries in vain."""
    if times < MAX_IN_VAIN:
        return 0.0
    return doubled(FIRST_REST_SECONDS, MAX_REST_SECONDS, times - MAX_IN_VAIN + 1)
