"""Questions and the line take turns, and whoever asks a lot waits longest (160, 161)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

from elastic_api.what_if import KEEP
from elastic_operator.loop.controller import Controller
from elastic_operator.loop.forecast.forecasts import Forecasts
from elastic_operator.metrics import Metrics
from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.facts.team import Teams
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.forecast.answer import Answer
from elastic_operator.plan.forecast.starts import MAX_STEPS, Steps
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.planner import PassDecisions, Planner
from elastic_operator.plan.policies.resolve import ResolvedPolicies
from tests.kit import virtual_time
from tests.plan.allocate.world import make_inputs, make_job, make_node
from tests.plan.jobs import make_job as make_facts
from tests.plan.jobs import make_spec

DECISION_SECONDS = 1.0


class Life:
    """Forecasts at work: no job that asks fits, and each decision for it takes a second of computing."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        clock, self.planner = SimpleNamespace(time=lambda: time.time()), Planner()
        self.forecasts = Forecasts(None, self.planner, metrics=Metrics(), clock=clock, requeue=self.heard.append)
        self.forecasts.what_ifs.begin = self._begin
        self._obs: dict[str, Observation] = {}

    def _begin(self, *_: object) -> Steps[Answer]:
        for _step in range(MAX_STEPS):
            if (yield):
                break
            asyncio.get_running_loop().keep_busy(DECISION_SECONDS)
        return Answer(Reason("x", "y"))

    def ask(self, namespace: str, count: int = 1) -> None:
        """So many jobs of the namespace ask."""
        for index in range(count):
            uid = f"{namespace}/{index}"
            job = make_facts((), namespace=namespace, uid=uid, what_if=KEEP, spec=make_spec(suspend=True))
            self._obs[uid] = Observation(job, job.status)
            self.forecasts.with_forecast(self._obs[uid], job.status)

    def see(self, *waiting: str) -> None:
        """A pass has decided; these jobs wait."""
        runs = make_job("runs", 1, on="n1", age=99)
        inputs = make_inputs([make_node("n1", 1)], [runs, *(make_job(uid, 1) for uid in waiting)])
        self.planner.decided = PassDecisions(
            ResolvedPolicies(Teams()), self._obs, inputs, allocate(inputs), True, 0.0, None
        )
        self.forecasts.note_allocation()

    def answers(self, namespace: str) -> int:
        """How many jobs of the namespace were answered."""
        return len([uid for uid in self.heard if uid.startswith(f"{namespace}/")])


def lives(scenario: Callable[[Life], Awaitable[None]]) -> Life:
    """What has become of it after the story."""

    async def main() -> Life:
        life = Life()
        working = asyncio.create_task(life.forecasts.run())
        await scenario(life)
        working.cancel()
        return life

    return virtual_time.run(main)


def crowds(life: Life, names: Sequence[str]) -> None:
    """Namespaces that ask far more than can be answered."""
    for name in names:
        life.ask(name, 100)


def test_waiting_jobs_hear_of_their_places_however_many_namespaces_ask_all_the_time() -> None:
    async def scenario(life: Life) -> None:
        crowds(life, ["a", "b", "c", "d", "e"])
        life.see("waits")
        await asyncio.sleep(60)

    assert "waits" in lives(scenario).heard


def test_while_starts_are_estimated_answers_take_half_of_the_time_at_most() -> None:
    def steps() -> Steps[dict[str, float]]:
        for _step in range(20):
            yield
            asyncio.get_running_loop().keep_busy(0.1)
        return {}

    async def scenario(life: Life) -> None:
        real = life.forecasts.queue_positions.refresh
        life.forecasts.queue_positions.refresh = lambda decisions, at: real(decisions, at) or steps()
        crowds(life, ["a", "b", "c", "d", "e"])
        life.see("waits")
        await asyncio.sleep(300)

    assert lives(scenario).heard.index("waits") <= 3


def test_a_namespace_that_seldom_asks_is_answered_next_however_many_others_ask_all_the_time() -> None:
    before = []

    async def scenario(life: Life) -> None:
        crowds(life, ["a", "b", "c", "d", "e"])
        life.see()
        await asyncio.sleep(300)
        life.ask("honest")
        before.extend(life.heard)
        await asyncio.sleep(300)

    assert lives(scenario).heard.index("honest/0") <= len(before) + 1


def test_answers_that_take_long_use_up_more_of_the_ration_than_others() -> None:
    async def scenario(life: Life) -> None:
        crowds(life, ["a"])
        life.see()
        await asyncio.sleep(1800)

    assert 0 < lives(scenario).answers("a") <= 1800 / 30


def test_what_was_decided_before_a_failed_pass_is_not_read_any_more() -> None:
    answered = []

    async def scenario(life: Life) -> None:
        life.see("waits")
        Controller.forget(SimpleNamespace(view=Mock(), planner=life.planner))
        life.ask("a")
        await asyncio.sleep(60)
        answered.append(list(life.heard))
        life.see("waits")
        await asyncio.sleep(60)

    life = lives(scenario)
    assert answered == [[]]
    assert sorted(life.heard) == ["a/0", "waits"]


def test_a_question_is_answered_once_although_passes_look_at_it_while_it_is_worked_out():
    async def scenario(life: Life) -> None:
        life.ask("red")
        life.see()
        for _ in range(30):
            await asyncio.sleep(20 * DECISION_SECONDS)
            life.ask("red")

    life = lives(scenario)
    assert life.heard == ["red/0"]
    assert life.forecasts.what_ifs._metrics.what_ifs.labels("false")._value.get() == 1


def test_an_answer_is_remembered_until_the_status_has_it():
    async def scenario(life: Life) -> None:
        life.ask("red")
        life.see()
        await asyncio.sleep(60)

    life = lives(scenario)
    (asked,) = life._obs.values()
    answered = life.forecasts.with_forecast(asked, asked.job.status)
    assert answered.forecast is not None
    assert life.forecasts.with_forecast(asked, asked.job.status) == answered
    written = Observation(replace(asked.job, status=answered), answered)
    for _ in range(2):
        assert life.forecasts.with_forecast(written, answered) is answered
        assert life.forecasts.what_ifs._answers == {}
    assert life.heard == ["red/0"]
