"""Whether a job may let pods go for others, and what is done first.

Nobody goes for a taker that cannot use the room: the API server is asked about the pods of jobs (`trials`), and the
place of a foreign pod is kept for it (`reclaim`). While the stores are not fresh nobody goes, as no pod is made (139).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from elastic_operator.build.environment import frozen_nnodes
from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.loop.asking import Question
from elastic_operator.loop.reclaim import Reclaimer
from elastic_operator.loop.trials import Trials
from elastic_operator.plan.allocate import Allocation
from elastic_operator.plan.decisions import CreatePod, Plan
from elastic_operator.plan.job import Job
from elastic_operator.plan.observation import Observation


class MakingWay:
    """By what a pass has seen and decided. `again` has a job decided on once more."""

    def __init__(
        self, trials: Trials, reclaimer: Reclaimer, pods: Store[objects.Pod], *, again: Callable[[str], None]
    ) -> None:
        self._trials, self._reclaimer, self._pods, self._again = trials, reclaimer, pods, again
        self._seen: Mapping[str, Observation] = {}
        self._allocation: Allocation | None = None
        self._fresh = True

    def look(self, seen: Mapping[str, Observation], allocation: Allocation, *, fresh: bool) -> None:
        """What this pass has seen and decided, and whether the stores can be trusted."""
        self._seen, self._allocation, self._fresh = seen, allocation, fresh

    def may_begin(self, uid: str) -> bool:
        """Whether pods of that job may go: each job that gets the room can use it, as far as is known."""
        if not self._fresh:
            return False
        takers = sorted(self._decided.takers(uid))
        return all([self._can_use_room(taker, uid) for taker in takers])  # noqa: C419 - all are asked at once

    def before(self, uid: str, plan: Plan) -> Callable[[], Callable[[], Awaitable[bool]] | None]:
        """What must be done before the plan is carried out: who gets the room has it kept, and the brakes count."""
        taken = self._decided.taken
        pods = {pod.uid: taken[pod.uid] for pod in plan.deletes if pod.uid in taken}

        def start() -> Callable[[], Awaitable[bool]] | None:
            kept = self._reclaimer.before(uid)

            async def counted() -> bool:
                if kept is not None and not await kept():
                    return False
                self._reclaimer.goes(pods)
                return True

            return counted if pods else kept

        return start

    @property
    def _decided(self) -> Allocation:
        assert self._allocation is not None, "a pass has begun"
        return self._allocation

    def _can_use_room(self, uid: str, giver: str) -> bool:
        """Whether the job's pods would be taken, as far as is known; the giver is decided on again once that is."""
        seen, creates = self._seen.get(uid), self._creates(uid)
        if seen is None or not creates:
            return True
        roles, question = Counter(create.role for create in creates), partial(self._question, seen.job, creates)
        return self._trials.have_passed(seen.job, roles, question, ended=lambda: self._again(giver))

    def _question(self, job: Job, creates: tuple[CreatePod, ...]) -> Question:
        assert job.spec is not None, "pods are planned from a spec that could be read"
        share = self._decided.share(job.uid)
        ready = sum(slot.ready for slot in share.create)
        others = [self._seen[uid].job for uid in sorted(self._trials.asked() - {job.uid}) if uid in self._seen]
        besides = ((one, self._creates(one.uid)) for one in others if one.namespace == job.namespace)
        return Question(
            job,
            creates,
            besides=tuple((one, tuple(create.role for create in made)) for one, made in besides if made),
            leaving=partial(self._leaving, job.namespace, self._decided.going),
            needed=len(share.keep) + ready < job.spec.min_replicas,
        )

    def _creates(self, uid: str) -> tuple[CreatePod, ...]:
        """The pods that the job is to get, as they would be made if their room were free."""
        seen, slots = self._seen.get(uid), self._decided.share(uid).create if uid in self._decided else ()
        if seen is None or seen.job.spec is None:
            return ()
        nnodes, status = frozen_nnodes(seen.job.spec), seen.status
        return tuple(
            CreatePod(slot.role, slot.index, slot.node, status.incarnation, nnodes, status.master_epoch or 0)
            for slot in slots
        )

    def _leaving(self, namespace: str, going: frozenset[str]) -> list[objects.Pod]:
        """The pods of that namespace that are to go, or do so already."""
        return [
            pod
            for pod in self._pods
            if pod.metadata.namespace == namespace
            and (pod.metadata.uid in going or pod.metadata.deletion_timestamp is not None)
        ]
