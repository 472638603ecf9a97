"""What metrics show of jobs between two passes: their last plans, and where their time went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from elastic_api.status import ConditionType
from elastic_operator.metrics.picture import JobPicture
from elastic_operator.metrics.times import JobTimes
from elastic_operator.plan.job.master_report import report_of
from elastic_operator.plan.record import Planned


class Shown:
    """The times of all jobs; their plans are the planner's."""

    def __init__(self) -> None:
        self._times = JobTimes()

    def see(self, planned: Planned) -> None:
        """A plan was made for the job."""
        ready = planned.status.condition(ConditionType.READY)
        self._times.see(planned.obs.job.uid, ready.reason if ready else "", report_of(planned.obs))

    def keep_only(self, present: Set[str]) -> None:
        """Forget the jobs that are gone; `present` are the uids of those that are not."""
        self._times.keep_only(present)

    def pictures(self, planned: Iterable[Planned], policy_of: Mapping[str, str]) -> tuple[JobPicture, ...]:
        """These jobs as they are now; `policy_of` names the quota policy of each namespace that has one."""
        return tuple(
            JobPicture(
                obs=one.obs,
                status=one.status,
                policy=policy_of.get(one.obs.job.namespace, ""),
                seconds=self._times.seconds(one.obs.job.uid),
                moved_at=self._times.moved_at(one.obs.job.uid),
            )
            for one in planned
        )
