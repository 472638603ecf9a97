"""The suspended jobs that ask what they would get, and their answers (160).

Anybody who may create a job may ask. So each namespace has a token bucket: three questions at once, and one more after
ten seconds, or after twice the time that its answers take. Namespaces take turns. A job is answered once, and again
after each edit of its spec.
"""

from __future__ import annotations

import time
from collections.abc import Set
from math import inf

from elastic_api.status import Forecast, JobStatus, Lender, QueuePosition
from elastic_operator.cluster.rate_limit import TokenBucket
from elastic_operator.loop.store_view import StoreView
from elastic_operator.memory import Turns, drop_absent
from elastic_operator.metrics import Metrics
from elastic_operator.plan.facts.times import status_time
from elastic_operator.plan.forecast.answer import Answer, answer_steps, demand_if_resumed
from elastic_operator.plan.forecast.ends import known_ends
from elastic_operator.plan.forecast.starts import Steps, of_now
from elastic_operator.plan.forecast.status_forecasts import queue_position, with_answer
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.planner import PassDecisions

MAX_QUESTIONS_AT_ONCE, QUESTION_REFILL_SECONDS = 3, 10.0
ONE_SECONDS = 5.0
"""An answer that takes longer than this, rests included, costs more than one token of its namespace."""
ASK_AGAIN_SECONDS = 1.0
"""If the buckets of all namespaces that ask are empty, the operator looks at them again after this time."""


class WhatIfs:
    """The jobs that ask, and the answers, by the uid of the job."""

    def __init__(self, view: StoreView, *, metrics: Metrics) -> None:
        self._view, self._metrics = view, metrics
        self._namespaces: dict[str, str] = {}
        """The namespaces of the jobs that ask and have no answer yet, by uid."""
        self._answers: dict[str, tuple[QueuePosition | None, Forecast]] = {}
        """The place and the forecast for the job's status, by uid, until they are written."""
        self._buckets = TokenBucket(MAX_QUESTIONS_AT_ONCE, QUESTION_REFILL_SECONDS, now=time.monotonic)
        self._turns = Turns()
        """The turns of the namespaces with questions."""

    def with_answer(self, obs: Observation, status: JobStatus) -> JobStatus | None:
        """The status with the answer to the job's present question; None if the answer is not known yet. An answer that
        the stored status has is forgotten here.
        """
        uid, written = obs.job.uid, obs.job.status
        if _is_answer_to(obs, written.forecast):
            self._answers.pop(uid, None)
            return with_answer(status, written.queue, written.forecast)
        place, forecast = self._answers.get(uid, (None, None))
        return with_answer(status, place, forecast) if _is_answer_to(obs, forecast) else None

    def enqueue(self, obs: Observation) -> bool:
        """Queue the job's question; returns whether the question is new."""
        is_new = obs.job.uid not in self._namespaces
        self._namespaces[obs.job.uid] = obs.job.namespace
        return is_new

    def forget(self, uid: str) -> None:
        """Drop the question of a job that does not ask any more."""
        self._namespaces.pop(uid, None)
        self._answers.pop(uid, None)

    def forget_deleted(self, present: Set[str]) -> None:
        drop_absent(present, self._namespaces, self._answers)

    def next(self) -> str | None:
        """The job to answer next, which costs a token of its namespace; None if no namespace may ask now."""
        open_now = [uid for uid, namespace in self._namespaces.items() if self._buckets.has(namespace)]
        if not open_now:
            self._buckets.forget_full()
            self._turns.keep_only({*self._namespaces.values()})
            return None
        namespace = self._turns.take(self._namespaces[uid] for uid in open_now)
        self._buckets.take(namespace)
        uid = next(uid for uid in open_now if self._namespaces[uid] == namespace)
        del self._namespaces[uid]
        return uid

    def charge(self, namespace: str, seconds: float) -> None:
        """Charge the namespace for an answer that took `seconds`: a token for each `ONE_SECONDS` beyond the first."""
        self._buckets.take(namespace, max(0.0, seconds / ONE_SECONDS - 1.0))

    def next_at_monotonic(self) -> float:
        """When (monotonic) to look for a job that may be answered; infinity if none waits."""
        if not self._namespaces:
            return inf
        may_ask = any(map(self._buckets.has, set(self._namespaces.values())))
        return time.monotonic() + (0.0 if may_ask else ASK_AGAIN_SECONDS)

    def begin(self, obs: Observation, decisions: PassDecisions, now: float) -> Steps[Answer]:
        demand = demand_if_resumed(obs, self._view.shape(obs.job), now)
        inputs = of_now(decisions.inputs, decisions.allocation, now)
        return answer_steps(inputs, demand, known_ends(decisions.obs.values(), now))

    def end(self, obs: Observation, found: Answer, now: float) -> None:
        """Keep the job's answer. A pass may have asked for it again meanwhile."""
        self._namespaces.pop(obs.job.uid, None)
        place = queue_position(found.position, found.starts_at, found.confidence) if found.position else None
        self._answers[obs.job.uid] = place, _forecast(obs, found, now)
        self._metrics.what_ifs.labels("true" if found.fits else "false").inc()


def _is_answer_to(obs: Observation, forecast: Forecast | None) -> bool:
    """Whether the forecast answers the present question of the job: an edit of its spec asks again."""
    return forecast is not None and forecast.observed_generation == obs.job.generation


def _forecast(obs: Observation, found: Answer, now: float) -> Forecast:
    return Forecast(
        observed_generation=obs.job.generation,
        answered_time=status_time(now),
        fits=found.fits,
        replicas=found.replicas,
        gpus=found.gpus,
        limit=found.reason.code,
        message=found.reason.message,
        reclaimed_gpus=found.reclaimed,
        borrowed_gpus=found.borrowed,
        borrows=[Lender(policy=name, gpus=gpus) for name, gpus in found.lenders],
    )
