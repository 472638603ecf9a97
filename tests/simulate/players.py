"""What a simulated and a real world have in common: chance, names for what comes, and the jobs that users make."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.api.jobs import make_container, make_job, make_template
from tests.simulate import server as kinds
from tests.simulate.facts import GPU, OF, POOL
from tests.simulate.server import Body


class Players:
    """What comes into a world, as `dice` falls. Objects are created on the world's `server`."""

    longest_delay = 3600
    """So many seconds at most is a job's growth delayed."""

    def __init__(self, server: Any, dice: Random) -> None:
        self.server, self.dice = server, dice
        self._names = 0

    def new_name(self, kind: str) -> str:
        """A name that nothing has had yet."""
        self._names += 1
        return f"{kind}{self._names}"

    def choose(self, things: list[Body]) -> Body | None:
        """One of them by chance; None where there is none."""
        return self.dice.choice(things) if things else None

    def add_job(self, namespace: str, *, gpus: int, pool: str, cpu: int = 1, delay: int = 0, **spec: Any) -> Body:
        """A job whose pods ask for so many GPUs of that pool."""
        resources = {"limits": {GPU: gpus}, "requests": {"cpu": cpu}}
        name = self.new_name("j")
        template = make_template(make_container(resources=resources), nodeSelector={POOL: pool})
        template["metadata"] = {"labels": {OF: name}}
        elasticity = {"scaleUpDelaySeconds": min(delay, self.longest_delay), "gracePeriodSeconds": 5}
        body = make_job(name, template=template, elasticity=elasticity, **spec)
        body["metadata"]["namespace"] = namespace
        return self.server.create(kinds.JOBS, body)
