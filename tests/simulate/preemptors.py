"""The preemptors of a pass: jobs that grow, and foreign pods that are nominated for a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.simulate import server as kinds
from tests.simulate.facts import (
    Amounts,
    Body,
    flavor_of,
    name_of,
    nominated_for,
    pod_priority,
    priority_of,
    requests_of,
    waits,
)
from tests.simulate.policies import Policies
from tests.simulate.server import Server


@dataclass(frozen=True, slots=True)
class Preemptor:
    """One of them, with what each of its pods asks for."""

    name: str
    team: str
    flavor: str
    priority: int
    requests: Amounts


def promised(server: Server) -> Iterator[tuple[Body, str]]:
    """Foreign pods that wait, and are nominated for a node, with that node."""
    return ((pod, nominated_for(pod)) for pod in server.all(kinds.PODS) if nominated_for(pod) and waits(pod))


def preemptors(
    server: Server, policies: Policies, jobs: Mapping[str, Body], allocation: Mapping[str, Any]
) -> list[Preemptor]:
    """All of them."""
    taking = [jobs[uid] for uid, grant in allocation.items() if grant.assignment.create and uid in jobs]
    found = [_preemptor(job, job["spec"]["template"], priority_of(job), policies) for job in taking]
    return found + [_preemptor(pod, pod, pod_priority(pod), policies) for pod, _ in promised(server)]


def _preemptor(thing: Body, template: Body, priority: int, policies: Policies) -> Preemptor:
    team = policies.team(thing["metadata"]["namespace"])
    return Preemptor(name_of(thing), team, flavor_of(template), priority, requests_of(template))
