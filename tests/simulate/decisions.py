"""The rules of each allocation: the order of the input does not matter, and a second allocation changes nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from random import Random
from typing import Any

from elastic_operator.plan.allocation import allocate as allocating
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from tests.plan.allocate.world import carried_out
from tests.simulate.violation import require


def order_says_nothing(inputs: AllocationInputs, rng: Random) -> None:
    """The same is decided whatever the order of nodes, jobs, teams and foreign pods."""

    def mixed(things: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(rng.sample(things, len(things)))

    again = replace(
        inputs,
        nodes=mixed(inputs.nodes),
        jobs=mixed(inputs.jobs),
        teams=replace(inputs.teams, listed=mixed(inputs.teams.listed)),
        foreign_pods=mixed(inputs.foreign_pods),
    )
    first, second = allocating.allocate(inputs), allocating.allocate(again)
    for uid in first:
        require(
            first.assignment(uid) == second.assignment(uid), f"in another order, {uid} gets {second.assignment(uid)}"
        )
    plans = [sorted((one.uid, one.node, sorted(one.victims)) for one in found.nominations) for found in (first, second)]
    require(plans[0] == plans[1], f"in another order, {plans[0]} becomes {plans[1]}")


def comes_out_again(inputs: AllocationInputs, unclear: Collection[str] = ()) -> None:
    """What is decided at rest is decided again when it is carried out; nothing is claimed of flavors that are unclear.

    What happens in one of them says nothing about the others.
    """
    flavors = {job.uid: job.shape.flavor for job in inputs.jobs}
    first = allocating.allocate(inputs)
    second = allocating.allocate(carried_out(inputs, dict(first)))
    for uid in (uid for uid in first if flavors.get(uid) not in unclear):
        before, after = first.assignment(uid), second.assignment(uid)
        require(
            before.replicas == after.replicas and not after.create and not after.release,
            f"carried out, {before} of {uid} becomes {after}",
        )
