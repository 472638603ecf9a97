"""The next state of one condition, in the status of a job or of a policy."""

from __future__ import annotations

from elastic_api.status import Condition, Truth
from elastic_operator.plan.facts.times import at


def condition(
    before: Condition | None, kind: str, value: Truth, reason: str, message: str, generation: int, now: float
) -> Condition:
    """The condition that follows the one `before` of its kind; its transition time changes only when its truth does."""
    return Condition(
        type=kind,
        status=value,
        reason=reason,
        message=message,
        last_transition_time=before.last_transition_time if before and before.status == value else at(now),
        observed_generation=generation,
    )
