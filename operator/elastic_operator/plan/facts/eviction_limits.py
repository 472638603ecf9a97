"""The limits on evictions of pods for others (138)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

NO_LIMIT = 1 << 60
EVICTION_SECONDS = 60.0
"""How long an eviction counts."""


class EvictionLimit(StrEnum):
    """The limits on reclaim, by the names of their settings (138)."""

    PER_TEAM = "reclaim.maxEvictionsPerDecision"
    PER_CLUSTER = "reclaim.maxEvictionsPerMinute"


class PreemptorKey(NamedTuple):
    """The team, and the job, foreign pod or gang of foreign pods, for which pods of others are evicted."""

    team: str
    key: str
    """The uid of the job or the foreign pod, or the name of the gang."""


@dataclass(frozen=True, slots=True)
class EvictionLimits:
    """The most pods of others that may be evicted within a minute (138), for each team and for all together.

    `evicted_last_minute` are the pods (uids) that were deleted for others within the last minute, each with its
    preemptor. A limit is `configured` if somebody has set it. `longest_waiting` is the preemptor that has waited
    longest; `reserved_evictions` of the cluster's limit are reserved for this preemptor.
    """

    per_team: int = NO_LIMIT
    per_cluster: int = NO_LIMIT
    evicted_last_minute: Mapping[str, PreemptorKey] = field(default_factory=dict)
    configured: frozenset[EvictionLimit] = frozenset(EvictionLimit)
    longest_waiting: PreemptorKey | None = None
    reserved_evictions: int = 0

    def reserved_for_others_than(self, preemptor: PreemptorKey) -> int:
        """The number of evictions of the cluster's limit that are reserved for another preemptor."""
        return self.reserved_evictions if self.longest_waiting is not None and self.longest_waiting != preemptor else 0
