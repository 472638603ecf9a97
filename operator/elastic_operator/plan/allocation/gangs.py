"""Gangs of foreign pods: all that wait get their places in one pass, or none does (144).

A part of a Job that trains on all of its pods does nothing, so nobody makes way for a part. Places that are promised
already stay: who made way for them is gone or on its way.
"""

from __future__ import annotations

from collections.abc import Sequence

from elastic_operator.plan.allocation.entry import Claim
from elastic_operator.plan.allocation.minimum import MOST_NEW_PLACES, Hopeless, serve_minimum
from elastic_operator.plan.allocation.state import Table

MOST_PODS = 256
"""For gangs of so many pods together places are looked for in one serving of a pass, and at least for one gang.

A gang that gets nothing costs a plan for nearly all of its pods. Those that were not tried are in the next pass.
"""


def serve_gang(table: Table, gang: Sequence[Claim], hopeless: Hopeless) -> bool:
    """Give each of these its place, or leave all as they were.

    What is hopeless with a part of the gang seated may not be so without, so only a copy of `hopeless` is written to.
    """
    name = gang[0].gang
    too_many = table.tried_gangs and table.tried_pods + len(gang) > MOST_PODS
    if table.new_places >= MOST_NEW_PLACES or (too_many and name not in table.tried_gangs):
        return False
    table.tried_pods += len(gang)
    table.tried_gangs.add(name)
    table.serving = name
    served = _serve_all(table, gang, hopeless)
    table.serving = ""
    return served


def _serve_all(table: Table, gang: Sequence[Claim], hopeless: Hopeless) -> bool:
    mark, places, found = table.mark(), table.new_places, dict(hopeless)
    took = {claim: len(claim.took) for claim in gang}
    for claim in gang:
        serve_minimum(table, claim, found)
        if not claim.served:
            break
    else:
        taken = (member.uid for claim in gang for _, member in claim.took[took[claim] :])
        if not table.brake_taken(gang[0], taken):
            return True
    table.roll_back(mark)
    table.new_places = places
    return False


def split_gangs(table: Table) -> frozenset[str]:
    """The gangs of which some pods that nothing is promised to have a place, and others do not."""
    return frozenset(name for name, gang in table.roster.gangs.items() if _is_split(gang))


def _is_split(gang: set[Claim]) -> bool:
    if any(claim.request and claim.request.may_be_split for claim in gang):
        return False
    placed = any(claim.served and not (claim.request and claim.request.promised) for claim in gang)
    return placed and not all(claim.served for claim in gang)
