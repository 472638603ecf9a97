"""For how long nobody goes for a taker that could not use its room, time after time (139).

The first tries are free: what was in the way may have passed. Then the reason is one that the operator does not know.
"""

from __future__ import annotations

from elastic_operator.plan.facts.times import doubled

MOST_IN_VAIN = 3
"""After so many tries in vain nobody goes for it."""
FIRST_REST_SECONDS = 3600.0
MOST_REST_SECONDS = 86_400.0
"""For so long, twice as long after each further try."""


def rest_seconds(times: int) -> float:
    """The rest after so many tries in vain."""
    if times < MOST_IN_VAIN:
        return 0.0
    return doubled(FIRST_REST_SECONDS, MOST_REST_SECONDS, times - MOST_IN_VAIN + 1)
