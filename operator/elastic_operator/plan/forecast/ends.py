"""The known ends of running jobs: by the reports of their scripts, and by their own time limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from elastic_operator.plan.facts.times import seconds
from elastic_operator.plan.job.active_time import active_for
from elastic_operator.plan.job.observation import Observation

OLD_SECONDS = 600.0
"""An older report does not count any more."""
FARTHEST_SECONDS = 10 * 365 * 86400.0
"""A later end counts as unknown: scripts may report any number, and no date is past the year 9999."""


def known_ends(observed: Iterable[Observation], now: float) -> dict[str, float]:
    """When a job ends (epoch seconds), by uid. One that should have ended by its own report ends now."""
    found = {obs.job.uid: list(_ends(obs, now)) for obs in observed if obs.members}
    ends = {uid: max(now, min(ends)) for uid, ends in found.items() if ends}
    return {uid: end for uid, end in ends.items() if end <= now + FARTHEST_SECONDS}


def _ends(obs: Observation, now: float) -> Iterator[float]:
    training, spec = obs.status.training, obs.job.spec
    if training is not None and training.estimated_remaining_seconds is not None:
        reported = seconds(training.last_updated_time)
        if now - reported <= OLD_SECONDS:
            yield reported + training.estimated_remaining_seconds
    if spec is not None and spec.active_deadline_seconds is not None:
        yield now + spec.active_deadline_seconds - active_for(obs, now)
