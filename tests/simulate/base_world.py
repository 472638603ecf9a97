"""The parts that a simulated and a real world share: the random numbers, the names of new objects, and users' jobs."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.api.jobs import make_container, make_job, make_template
from tests.simulate import server as kinds
from tests.simulate.facts import GPU, OF, POOL
from tests.simulate.server import Body


class BaseWorld:
    """Creates objects on `server`; `rng` draws their properties."""

    longest_delay = 3600
    """The longest `scaleUpDelaySeconds` of a job, in seconds."""

    def __init__(self, server: Any, rng: Random) -> None:
        self.server, self.rng = server, rng
        self._names = 0

    def new_name(self, kind: str) -> str:
        """A name that no other object has."""
        self._names += 1
        return f"{kind}{self._names}"

    def choose(self, things: list[Body]) -> Body | None:
        """A random element; None if there is none."""
        return self.rng.choice(things) if things else None

    def add_job(self, namespace: str, *, gpus: int, pool: str, cpu: int = 1, delay: int = 0, **spec: Any) -> Body:
        """Create a job whose pods request so many GPUs of that pool."""
        resources = {"limits": {GPU: gpus}, "requests": {"cpu": cpu}}
        name = self.new_name("j")
        template = make_template(make_container(resources=resources), nodeSelector={POOL: pool})
        template["metadata"] = {"labels": {OF: name}}
        elasticity = {"scaleUpDelaySeconds": min(delay, self.longest_delay), "gracePeriodSeconds": 5}
        body = make_job(name, template=template, elasticity=elasticity, **spec)
        body["metadata"]["namespace"] = namespace
        return self.server.create(kinds.JOBS, body)
